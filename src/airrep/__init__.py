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
from typing import Any

from airrep._version import __version__ as __version__

# Type checkers and editors read the same names from __init__.pyi: they cannot follow names that are loaded late.
_HOMES = {
    "AirRepError": "errors",
    "ArtifactError": "errors",
    "Attributor": "attributors.base",
    "Comparison": "evaluation.comparison",
    "ConfigError": "errors",
    "AuditResult": "answers.audit",
    "AuditSettings": "answers.audit",
    "CleanResult": "answers.clean",
    "CleanSettings": "answers.clean",
    "Corpus": "corpus.corpus",
    "DataError": "errors",
    "Draw": "index.picks",
    "Encoder": "encoder.base",
    "Engine": "runtime.engine",
    "Evaluation": "evaluation.result",
    "Example": "corpus.corpus",
    "ExplainResult": "answers.explain",
    "FineTuneSettings": "lm.settings",
    "GroupResult": "index.results",
    "Groups": "scoring.groups",
    "HarmResult": "answers.harm",
    "Hit": "index.results",
    "Hits": "index.results",
    "InProcess": "runtime.engine",
    "Index": "index.index",
    "LabelledInstance": "labels.instance",
    "Labels": "labels.labels",
    "LmSettings": "lm.settings",
    "LocalProcesses": "runtime.processes",
    "METHODS": "attributors.methods",
    "MissingExtraError": "errors",
    "MixResult": "answers.mix",
    "NotFittedError": "errors",
    "Pick": "index.picks",
    "Pool": "scoring.pooling",
    "Pooling": "scoring.pooling",
    "Provenance": "index.results",
    "RayEngine": "runtime.ray_engine",
    "SamplingSettings": "labels.plan",
    "SelectionResult": "index.picks",
    "SetResult": "answers.harm",
    "SubsetPlan": "labels.plan",
    "TargetLM": "lm.model",
    "TopResult": "index.results",
    "TrainingError": "errors",
    "TrainingSettings": "training.settings",
    "Warmup": "lm.warmup",
    "WhatIfResult": "index.results",
    "append": "index.editing",
    "audit": "answers.audit",
    "build_index": "index.building",
    "check_attributor": "attributors.conformance",
    "classify": "evaluation.classify",
    "clean": "answers.clean",
    "compact": "index.editing",
    "compare_evaluations": "evaluation.comparison",
    "delete": "index.editing",
    "diagnose": "evaluation.diagnosis.diagnosis",
    "evaluate_lds": "evaluation.lds",
    "evaluate_loo": "evaluation.loo",
    "evaluate_selection": "evaluation.select.select",
    "explain": "answers.explain",
    "fit_datamodels": "training.linear.datamodels",
    "harmful": "answers.harm",
    "label": "labels.farm",
    "lds": "evaluation.statistics.metrics",
    "learn_stack": "training.linear.stack",
    "load_encoder": "encoder.load",
    "load_lm": "lm.model",
    "make_attributor": "attributors.methods",
    "mix": "answers.mix",
    "noise_ceiling": "evaluation.statistics.ceilings",
    "normalise_losses": "training.ranking_loss",
    "open_index": "index.index",
    "open_labels": "labels.labels",
    "open_plan": "labels.plan",
    "open_warmup": "lm.warmup",
    "paired": "evaluation.statistics.metrics",
    "pool_scores": "scoring.pooling",
    "ranking_loss": "training.ranking_loss",
    "read_corpus": "corpus.corpus",
    "read_evaluation": "evaluation.result",
    "read_groups": "scoring.groups",
    "read_result": "index.results",
    "resample": "index.picking",
    "sample": "labels.sampling",
    "select": "index.picking",
    "spearman": "evaluation.statistics.metrics",
    "top_of_set": "answers.harm",
    "train_encoder": "training.train",
    "warm_up": "lm.warmup",
    "write_evaluation_report": "reports.evaluations",
    "write_report": "reports.results",
}
"""Every public name, and the module below `airrep` that defines it."""

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'airrep' has no attribute '{name}'")
    value = getattr(import_module(f"airrep.{_HOMES[name]}"), name)
    globals()[name] = value  # the next use does not come here again
    return value


def __dir__() -> list[str]:
    return __all__
