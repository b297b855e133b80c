"""Run an experiment: the commands of its config, one after the other; finished ones do nothing when run again.

Usage: python experiments/run.py NAME [--step STEP ...] [--only KEY=VALUE ...] [--list]

NAME is a folder beside this file with a `config.yaml`. Commands run in the folder of this file. What is large goes to
`work/`, which is not part of the repository; `work/shared` is a folder, or a link to one, with the data files (`data/`)
and models (`models/`) that the configs name. Labels and results, which are small, go to the experiment's own folder.
A config has

    tables: {KEY: {VALUE: {name: text, ...}, ...}}      what loops run over, and what each turn knows
    steps: [{name: STEP, each: [KEY, ...], only: {KEY: VALUE, ...}, commands: [text, ...]}]

Each command of a step runs once for each combination of its keys, with {KEY} and each {name} filled in; a step with
`only` belongs to these values of keys that it does not loop over. A step with `commit: HASH` needs airrep as it was then,
and runs only where `--step` names it. The seconds that a command took stand below it. A
command that fails ends the run; the same call goes on from there.
"""

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import yaml

HERE = Path(__file__).parent.resolve()


def main() -> None:
    """Read the config, run or list its commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--step", action="append", help="only this step; may be repeated")
    parser.add_argument(
        "--only", action="append", default=[], metavar="KEY=VALUE", help="only this turn of a loop; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="print the commands, run nothing")
    given = parser.parse_args()
    path = HERE / given.name / "config.yaml"
    if not path.is_file():
        sys.exit(f"{given.name}: has no config; expected one of: {', '.join(sorted(experiments()))}.")
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    tables = config.get("tables", {})
    config["tables"] = {key: {str(value): more for value, more in table.items()} for key, table in tables.items()}
    check(config, given.step or [], given.only)
    only: dict[str, set[str]] = {}
    for key, value in (pair.split("=", 1) for pair in given.only):
        only.setdefault(key, set()).add(value)
    for command in commands(config, given.step, only):
        print(f"$ {command}", flush=True)
        if not given.list:
            begin = time.monotonic()
            run(command)
            print(f"# {time.monotonic() - begin:.0f} s", flush=True)


def experiments() -> list[str]:
    """The folders that have a config."""
    return [path.parent.name for path in HERE.glob("*/config.yaml")]


def check(config: dict, steps: list[str], only: list[str]) -> None:
    """End with a line that names what exists, where a step, a key or a value does not."""
    known = [step["name"] for step in config["steps"]]
    tables = config["tables"]
    for step in steps:
        if step not in known:
            sys.exit(f"--step {step}: is no step here; expected one of: {', '.join(known)}.")
    for pair in only:
        key, equals, value = pair.partition("=")
        if not equals or key not in tables:
            sys.exit(
                f"--only {pair}: is no turn of a loop; expected KEY=VALUE, KEY one of: {', '.join(tables) or '(none)'}."
            )
        if value not in tables[key]:
            sys.exit(f"--only {pair}: {key} has no such value; expected one of: {', '.join(tables[key])}.")


def commands(config: dict, steps: list[str] | None, only: dict[str, set[str]]) -> Iterator[str]:
    """The commands of the chosen steps, filled in."""
    tables = config["tables"]
    for step in config["steps"]:
        others = any(key in only and str(value) not in only[key] for key, value in step.get("only", {}).items())
        if others or ("commit" in step if steps is None else step["name"] not in steps):
            continue
        for turn in product(*(tables[key].items() for key in step.get("each", []))):
            names = dict(zip(step.get("each", []), (value for value, _ in turn), strict=True))
            if any(key in only and value not in only[key] for key, value in names.items()):
                continue
            known = dict(names)
            for _, more in turn:
                known |= more or {}
            known = {name: str(text).format(**known) for name, text in known.items()}
            yield from (" ".join(command.format(**known).split()) for command in step["commands"])


def run(command: str) -> None:
    """Run one command of airrep or Python; end with its status if it fails."""
    program, *arguments = shlex.split(command)
    start = {"airrep": [sys.executable, "-m", "airrep"], "python": [sys.executable]}[program]
    status = subprocess.run([*start, *arguments], cwd=HERE, check=False).returncode
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
