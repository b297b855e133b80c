"""The learning demo: the whole loop with a language model that comes along."""

from pathlib import Path

from airrep.cli.demo import DATA
from airrep.cli.show.console import say
from airrep.cli.show.evaluations import print_adapted
from airrep.cli.show.learning import TaskMeter
from airrep.corpus.corpus import read_corpus
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.planning.adapt import Adaptation
from airrep.planning.budget import LearnPlan
from airrep.runtime.metering import cores
from airrep.runtime.processes import LocalProcesses

BUNDLED_LM = Path(__file__).parents[1] / "models" / "tiny-lm"
MOST_WORKERS = 4
LONGEST = 400
"""Most characters of an example: short ones are quick to fine-tune on."""
PLAN = LearnPlan(
    size=32,
    subsets=0,
    held_out_subsets=50,
    pool=0,
    queries=0,
    held_out_pool=440,
    held_out_queries=120,
    epochs=2,
    steps=0,
    warms=True,
)
TUNING = FineTuneSettings(epochs=PLAN.epochs, learning_rate=2e-4, batch_examples=8)


def run_learning_demo(out: Path) -> None:
    """Fine-tune a small LM on random subsets, learn from the losses how to weigh channels, judge on unseen examples.

    An interrupted demo resumes from what is below *out*.
    """
    everything = read_corpus(DATA / "train.jsonl")
    corpus = everything.take([row for row, one in enumerate(everything) if len(one.prompt + one.response) <= LONGEST])
    workers = min(MOST_WORKERS, cores())
    say(
        f"{len(corpus):,} short examples of 5 open data sets; a language model of 2.6M parameters is fine-tuned on "
        f"{2 * PLAN.held_out_subsets} random subsets of {PLAN.size}, {workers} at a time.\n"
    )
    adaptation = Adaptation(
        corpus,
        LmSettings(lm=str(BUNDLED_LM)),
        TUNING,
        out,
        engine=LocalProcesses(workers),
        workers=workers,
        tell=say,
        on_task=TaskMeter(),
    )
    made = adaptation.run(PLAN)
    print_adapted(made)
    say(
        f"\nThat was the whole loop: sample, label, learn, judge; all of it is in {out}. With more time an encoder is\n"
        "trained too. For your own data and language model:\n"
        "  airrep adapt YOUR.jsonl --lm MODEL --budget 30m --out runs/adapted"
    )
