"""The cells of a sweep: every combination of a grid and the seeds, with the configuration that each comes to."""

import itertools
import json
import multiprocessing
import warnings
from argparse import ArgumentError
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lit_cory.analysis.runs import config_hash
from lit_cory.errors import UserError

OWN = {"seed_everything": "--seeds", "run_folder": "--out", "ckpt_path": "--out (half-done runs go on by themselves)"}
"""Keys that a sweep sets itself, and what to use."""


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
        options: of ``fit``, the folder left out.
        seed: of the run.
        config: its effective configuration.
        folder: of the run.
    """

    options: list[str]
    seed: int
    config: dict[str, Any]
    folder: Path

    @property
    def hash(self) -> str:
        """Of its effective configuration."""
        return config_hash(self.config)

    @property
    def name(self) -> str:
        """Of its configuration, as in the table."""
        return self.folder.parent.name


def read_grid(entries: Sequence[str]) -> dict[str, list[str]]:
    """``key=[a, b]`` of each entry, as keys with the texts of their values.

    Raises:
        UserError: for an entry of another form, an empty list, a value or key given twice, or a key that sweeps set.
    """
    grid: dict[str, list[str]] = {}
    for entry in entries:
        key, _, text = entry.partition("=")
        try:
            values = yaml.safe_load(text)
        except yaml.YAMLError:
            values = None
        if not isinstance(values, list) or not values:
            raise UserError(f"grid {entry}: must be key=[value, value ...] with one value at least")
        if key in OWN or key.startswith("config"):
            raise UserError(f"grid {key}: a sweep sets it itself; use {OWN.get(key, '--config')}")
        texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
        if key in grid or len(set(texts)) < len(texts):
            raise UserError(f"grid {entry}: stands there twice; name each key and value once")
        grid[key] = texts
    return grid


def make_cells(configs: Sequence[str], grid: dict[str, list[str]], seeds: Sequence[int], out: Path) -> list[Cell]:
    """All cells, seed by seed, so that a sweep that is stopped has compared all it can.

    Raises:
        UserError: for a seed given twice, two combinations that come to the same configuration, and what ``fit``
            refuses before it reads any data.
    """
    if len(set(seeds)) < len(seeds):
        raise UserError(f"seeds {list(seeds)}: name each once")
    name = "+".join(Path(config).stem for config in configs)
    files = [option for config in configs for option in ("--config", config)]
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    options = [[*files, *(f"--{key}={value}" for key, value in chosen.items())] for chosen in combinations]
    # In a process of its own: what the parser imports would hold half a gigabyte for as long as the sweep goes on.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as worker:
        effective = worker.submit(effective_configs, options).result()
    hashes = [config_hash(config) for config in effective]
    if twice := [chosen for chosen, found in zip(combinations, hashes, strict=True) if hashes.count(found) > 1]:
        raise UserError(f"grid {twice[0]} and {twice[1]}: come to the same configuration; leave one out")
    return [
        Cell([*own, f"--seed_everything={seed}"], seed, config, out / name / f"{found}-{seed}")
        for seed in seeds
        for own, found, config in zip(options, hashes, effective, strict=True)
    ]


def effective_configs(options: Sequence[list[str]]) -> list[dict[str, Any]]:
    """The whole configuration that the options of each run come to, once its settings are checked.

    Raises:
        UserError: as ``fit`` does for keys and values.
    """
    from lit_cory.cli import CoryCLI

    class Keys(CoryCLI):
        """The command line up to the settings' checks: nothing is made or run."""

        def _set_seed(self) -> None:
            pass

        def before_instantiate_classes(self) -> None:
            self.subcommand = "fit"

        def instantiate_classes(self) -> None:
            self.parser.instantiate_classes(self.config)

        def _run_subcommand(self, subcommand: str) -> None:
            pass

    found = []
    cli: Keys | None = None
    for own in options:
        try:
            with warnings.catch_warnings(action="ignore"):
                if cli is None:
                    cli = Keys(["fit", *own])
                else:
                    cli.parse_arguments(cli.parser, ["fit", *own])
                    cli.instantiate_classes()
                dump = cli._parser("fit").dump(cli.config["fit"], skip_none=False)
        except (UserError, ArgumentError) as error:
            raise UserError(f"{' '.join(own)}: {' '.join(str(error).split())}") from None
        found.append(dict(yaml.safe_load(dump)))
    return found
