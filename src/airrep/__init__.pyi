"""Public names for type checkers and editors: those of the table in ``__init__.py``."""

from airrep import errors as errors
from airrep import metrics as metrics
from airrep.answers.audit import audit as audit
from airrep.answers.clean import clean as clean
from airrep.answers.explain import explain as explain
from airrep.answers.harm import harmful as harmful
from airrep.answers.harm import top_of_set as top_of_set
from airrep.answers.mix import mix as mix
from airrep.answers.reading import read_result as read_result
from airrep.attributors.base import Attributor as Attributor
from airrep.attributors.conformance import check_attributor as check_attributor
from airrep.attributors.methods import METHODS as METHODS
from airrep.attributors.methods import make_attributor as make_attributor
from airrep.corpus.corpus import Corpus as Corpus
from airrep.corpus.corpus import Example as Example
from airrep.corpus.corpus import read_corpus as read_corpus
from airrep.corpus.originals import take_records as take_records
from airrep.encoder.base import Encoder as Encoder
from airrep.encoder.load import load_encoder as load_encoder
from airrep.errors import (
    AirRepError as AirRepError,
)
from airrep.errors import (
    ArtifactError as ArtifactError,
)
from airrep.errors import (
    ConfigError as ConfigError,
)
from airrep.errors import (
    DataError as DataError,
)
from airrep.errors import (
    MissingExtraError as MissingExtraError,
)
from airrep.errors import (
    NotFittedError as NotFittedError,
)
from airrep.errors import (
    TrainingError as TrainingError,
)
from airrep.evaluation.classify import classify as classify
from airrep.evaluation.comparison import Comparison as Comparison
from airrep.evaluation.comparison import compare_evaluations as compare_evaluations
from airrep.evaluation.diagnosis.diagnosis import diagnose as diagnose
from airrep.evaluation.lds import evaluate_lds as evaluate_lds
from airrep.evaluation.loo import evaluate_loo as evaluate_loo
from airrep.evaluation.proof.prove import prove as prove
from airrep.evaluation.result import Evaluation as Evaluation
from airrep.evaluation.result import read_evaluation as read_evaluation
from airrep.evaluation.select.select import evaluate_selection as evaluate_selection
from airrep.evaluation.statistics.ceilings import noise_ceiling as noise_ceiling
from airrep.evaluation.statistics.metrics import lds as lds
from airrep.evaluation.statistics.metrics import paired as paired
from airrep.evaluation.statistics.metrics import spearman as spearman
from airrep.evaluation.statistics.rank_labels import normalise_losses as normalise_losses
from airrep.index.building import build_index as build_index
from airrep.index.editing import append as append
from airrep.index.editing import compact as compact
from airrep.index.editing import delete as delete
from airrep.index.index import Index as Index
from airrep.index.index import open_index as open_index
from airrep.index.results.hits import Hit as Hit
from airrep.index.results.hits import Hits as Hits
from airrep.index.results.kinds import GroupResult as GroupResult
from airrep.index.results.kinds import TopResult as TopResult
from airrep.index.results.kinds import WhatIfResult as WhatIfResult
from airrep.index.results.provenance import Provenance as Provenance
from airrep.index.selection.picking import resample as resample
from airrep.index.selection.picking import select as select
from airrep.index.selection.picks import Draw as Draw
from airrep.index.selection.picks import Pick as Pick
from airrep.index.selection.picks import SelectionResult as SelectionResult
from airrep.labels.farm import label as label
from airrep.labels.instance import LabelledInstance as LabelledInstance
from airrep.labels.labels import Labels as Labels
from airrep.labels.labels import open_labels as open_labels
from airrep.labels.outside.command import label_by_command as label_by_command
from airrep.labels.outside.imported import import_labels as import_labels
from airrep.labels.plan import SamplingSettings as SamplingSettings
from airrep.labels.plan import SubsetPlan as SubsetPlan
from airrep.labels.plan import open_plan as open_plan
from airrep.labels.sampling import sample as sample
from airrep.lm.model import TargetLM as TargetLM
from airrep.lm.model import load_lm as load_lm
from airrep.lm.settings import FineTuneSettings as FineTuneSettings
from airrep.lm.settings import LmSettings as LmSettings
from airrep.lm.trainer.callback import AttributionCallback as AttributionCallback
from airrep.lm.trainer.record import read_training_record as read_training_record
from airrep.lm.trainer.training import read_training as read_training
from airrep.lm.warmup import Warmup as Warmup
from airrep.lm.warmup import open_warmup as open_warmup
from airrep.lm.warmup import warm_up as warm_up
from airrep.planning.judging.judge import judge as judge
from airrep.reports.evaluations import write_evaluation_report as write_evaluation_report
from airrep.reports.results import write_report as write_report
from airrep.runtime.engine import Engine as Engine
from airrep.runtime.engine import InProcess as InProcess
from airrep.runtime.processes import LocalProcesses as LocalProcesses
from airrep.runtime.ray_engine import RayEngine as RayEngine
from airrep.scoring.groups import Groups as Groups
from airrep.scoring.groups import read_groups as read_groups
from airrep.scoring.pooling import Pool as Pool
from airrep.scoring.pooling import Pooling as Pooling
from airrep.scoring.pooling import pool_scores as pool_scores
from airrep.training.linear.datamodels import fit_datamodels as fit_datamodels
from airrep.training.linear.stack import learn_stack as learn_stack
from airrep.training.ranking_loss import ranking_loss as ranking_loss
from airrep.training.settings import TrainingSettings as TrainingSettings
from airrep.training.train import train_encoder as train_encoder

__version__: str
