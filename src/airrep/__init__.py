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
from typing import TYPE_CHECKING, Any

from airrep._version import __version__

if TYPE_CHECKING:
    from airrep.attributors import METHODS, make_attributor
    from airrep.attributors.base import Attributor
    from airrep.attributors.conformance import check_attributor
    from airrep.building import build_index
    from airrep.ceilings import noise_ceiling
    from airrep.classification import classify
    from airrep.comparison import Comparison, compare_evaluations
    from airrep.corpus import Corpus, Example, read_corpus
    from airrep.datamodels import fit_datamodels
    from airrep.diagnosis import diagnose
    from airrep.downstream import evaluate_selection
    from airrep.editing import append, compact, delete
    from airrep.encoder import Encoder, load_encoder
    from airrep.errors import (
        AirRepError,
        ArtifactError,
        ConfigError,
        DataError,
        MissingExtraError,
        NotFittedError,
        TrainingError,
    )
    from airrep.evaluating import evaluate_lds
    from airrep.evaluation import Evaluation, read_evaluation
    from airrep.evaluation_report import write_evaluation_report
    from airrep.executor import Engine, InProcess
    from airrep.farm import label
    from airrep.groups import Groups
    from airrep.index import Index, open_index, read_groups
    from airrep.labelled import LabelledInstance
    from airrep.labels import Labels, open_labels
    from airrep.lm import TargetLM, load_lm
    from airrep.lm_settings import FineTuneSettings, LmSettings
    from airrep.local_processes import LocalProcesses
    from airrep.metrics import lds, paired, spearman
    from airrep.picking import Draw, Pick, SelectionResult, resample, select
    from airrep.plans import SamplingSettings, SubsetPlan, open_plan
    from airrep.pooling import Pool, Pooling, pool_scores
    from airrep.ranking import normalise_losses, ranking_loss
    from airrep.ray_engine import RayEngine
    from airrep.removals import evaluate_loo
    from airrep.report import write_report
    from airrep.results import GroupResult, Hit, Hits, Provenance, TopResult, WhatIfResult, read_result
    from airrep.sampling import sample
    from airrep.stacking import learn_stack
    from airrep.train_settings import TrainingSettings
    from airrep.training import train_encoder
    from airrep.warming import warm_up
    from airrep.warmup import Warmup, open_warmup

_HOMES = {
    "airrep.attributors": ("METHODS", "make_attributor"),
    "airrep.attributors.base": ("Attributor",),
    "airrep.attributors.conformance": ("check_attributor",),
    "airrep.building": ("build_index",),
    "airrep.corpus": ("Corpus", "Example", "read_corpus"),
    "airrep.editing": ("append", "compact", "delete"),
    "airrep.encoder": ("Encoder", "load_encoder"),
    "airrep.errors": (
        "AirRepError",
        "ArtifactError",
        "ConfigError",
        "DataError",
        "MissingExtraError",
        "NotFittedError",
        "TrainingError",
    ),
    "airrep.executor": ("Engine", "InProcess"),
    "airrep.farm": ("label",),
    "airrep.groups": ("Groups",),
    "airrep.index": ("Index", "open_index", "read_groups"),
    "airrep.pooling": ("Pool", "Pooling", "pool_scores"),
    "airrep.report": ("write_report",),
    "airrep.results": ("GroupResult", "Hit", "Hits", "Provenance", "TopResult", "WhatIfResult", "read_result"),
    "airrep.picking": ("Draw", "Pick", "SelectionResult", "resample", "select"),
    "airrep.labelled": ("LabelledInstance",),
    "airrep.labels": ("Labels", "open_labels"),
    "airrep.lm": ("TargetLM", "load_lm"),
    "airrep.lm_settings": ("FineTuneSettings", "LmSettings"),
    "airrep.local_processes": ("LocalProcesses",),
    "airrep.ceilings": ("noise_ceiling",),
    "airrep.metrics": ("lds", "paired", "spearman"),
    "airrep.plans": ("SamplingSettings", "SubsetPlan", "open_plan"),
    "airrep.ranking": ("normalise_losses", "ranking_loss"),
    "airrep.ray_engine": ("RayEngine",),
    "airrep.sampling": ("sample",),
    "airrep.train_settings": ("TrainingSettings",),
    "airrep.training": ("train_encoder",),
    "airrep.datamodels": ("fit_datamodels",),
    "airrep.classification": ("classify",),
    "airrep.diagnosis": ("diagnose",),
    "airrep.downstream": ("evaluate_selection",),
    "airrep.evaluation_report": ("write_evaluation_report",),
    "airrep.comparison": ("Comparison", "compare_evaluations"),
    "airrep.evaluating": ("evaluate_lds",),
    "airrep.evaluation": ("Evaluation", "read_evaluation"),
    "airrep.removals": ("evaluate_loo",),
    "airrep.stacking": ("learn_stack",),
    "airrep.warming": ("warm_up",),
    "airrep.warmup": ("Warmup", "open_warmup"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "METHODS",
    "AirRepError",
    "ArtifactError",
    "Attributor",
    "Comparison",
    "ConfigError",
    "Corpus",
    "DataError",
    "Draw",
    "Encoder",
    "Engine",
    "Evaluation",
    "Example",
    "FineTuneSettings",
    "GroupResult",
    "Groups",
    "Hit",
    "Hits",
    "InProcess",
    "Index",
    "LabelledInstance",
    "Labels",
    "LmSettings",
    "LocalProcesses",
    "MissingExtraError",
    "NotFittedError",
    "Pick",
    "Pool",
    "Pooling",
    "Provenance",
    "RayEngine",
    "SamplingSettings",
    "SelectionResult",
    "SubsetPlan",
    "TargetLM",
    "TopResult",
    "TrainingError",
    "TrainingSettings",
    "Warmup",
    "WhatIfResult",
    "__version__",
    "append",
    "build_index",
    "check_attributor",
    "classify",
    "compact",
    "compare_evaluations",
    "delete",
    "diagnose",
    "evaluate_lds",
    "evaluate_loo",
    "evaluate_selection",
    "fit_datamodels",
    "label",
    "lds",
    "learn_stack",
    "load_encoder",
    "load_lm",
    "make_attributor",
    "noise_ceiling",
    "normalise_losses",
    "open_index",
    "open_labels",
    "open_plan",
    "open_warmup",
    "paired",
    "pool_scores",
    "ranking_loss",
    "read_corpus",
    "read_evaluation",
    "read_groups",
    "read_result",
    "resample",
    "sample",
    "select",
    "spearman",
    "train_encoder",
    "warm_up",
    "write_evaluation_report",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'airrep' has no attribute '{name}'")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
