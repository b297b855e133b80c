"""Trials with made-up rates, and what is planned from them."""

from dataclasses import replace

from worlds.small_world import make_corpus

from airrep.corpus.corpus import Corpus
from airrep.lm.settings import LmSettings
from airrep.planning.plan_request import ENCODER, Measures, PlanRequest
from airrep.planning.trials import Repeats, Trial

TEXTS: Corpus = make_corpus(100)
WISH = PlanRequest(
    TEXTS, 1000, LmSettings(lm="small"), methods=("logra",), subsets=60, size=10, queries=5, steps=7, workers=2
)


def _trial(seconds: float, **more: object) -> Trial:
    """So many seconds for each token, of 20 in each example."""
    repeats = Repeats((100 * seconds, 200 * seconds, 300 * seconds), (100.0, 200.0, 300.0), (5, 10, 15))
    made = Trial(repeats, (10, 30, 20, 20), 1e9, "cpu")
    return replace(made, **more)


ENCODING = _trial(0.001, fits=((160.0, 0.0), (320.0, 0.0)), bytes_per_example=1164.0, row_bytes=1536.0)
GRADIENTS = _trial(
    0.004,
    fits=((160.0, 1.8), (1280.0, 7.4)),
    check_seconds=0.01,
    sample=500,
    bytes_per_example=4620.0,
    store_bytes_per_example=6148.0,
    row_bytes=6144.0,
    parameters=7,
)
LABELS = _trial(0.002, others=_trial(0.0005).repeats, parameters=7)
TRAINING = _trial(0.003, layers=6, others=Repeats((1.0,), (100.0,), (5,)))
MEASURES = Measures({ENCODER: ENCODING, "logra": GRADIENTS}, LABELS, TRAINING)
