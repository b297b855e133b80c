"""Public names for type checkers and editors: those of the table in ``__init__.py``."""

from airrep import errors as errors
from airrep import metrics as metrics
from airrep.answers.audit import audit as audit
from airrep.answers.clean import clean as clean
from airrep.answers.mix import mix as mix
from airrep.answers.verdict import top as top
from airrep.attributors.base import Attributor as Attributor
from airrep.attributors.conformance import check_attributor as check_attributor
from airrep.attributors.methods import make_attributor as make_attributor
from airrep.corpus.corpus import Corpus as Corpus
from airrep.corpus.corpus import Example as Example
from airrep.corpus.corpus import read_corpus as read_corpus
from airrep.errors import AirRepError as AirRepError
from airrep.evaluation.classify import classify as classify
from airrep.evaluation.comparison import compare_evaluations as compare_evaluations
from airrep.evaluation.lds import evaluate_lds as evaluate_lds
from airrep.evaluation.prove import prove as prove
from airrep.index.building import build_index as build_index
from airrep.index.index import Index as Index
from airrep.index.selection import select as select
from airrep.labels.farm import label as label
from airrep.labels.sampling import sample as sample
from airrep.lm.model import load_lm as load_lm
from airrep.lm.trainer_records.callback import AttributionCallback as AttributionCallback
from airrep.lm.warmup import warm_up as warm_up
from airrep.opening import open as open
from airrep.planning.judge import judge as judge
from airrep.reports.results import write_report as write_report
from airrep.training.linear.recipe import adapt as adapt
from airrep.training.train import train_encoder as train_encoder

__version__: str
