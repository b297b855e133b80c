"""The command line and Python agree: what has one name in both has one default."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import typer.main

import airrep
from airrep.cli import app as cli
from airrep.evaluation.select import evaluate_selection

PAIRS = {
    "index": airrep.build_index, "append": airrep.Index.append, "delete": airrep.Index.delete, "top": airrep.top,
    "group": airrep.Index.group_scores, "what-if": airrep.Index.what_if, "select": airrep.select, "clean": airrep.clean,
    "audit": airrep.audit, "mix": airrep.mix, "prove": airrep.prove, "report": airrep.write_report,
    "sample": airrep.sample, "label": airrep.label, "train": airrep.train_encoder, "warmup": airrep.warm_up,
    "compare": airrep.compare_evaluations, "evaluate": evaluate_selection,
}  # fmt: skip


def command_of(words: str) -> Any:
    """The command of these words."""
    found: Any = typer.main.get_command(cli.app)
    for word in words.split():
        found = found.commands[word]
    return found


@pytest.mark.parametrize("words", PAIRS)
def test_what_has_one_name_has_one_default(words: str) -> None:
    function: Callable[..., Any] = PAIRS[words]
    options = {option.name: option.default for option in command_of(words).params}
    shared = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if name in options and parameter.default is not parameter.empty
    }
    if words not in ("append", "delete", "sample", "warmup", "evaluate"):  # no such names
        assert shared
    for name, default in shared.items():
        nothing = options[name] is None or (name == "engine" and options[name] == "local")
        assert options[name] == default or (nothing and default in (None, ())), name
