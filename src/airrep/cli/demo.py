"""The demo: the whole path on real data that comes with airrep."""

from pathlib import Path

from airrep.answers.spread import beside_spread
from airrep.cli.show.console import Meter, say
from airrep.cli.show.results import print_groups, print_top
from airrep.corpus.corpus import Corpus, read_corpus
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.index.selection.picking import select
from airrep.reports.results import write_report

DATA = Path(__file__).parents[1] / "data"
SHOWN = 3
PICKED = 100


def run_demo(out: Path, *, replace: bool = False) -> None:
    """Index the bundled training data and ask the index; everything is written below *out*."""
    train, queries = read_corpus(DATA / "train.jsonl"), read_corpus(DATA / "queries.jsonl")
    say(f"1. Index {len(train):,} training examples of 5 open data sets into {out / 'index'}")
    with Meter("encoding") as meter:
        index = build_index(train, out / "index", replace=replace, progress=meter)
    if index.attributor.caution:
        say(index.attributor.caution)
    say(f"\n2. Which training examples help these queries most? ({SHOWN} of {len(queries)} queries)")
    shown = _spread(queries)
    print_top(beside_spread(index, index.top(shown, k=5)))
    say("\n3. Which data set helps each of them most?")
    print_groups(index.group_scores(shown, "source"), index.attributor.caution)
    say(f"\n4. Pick the {PICKED} training examples that suit all {len(queries)} queries best")
    select(index, queries, PICKED).save(out / "selected.jsonl", replace=True)
    say(f"\n5. Write the report for all {len(queries)} queries")
    page = _write_report(index, queries, out, replace)
    say(_ending(out, page))


def _spread(queries: Corpus) -> Corpus:
    """A few queries of different data sets, which come one after another in the file."""
    step = len(queries) // SHOWN
    return queries.take(range(step // 2, step // 2 + step * SHOWN, step))


def _write_report(index: Index, queries: Corpus, out: Path, replace: bool) -> Path:
    results = {
        "top": index.top(queries, k=5),
        "least": index.top(queries, k=5, least=True),
        "by-source": index.group_scores(queries, "source"),
    }
    for name, result in results.items():
        result.save(out / name, replace=replace or (out / name).exists())
    return write_report(list(results.values()), out / "report.html", title="airrep demo", replace=True)


def _ending(out: Path, page: Path) -> str:
    return f"""
Made here:
  {page}   open it in a browser
  {out / "selected.jsonl"}   the picks, each with its reason
  {out / "index"}   the index

Next:
  airrep top {out / "index"} --prompt "What is 12 times 9?" --response "12 times 9 is 108." -k 3
  airrep serve {out / "index"} --queries {DATA / "queries.jsonl"}   a page (extra: explorer)
  airrep what-if {out / "index"} {DATA / "queries.jsonl"} --remove 'source == "gsm8k"'
  airrep index YOUR.jsonl --out runs/index"""
