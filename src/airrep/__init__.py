"""Training data attribution for fine-tuned language models.

Which training examples, and which groups of them, made the model behave as it does on this query? ::

    import airrep

    train, queries = airrep.read_corpus("train.jsonl"), airrep.read_corpus("queries.jsonl")
    index = airrep.build_index(train, "runs/index")
    for hit in index.top(queries[0], k=10):
        print(f"{hit.score:+.3f}  {hit.example.prompt}")

Importing this package is quick: each name is loaded at its first use.
"""

from importlib import import_module
from sys import modules
from typing import Any

from airrep._version import __version__ as __version__

# Type checkers and editors read the same names from __init__.pyi, since they cannot follow names loaded at first use.
_HOMES = {
    "AirRepError": "errors",
    "AttributionCallback": "lm.trainer_records.callback",
    "Attributor": "attributors.base",
    "Corpus": "corpus.corpus",
    "Example": "corpus.corpus",
    "Index": "index.index",
    "adapt": "training.linear.recipe",
    "audit": "answers.audit",
    "build_index": "index.building",
    "check_attributor": "attributors.conformance",
    "classify": "evaluation.classify",
    "clean": "answers.clean",
    "compare_evaluations": "evaluation.comparison",
    "evaluate_lds": "evaluation.lds",
    "judge": "planning.judge",
    "label": "labels.farm",
    "load_lm": "lm.model",
    "make_attributor": "attributors.methods",
    "mix": "answers.mix",
    "open": "opening",
    "prove": "evaluation.prove",
    "read_corpus": "corpus.corpus",
    "sample": "labels.sampling",
    "select": "index.selection",
    "top": "answers.verdict",
    "train_encoder": "training.train",
    "warm_up": "lm.warmup",
    "write_report": "reports.results",
}
"""Every public name, and the module below `airrep` that defines it."""

_OF_LMS = ("lm.model", "lm.trainer_records.callback")
"""Modules that need the extra lm."""

_NAMESPACES = ("errors", "metrics")
__all__ = sorted([*_HOMES, *_NAMESPACES])


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return import_module(f"airrep.{name}")
    if (home := _HOMES.get(name)) is None:
        from airrep.dropped import NAMES, instead_of

        gone = instead_of(NAMES, name)
        told = f"module 'airrep' has no attribute '{name}'" + (f"; {gone}" if gone else _elsewhere(name))
        raise AttributeError(told, name=name, obj=modules[__name__])
    if home in _OF_LMS:
        from airrep.errors import LM, need

        need(f"airrep.{name}", "lm", *LM)
    value = getattr(import_module(f"airrep.{home}"), name)
    globals()[name] = value  # the next use finds it without this function
    return value


def _elsewhere(name: str) -> str:
    """Return how to import a name that the package defines but does not export; empty if it defines no such name."""
    import re
    from pathlib import Path

    here = Path(__file__).parent
    if name.startswith("_") or (here / name).is_dir() or (here / f"{name}.py").is_file():
        return ""  # for a module of the package, the import system continues after this AttributeError
    defined = re.compile(rf"^(?:(?:class|def) )?{re.escape(name)}\b[ :=(\[]", re.MULTILINE)
    for path in sorted(here.rglob("*.py")):
        module = path.relative_to(here).with_suffix("").parts
        if module[0] != "cli" and defined.search(path.read_text("utf-8")):
            return f". Write: from {'.'.join(['airrep', *module])} import {name}"
    return ""


def __dir__() -> list[str]:
    return __all__
