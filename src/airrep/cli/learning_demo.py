"""The learning demo: the whole loop with a language model that comes along."""

import os
from pathlib import Path

from airrep.cli.demo import DATA
from airrep.cli.show.console import say
from airrep.cli.show.learning import StepMeter, TaskMeter, print_verdict
from airrep.corpus.corpus import read_corpus
from airrep.encoder.folders import UNTRAINED
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.planning.adapt import Adaptation
from airrep.planning.budget import LearnPlan
from airrep.runtime.processes import LocalProcesses

BUNDLED_LM = Path(__file__).parents[1] / "models" / "tiny-lm"
MOST_WORKERS = 4
LONGEST = 400
"""Most characters of an example: short ones are quick to fine-tune on."""
PLAN = LearnPlan(
    size=32,
    subsets=100,
    held_out_subsets=30,
    pool=800,
    queries=100,
    held_out_pool=200,
    held_out_queries=60,
    epochs=2,
    train_layers=1,
    steps=30,
)
TUNING = FineTuneSettings(epochs=PLAN.epochs, learning_rate=2e-4, batch_examples=8)


def run_learning_demo(out: Path) -> None:
    """Fine-tune a small LM on random subsets, train the encoder to rank them, and judge it on unseen examples.

    An interrupted demo resumes from what is below *out*.
    """
    everything = read_corpus(DATA / "train.jsonl")
    corpus = everything.take([row for row, one in enumerate(everything) if len(one.prompt + one.response) <= LONGEST])
    workers = min(MOST_WORKERS, os.cpu_count() or 1)
    tunes = PLAN.subsets + 2 * PLAN.held_out_subsets
    say(
        f"{len(corpus):,} short examples of 5 open data sets; a language model of 2.6M parameters is fine-tuned on "
        f"{tunes} random subsets of {PLAN.size}, {workers} at a time.\n"
    )
    adaptation = Adaptation(
        corpus,
        LmSettings(lm=str(BUNDLED_LM)),
        TUNING,
        out,
        start=UNTRAINED,
        engine=LocalProcesses(workers),
        workers=workers,
        on_task=TaskMeter(),
        on_step=StepMeter(PLAN.steps),
    )
    print_verdict(adaptation.run(PLAN, say))
    say(
        f"\nThat was the whole loop: sample, label, train, judge; all of it is in {out}. So few subsets rarely teach\n"
        "an encoder more than it knew; 1,200 of them made the shipped one (see its model card). For your own data and\n"
        "language model:\n"
        "  airrep adapt YOUR.jsonl --lm MODEL --budget 2h --out runs/adapted"
    )
