from lit_cory.callbacks.samples import escape, markdown_table


def test_what_models_write_cannot_break_the_table() -> None:
    table = markdown_table([{"query": "a|b", "answer": "line\nbreak \x1b[31m <b> \\"}])
    assert table == "| query | answer |\n| --- | --- |\n| a\\|b | line break  [31m &lt;b> \\\\ |"


def test_ordinary_text_of_any_script_stays() -> None:
    assert escape("Café, 映画 100%") == "Café, 映画 100%"
