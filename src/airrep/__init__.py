"""Training data attribution for fine-tuned language models.

Which training examples, and which groups of them, made the model behave as it does on this query? ::

    import airrep

    train, queries = airrep.read_corpus("train.jsonl"), airrep.read_corpus("queries.jsonl")
    index = airrep.build_index(train, "runs/index")
    for hit in index.top(queries[0], k=10):
        print(f"{hit.score:+.3f}  {hit.example.prompt}")

Importing this package is quick: each name is loaded when it is first used.
"""

from importlib import import_module
from sys import modules
from typing import Any
from warnings import warn

from airrep._version import __version__ as __version__

# Type checkers and editors read the same names from __init__.pyi: they cannot follow names that are loaded late.
_HOMES = {
    "AirRepError": "errors",
    "AttributionCallback": "lm.trainer.callback",
    "Attributor": "attributors.base",
    "Corpus": "corpus.corpus",
    "Example": "corpus.corpus",
    "Index": "index.index",
    "audit": "answers.audit",
    "build_index": "index.building",
    "check_attributor": "attributors.conformance",
    "classify": "evaluation.classify",
    "clean": "answers.clean",
    "compare_evaluations": "evaluation.comparison",
    "diagnose": "evaluation.diagnosis.diagnosis",
    "evaluate_lds": "evaluation.lds",
    "evaluate_loo": "evaluation.loo",
    "evaluate_selection": "evaluation.select.select",
    "explain": "answers.explain",
    "fit_datamodels": "training.linear.datamodels",
    "harmful": "answers.harm",
    "import_labels": "labels.outside.imported",
    "judge": "planning.judging.judge",
    "label": "labels.farm",
    "label_by_command": "labels.outside.command",
    "learn_stack": "training.linear.stack",
    "load_lm": "lm.model",
    "make_attributor": "attributors.methods",
    "mix": "answers.mix",
    "open_index": "index.index",
    "open_labels": "labels.labels",
    "open_plan": "labels.plan",
    "prove": "evaluation.proof.prove",
    "read_corpus": "corpus.corpus",
    "read_evaluation": "evaluation.result",
    "read_result": "answers.reading",
    "read_training": "lm.trainer.training",
    "read_training_record": "lm.trainer.record",
    "sample": "labels.sampling",
    "select": "index.selection.picking",
    "take_records": "corpus.originals",
    "top_of_set": "answers.harm",
    "train_encoder": "training.train",
    "warm_up": "lm.warmup",
    "write_evaluation_report": "reports.evaluations",
    "write_report": "reports.results",
}
"""Every public name, and the module below `airrep` that defines it."""

_EARLIER = {
    "ArtifactError": "errors",
    "Comparison": "evaluation.comparison",
    "ConfigError": "errors",
    "DataError": "errors",
    "Draw": "index.selection.picks",
    "Encoder": "encoder.base",
    "Engine": "runtime.engine",
    "Evaluation": "evaluation.result",
    "FineTuneSettings": "lm.settings",
    "GroupResult": "index.results.kinds",
    "Groups": "scoring.groups",
    "Hit": "index.results.hits",
    "Hits": "index.results.hits",
    "InProcess": "runtime.engine",
    "LabelledInstance": "labels.instance",
    "Labels": "labels.labels",
    "LmSettings": "lm.settings",
    "LocalProcesses": "runtime.processes",
    "METHODS": "attributors.methods",
    "MissingExtraError": "errors",
    "NotFittedError": "errors",
    "Pick": "index.selection.picks",
    "Pool": "scoring.pooling",
    "Pooling": "scoring.pooling",
    "Provenance": "index.results.provenance",
    "RayEngine": "runtime.ray_engine",
    "SamplingSettings": "labels.plan",
    "SelectionResult": "index.selection.picks",
    "SubsetPlan": "labels.plan",
    "TargetLM": "lm.model",
    "TopResult": "index.results.kinds",
    "TrainingError": "errors",
    "TrainingSettings": "training.settings",
    "Warmup": "lm.warmup",
    "WhatIfResult": "index.results.kinds",
    "append": "index.editing",
    "compact": "index.editing",
    "delete": "index.editing",
    "lds": "evaluation.statistics.metrics",
    "load_encoder": "encoder.load",
    "noise_ceiling": "evaluation.statistics.ceilings",
    "normalise_losses": "evaluation.statistics.rank_labels",
    "open_warmup": "lm.warmup",
    "paired": "evaluation.statistics.metrics",
    "pool_scores": "scoring.pooling",
    "ranking_loss": "training.ranking_loss",
    "read_groups": "scoring.groups",
    "resample": "index.selection.picking",
    "spearman": "evaluation.statistics.metrics",
}
"""Names of earlier versions, which have another place now; they are given with a warning."""

_OF_LMS = ("lm.model", "lm.trainer.callback")
"""Modules that cannot be loaded without the extra lm."""
_METHODS = {"append": "Index.append", "compact": "Index.compact", "delete": "Index.delete"}
_MEASURES = ("lds", "noise_ceiling", "normalise_losses", "paired", "pool_scores", "ranking_loss", "spearman")

_NAMESPACES = ("errors", "metrics")
__all__ = sorted([*_HOMES, *_NAMESPACES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return import_module(f"airrep.{name}")
    home = _HOMES.get(name) or _EARLIER.get(name)
    if home is None:
        raise AttributeError(f"module 'airrep' has no attribute '{name}'", name=name, obj=modules[__name__])
    if home in _OF_LMS:
        from airrep.errors import LM, need

        need(f"airrep.{name}", "lm", *LM)
    value = getattr(import_module(f"airrep.{home}"), name)
    if name in _EARLIER:
        place = f"metrics.{name}" if name in _MEASURES else _METHODS.get(name, f"{home}.{name}")
        warn(f"airrep.{name} will go; use airrep.{place}.", DeprecationWarning, stacklevel=2)
        return value
    globals()[name] = value  # the next use does not come here again
    return value


def __dir__() -> list[str]:
    return __all__
