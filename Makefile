.DEFAULT_GOAL := help
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help demo test lint types unit torture clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(STAMP): requirements.txt requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "lit_cory needs Python 3.11 or newer; name one with: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

demo: $(STAMP)  ## train two copies of a small language model to write kinder film reviews (about 7 minutes, 2 cores)
	$(BIN)/python -m lit_cory fit --config configs/demo.yaml

test: $(STAMP) lint types unit  ## lint, types and all tests

lint: $(STAMP)  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy, strict
	$(BIN)/mypy

unit: $(STAMP)  ## the tests alone
	$(BIN)/python -m pytest -n auto --dist loadfile

torture: $(STAMP)  ## kills, signals, 2,000 rollouts and fuzzing at length (an hour or more; a full disk needs root)
	$(BIN)/python -m pytest -s -m torture tests/torture
	LIT_CORY_FUZZ=10 $(BIN)/python -m pytest -o timeout=7200 tests/test_fuzz.py tests/test_full_disk.py

clean:  ## remove the virtual environment and caches (runs are kept)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
