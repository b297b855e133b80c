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
    from airrep.attributors.base import Attributor
    from airrep.attributors.conformance import check_attributor
    from airrep.attributors.methods import METHODS, make_attributor
    from airrep.corpus.corpus import Corpus, Example, read_corpus
    from airrep.encoder.load import Encoder, load_encoder
    from airrep.errors import (
        AirRepError,
        ArtifactError,
        ConfigError,
        DataError,
        MissingExtraError,
        NotFittedError,
        TrainingError,
    )
    from airrep.evaluation.classify import classify
    from airrep.evaluation.comparison import Comparison, compare_evaluations
    from airrep.evaluation.diagnosis.diagnosis import diagnose
    from airrep.evaluation.lds import evaluate_lds
    from airrep.evaluation.loo import evaluate_loo
    from airrep.evaluation.result import Evaluation, read_evaluation
    from airrep.evaluation.select.select import evaluate_selection
    from airrep.evaluation.statistics.ceilings import noise_ceiling
    from airrep.evaluation.statistics.metrics import lds, paired, spearman
    from airrep.index.building import build_index
    from airrep.index.editing import append, compact, delete
    from airrep.index.index import Index, open_index, read_groups
    from airrep.index.picking import Draw, Pick, SelectionResult, resample, select
    from airrep.index.results import GroupResult, Hit, Hits, Provenance, TopResult, WhatIfResult, read_result
    from airrep.labels.farm import label
    from airrep.labels.instance import LabelledInstance
    from airrep.labels.labels import Labels, open_labels
    from airrep.labels.plan import SamplingSettings, SubsetPlan, open_plan
    from airrep.labels.sampling import sample
    from airrep.lm.model import TargetLM, load_lm
    from airrep.lm.settings import FineTuneSettings, LmSettings
    from airrep.lm.warming import warm_up
    from airrep.lm.warmup import Warmup, open_warmup
    from airrep.reports.evaluations import write_evaluation_report
    from airrep.reports.results import write_report
    from airrep.runtime.engine import Engine, InProcess
    from airrep.runtime.processes import LocalProcesses
    from airrep.runtime.ray_engine import RayEngine
    from airrep.scoring.groups import Groups
    from airrep.scoring.pooling import Pool, Pooling, pool_scores
    from airrep.training.linear.datamodels import fit_datamodels
    from airrep.training.linear.stack import learn_stack
    from airrep.training.ranking_loss import normalise_losses, ranking_loss
    from airrep.training.settings import TrainingSettings
    from airrep.training.train import train_encoder

_HOMES = {
    "airrep.attributors.methods": ("METHODS", "make_attributor"),
    "airrep.attributors.base": ("Attributor",),
    "airrep.attributors.conformance": ("check_attributor",),
    "airrep.index.building": ("build_index",),
    "airrep.corpus.corpus": ("Corpus", "Example", "read_corpus"),
    "airrep.index.editing": ("append", "compact", "delete"),
    "airrep.encoder.load": ("Encoder", "load_encoder"),
    "airrep.errors": (
        "AirRepError",
        "ArtifactError",
        "ConfigError",
        "DataError",
        "MissingExtraError",
        "NotFittedError",
        "TrainingError",
    ),
    "airrep.runtime.engine": ("Engine", "InProcess"),
    "airrep.labels.farm": ("label",),
    "airrep.scoring.groups": ("Groups",),
    "airrep.index.index": ("Index", "open_index", "read_groups"),
    "airrep.scoring.pooling": ("Pool", "Pooling", "pool_scores"),
    "airrep.reports.results": ("write_report",),
    "airrep.index.results": ("GroupResult", "Hit", "Hits", "Provenance", "TopResult", "WhatIfResult", "read_result"),
    "airrep.index.picking": ("Draw", "Pick", "SelectionResult", "resample", "select"),
    "airrep.labels.instance": ("LabelledInstance",),
    "airrep.labels.labels": ("Labels", "open_labels"),
    "airrep.lm.model": ("TargetLM", "load_lm"),
    "airrep.lm.settings": ("FineTuneSettings", "LmSettings"),
    "airrep.runtime.processes": ("LocalProcesses",),
    "airrep.evaluation.statistics.ceilings": ("noise_ceiling",),
    "airrep.evaluation.statistics.metrics": ("lds", "paired", "spearman"),
    "airrep.labels.plan": ("SamplingSettings", "SubsetPlan", "open_plan"),
    "airrep.training.ranking_loss": ("normalise_losses", "ranking_loss"),
    "airrep.runtime.ray_engine": ("RayEngine",),
    "airrep.labels.sampling": ("sample",),
    "airrep.training.settings": ("TrainingSettings",),
    "airrep.training.train": ("train_encoder",),
    "airrep.training.linear.datamodels": ("fit_datamodels",),
    "airrep.evaluation.classify": ("classify",),
    "airrep.evaluation.diagnosis.diagnosis": ("diagnose",),
    "airrep.evaluation.select.select": ("evaluate_selection",),
    "airrep.reports.evaluations": ("write_evaluation_report",),
    "airrep.evaluation.comparison": ("Comparison", "compare_evaluations"),
    "airrep.evaluation.lds": ("evaluate_lds",),
    "airrep.evaluation.result": ("Evaluation", "read_evaluation"),
    "airrep.evaluation.loo": ("evaluate_loo",),
    "airrep.training.linear.stack": ("learn_stack",),
    "airrep.lm.warming": ("warm_up",),
    "airrep.lm.warmup": ("Warmup", "open_warmup"),
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
