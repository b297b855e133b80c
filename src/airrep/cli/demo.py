"""The demos, on data that come with airrep."""

from pathlib import Path

from airrep.answers.verdict import top
from airrep.cli.show.console import say
from airrep.cli.show.results import print_groups, print_top
from airrep.corpus.corpus import Example, read_corpus
from airrep.index.building import build_index
from airrep.index.results.result import Result
from airrep.index.selection import select
from airrep.reports.results import write_report

DATA = Path(__file__).parents[1] / "data"
PICKED = 100
ASKED = "Can I eat zucchini raw?"
BUNDLED_LM = Path(__file__).parents[1] / "models" / "tiny-lm"
MOST_WORKERS = 4
LONGEST = 400
"""Most characters of an example of the learning demo: short ones are quick to fine-tune on."""
ANSWER, BETTER = "No, zucchini should be cooked before eating.", "Yes, zucchini can be eaten raw."


def run_demo(out: Path, *, replace: bool = False) -> None:
    """Index the bundled training data and ask the index; everything is written below *out*."""
    train, queries = read_corpus(DATA / "train.jsonl"), read_corpus(DATA / "queries.jsonl")
    say(f"1. Index {len(train):,} training examples of 5 open data sets into {out / 'index'}")
    index = build_index(train, out / "index", replace=replace, progress=True)
    if index.attributor.caution:
        say(index.attributor.caution)
    say("\n2. A model that was trained on this data says that zucchini must be cooked. Which examples taught it that?")
    print_top(top(index, prompt=ASKED, response=ANSWER, better=[Example(ASKED, BETTER)], k=2))
    say(f"\n3. Which data set helps {len(queries)} queries most?")
    print_groups(index.group_scores(queries, "source"), index.attributor.caution)
    say(f"\n4. Pick the {PICKED} training examples that suit all {len(queries)} queries best")
    select(index, queries, PICKED).save(out / "selected.jsonl", replace=True)
    say(f"\n5. Write the report for all {len(queries)} queries")
    results: dict[str, Result] = {
        "top": index.top(queries, k=5),
        "least": index.top(queries, k=5, least=True),
        "by-source": index.group_scores(queries, "source"),
    }
    for name, result in results.items():
        result.save(out / name, replace=replace or (out / name).exists())
    page = write_report(list(results.values()), out / "report.html", title="airrep demo", replace=True)
    say(f"""
Made here:
  {page}   open it in a browser
  {out / "selected.jsonl"}   the picks, each with its reason
  {out / "index"}   the index

Next:
  airrep top {out / "index"} --prompt "{ASKED}" --response "{ANSWER}" -k 3
  airrep serve {out / "index"} --queries {DATA / "queries.jsonl"}   a page (extra: explorer)
  airrep what-if {out / "index"} {DATA / "queries.jsonl"} --remove 'source == "gsm8k"'
  airrep index YOUR.jsonl --out runs/index""")


def run_learning_demo(out: Path) -> None:
    """Fine-tune a small LM on random subsets, learn from the losses how to weigh channels, judge on unseen examples.

    An interrupted demo resumes from what is below *out*.
    """
    from airrep.cli.show.evaluations import print_adapted
    from airrep.cli.show.learning import TaskMeter
    from airrep.lm.settings import FineTuneSettings, LmSettings
    from airrep.planning.adapt import Adaptation
    from airrep.planning.budget import LearnPlan
    from airrep.runtime.engine import LocalProcesses
    from airrep.runtime.metering import cores

    plan = LearnPlan(
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
    everything = read_corpus(DATA / "train.jsonl")
    corpus = everything.take([row for row, one in enumerate(everything) if len(one.prompt + one.response) <= LONGEST])
    workers = min(MOST_WORKERS, cores())
    say(
        f"airrep fine-tunes a small language model on {2 * plan.held_out_subsets} random subsets of {len(corpus):,} "
        f"examples from 5 open data sets: {plan.size} examples in each subset, {workers} fine-tunes at a time.\n"
    )
    adaptation = Adaptation(
        corpus,
        LmSettings(lm=str(BUNDLED_LM)),
        FineTuneSettings(epochs=plan.epochs, learning_rate=2e-4, batch_examples=8),
        out,
        engine=LocalProcesses(workers),
        workers=workers,
        tell=say,
        on_task=TaskMeter(),
    )
    print_adapted(adaptation.run(plan))
    say(
        f"\nThat was the whole loop: sample, label, learn, judge; all of it is in {out}. With more time an encoder is\n"
        "trained too. For your own data and language model:\n"
        "  airrep adapt YOUR.jsonl --lm MODEL --budget 30m --out runs/adapted"
    )
