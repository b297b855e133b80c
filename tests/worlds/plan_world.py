"""Trials with made-up rates, and what is planned from them."""

from worlds.small_world import make_corpus

from airrep.corpus.corpus import Corpus
from airrep.lm.settings import LmSettings
from airrep.planning.plan_request import ENCODER, Measures, PlanRequest
from airrep.planning.trials import LabelTrial, MethodTrial, Repeats, TrainingTrial

TEXTS: Corpus = make_corpus(100)
WISH = PlanRequest(
    TEXTS, 1000, LmSettings(lm="small"), methods=("logra",), subsets=60, size=10, queries=5, steps=7, workers=2
)


def _repeats(seconds: float) -> Repeats:
    """So many seconds for each token, of 20 in each example."""
    return Repeats((100 * seconds, 200 * seconds, 300 * seconds), (100.0, 200.0, 300.0), (5, 10, 15))


def _trial(seconds: float) -> tuple[Repeats, tuple[int, ...], float, str]:
    """What every trial has, of so many seconds for each token."""
    return _repeats(seconds), (10, 30, 20, 20), 1e9, "cpu"


ENCODING = MethodTrial(*_trial(0.001), fits=((160.0, 0.0), (320.0, 0.0)), bytes_per_example=1164.0, row_bytes=1536.0)
GRADIENTS = MethodTrial(
    *_trial(0.004),
    fits=((160.0, 1.8), (1280.0, 7.4)),
    check_seconds=0.01,
    sample=500,
    bytes_per_example=4620.0,
    store_bytes_per_example=6148.0,
    row_bytes=6144.0,
    parameters=7,
)
LABELS = LabelTrial(*_trial(0.002), losses=_repeats(0.0005), parameters=7)
TRAINING = TrainingTrial(*_trial(0.003), layers=6)
MEASURES = Measures({ENCODER: ENCODING, "logra": GRADIENTS}, LABELS, TRAINING)
