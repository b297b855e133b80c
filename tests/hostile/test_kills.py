"""A campaign of kills: every command that writes is killed at its changes of files, one after the other.

After each kill the old or the new version stands whole under the name; the same command, run again, succeeds, gives
the bytes of a run that nobody disturbed, and leaves nothing else behind. The points of a command are its changes,
and for a file that is opened also the file left empty or torn. The short form tries a few of them, the long one
(``AIRREP_HOSTILE=long``, ``make hostile``) a budget of each command, spread evenly over all; another
``AIRREP_HOSTILE_SEED`` takes others, and the table at the end says how many seeds try them all.
"""

import json
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from worlds.kills import children_seconds, in_child, kill_at, list_changes
from worlds.small_world import WORDED, make_corpus
from worlds.tiny_lms import tiny_lm
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld, make_plan
from worlds.training_world import planted, tiny_settings

from airrep.attributors.recipes import Channel, ChannelsSettings
from airrep.cli import app as cli
from airrep.corpus.corpus import Corpus
from airrep.encoder.load import load_encoder
from airrep.errors import AirRepError
from airrep.labels.farm import label
from airrep.labels.plan import open_plan
from airrep.labels.sampling import sample
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.planning.adapt import Adaptation
from airrep.planning.budget import LearnPlan
from airrep.runtime.artifacts import MANIFEST, read_manifest
from airrep.training.train import train_encoder

LONG = os.environ.get("AIRREP_HOSTILE") == "long"
SEED = int(os.environ.get("AIRREP_HOSTILE_SEED", "0"))
"""Takes other points."""
KILLS = 2
"""Kills of each command in the short form."""
CORE = ("index", "append", "delete", "compact", "label", "label that grows")
"""Commands that have three times as many."""
SLOW = {"adapt --labels", "index of channels", "label --command", "evaluate --lm", "compare", "adapt"}
"""Commands that have one kill there, as each takes seconds."""
PIECES = 3 if LONG else 1
"""Tests that share the kills of each command, so that processes end at the same time."""
BUDGET = 400
"""Kills of each command in the long form: at present at every point of all but those of BUDGETS."""
BUDGETS = {"adapt": 30}
"""Kills of commands that take longer: four CPU seconds for each run of ``adapt``."""
TORN = 7
"""Bytes that a torn file holds."""
CHANGING = (".steps.jsonl", "costs.jsonl")
"""Files that are never the same twice, with locks and times."""

Work = Callable[[], object]


class Operation(NamedTuple):
    """Work that writes below ``out``, and what is there before."""

    work: Work
    before: Sequence[Work] = ()
    again: Work | None = None
    """The work once more, where the same command would rightly refuse what it has made."""


def command(*arguments: str) -> Work:
    """A command of airrep, run in this process without a word; a failure is an error."""

    def run() -> None:
        sys.argv = ["airrep", *arguments]
        with quiet() as said:
            try:
                cli.main()
            except SystemExit as ended:
                if ended.code:
                    said.seek(0)
                    raise AssertionError(f"{' '.join(arguments)}: {said.read()}") from None

    return run


@contextmanager
def quiet() -> Iterator[Any]:
    """Take what is written to stdout and stderr into a file that no change counts."""
    import tempfile

    shown = sys.stdout, sys.stderr
    with tempfile.TemporaryFile("w+") as said:
        sys.stdout = sys.stderr = said
        try:
            yield said
        finally:
            sys.stdout, sys.stderr = shown


def replacing(*arguments: str, older: Sequence[str]) -> Operation:
    """A command that replaces what it made with other arguments before."""
    return Operation(command(*arguments, "--replace"), [command(*older)])


def written(*arguments: str) -> Operation:
    """A command whose result is refused when it is there already."""
    return Operation(command(*arguments), (), command(*arguments, "--replace"))


INDEX = ("index", "train.jsonl", "--out", "out/i", "--method", "tfidf", "--set", "shard_rows=16")
SMALL = ("index", "more.jsonl", "--out", "out/i", "--method", "tfidf", "--set", "shard_rows=16")
DRAWN = ("--instances", "1", "--train-count", "8", "--query-count", "2", "--subsets", "3", "--size", "4")
REMOVED = ("--instances", "1", "--train-count", "8", "--query-count", "3", "--removals", "4")
LABELS = ("--data", "train.jsonl", "--data", "queries.jsonl")
LEARNT = ("adapt", "train.jsonl", "--queries", "queries.jsonl", "--queries", "more.jsonl")
OUTSIDE = ("label", "plan", "train.jsonl", "--queries", "queries.jsonl", "--out", "out/l")
SELECTS = (
    *("evaluate", "index", "--queries", "asked.jsonl", "--lm", "lm", "--count", "3", "--by", "source"),
    *("--set", "max_new_tokens=2"),
)
TRAINER = "import sys; open(sys.argv[3], 'w').write('2.5\\n' * sum(1 for _ in open(sys.argv[2])))"
ADAPTED = LearnPlan(
    size=4, subsets=4, held_out_subsets=4, pool=16, held_out_pool=10, queries=5, held_out_queries=4, epochs=1,
    train_layers=1, steps=3, warms=True,
)  # fmt: skip
WARM = ("warmup", "train.jsonl", "--lm", "lm", "--out", "out/w", "--count", "4", "--set", "learning_rate=1e-2")


def make_labels(seeds: int = 1) -> Work:
    return lambda: label(open_plan("plan"), TRAIN, QUERIES, ToyWorld(), FINE_TUNE, "out/l", seeds=seeds)


def train() -> None:
    learn, unseen = [planted(1, "a", n=30, q=8, m=10, size=6)], planted(3, "h", n=30, q=8, m=10, size=6)
    train_encoder(learn, [unseen], "out/e", tiny_settings(Path(), steps=3, checkpoint_every=1, evaluate_every=2))


def save_encoder() -> None:
    if not Path("out/s").exists():
        load_encoder("start").save("out/s")


class Brief(Adaptation):
    """With two of the shipped channels: the others take time, and are written in the same way."""

    def _members(self, usable: Corpus) -> list[Channel]:
        return [
            one for one in ChannelsSettings(lm=self.lm.lm).channels if one.name in ("n-grams of words", "gradients")
        ]


def adapt() -> None:
    """As the command would, by a plan that is given, since one that is chosen differs with the machine's speed."""
    tuning = FineTuneSettings(epochs=1, learning_rate=1e-3)
    Brief(WORDED, LmSettings(lm="lm", device="cpu"), tuning, Path("out/a"), start="start").run(ADAPTED)


OPERATIONS = {
    "index": Operation(command(*INDEX)),
    "index that replaces": replacing(*INDEX, older=SMALL),
    "append": Operation(command("append", "out/i", "more.jsonl"), [command(*INDEX)]),
    "delete": Operation(command("delete", "out/i", "--where", 'source == "forum"'), [command(*INDEX)]),
    "compact": Operation(
        command("delete", "out/i", "--compact"), [command(*INDEX), command("delete", "out/i", "--id", "e1")]
    ),
    "top": written("top", "index", "queries.jsonl", "--out", "out/r"),
    "top that replaces": replacing(
        *("top", "index", "queries.jsonl", "--out", "out/r"), older=("top", "index", "more.jsonl", "--out", "out/r")
    ),
    "group": written("group", "index", "queries.jsonl", "--by", "source", "--out", "out/r"),
    "what-if": written("what-if", "index", "queries.jsonl", "--remove", 'source == "forum"', "--out", "out/r"),
    "select": written("select", "index", "queries.jsonl", "--count", "5", "--out", "out/picked.jsonl"),
    "clean": Operation(command("clean", "index", "--kind", "duplicate", "--lists", "out/lists")),
    "audit": written("audit", "index", "queries.jsonl", "--out", "out/r"),
    "mix": written("mix", "index", "queries.jsonl", "--by", "source", "--write", "yaml=out/mix.yaml"),
    "export": written("export", "index", "--to", "csv", "--out", "out/e.csv"),
    "export that replaces": replacing(
        *("export", "index", "--to", "embedding-atlas", "--out", "out/e.parquet"),
        older=("export", "index", "--to", "embedding-atlas", "--out", "out/e.parquet", "--where", 'source == "forum"'),
    ),
    "report": written("report", "run", "--out", "out/report.html"),
    "sample": Operation(command("sample", "train.jsonl", "--out", "out/p", *DRAWN)),
    "sample --write": Operation(command("sample", "train.jsonl", "--out", "out/p", *DRAWN, "--write", "out/files")),
    "label": Operation(make_labels()),
    "label that grows": Operation(make_labels(2), [make_labels()]),
    "warmup": Operation(command(*WARM, "--set", "checkpoints=1")),
    "warmup that replaces": replacing(*WARM, "--set", "seed=1", older=WARM),
    "train": Operation(train),
    "save an encoder": Operation(save_encoder),
    "evaluate": Operation(command("evaluate", "index", "--labels", "labels#0", *LABELS, "--out", "out/r")),
    "evaluate of removals": Operation(
        command("evaluate", "index", "--labels", "removed", *LABELS, "--set", "resamples=50", "--out", "out/r")
    ),
    "evaluate --queries": Operation(
        command("evaluate", "index", "--queries", "asked.jsonl", "--by", "source", "--out", "out/r")
    ),
    "evaluate --lm": Operation(command(*SELECTS, "--out", "out/r")),
    "compare": Operation(command("compare", "judged", "--out", "out/c")),
    "adapt --labels": Operation(
        command(*LEARNT, "--labels", "labels#0", "--held-out", "unseen#0", "--recipe", "tfidf.yaml", "--out", "out/s")
    ),
    "label --import": Operation(command(*OUTSIDE, "--import", "losses.npy")),
    "label --command": Operation(
        command(*OUTSIDE, "--command", f"{sys.executable} trainer.py {{train}} {{queries}} {{losses}}")
    ),
    "join": Operation(
        command("append", "out/i", "out/one", "out/two"),
        [command(*INDEX[:3], f"out/{part}", *INDEX[4:], "--part", f"{n}/2") for n, part in ((1, "one"), (2, "two"))],
    ),
    "index of gradients": Operation(command("index", "more.jsonl", "--method", "logra", "--lm", "lm", *SMALL[2:4])),
    "index that asks the LM again": Operation(
        command("index", "more.jsonl", "--method", "ekfac", "--lm", "lm", *SMALL[2:4])
    ),
    "index of channels": Operation(command("index", "more.jsonl", "--lm", "lm", "--recipe", "lm-whole", *SMALL[2:4])),
    "adapt": Operation(adapt),
    "evaluate --why": Operation(command("evaluate", "--why", "--labels", "labels#0", *LABELS, "--out", "out/r")),
    "datamodels": Operation(
        command("train", "--method", "datamodels", "labels#0", *LABELS, "--out", "out/d", "--set", "folds=3")
    ),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, an index, results, labels and models that the commands take."""
    folder = tmp_path_factory.mktemp("world")
    here = Path.cwd()
    os.chdir(folder)
    try:
        for name, corpus in (
            ("train", TRAIN),
            ("more", make_corpus(20, "more")),
            ("queries", QUERIES),
            ("worded", WORDED),
        ):
            corpus.to_jsonl(f"{name}.jsonl")
        Corpus.from_examples([query for query in QUERIES if query.source]).to_jsonl("asked.jsonl")
        tiny_lm(folder / "lm")
        tiny_settings(Path())
        make_plan(folder / "plan", subsets=9)
        label(open_plan("plan"), TRAIN, QUERIES, ToyWorld(), FINE_TUNE, "labels", seeds=2)
        command("index", "train.jsonl", "--out", "index", "--method", "tfidf")()
        command("top", "index", "queries.jsonl", "--out", "run")()
        command("index", "train.jsonl", "--out", "counted", "--method", "ngram")()
        command("evaluate", "index", "counted", "--labels", "labels#0", *LABELS, "--out", "judged")()
        sample(TRAIN, "other", open_plan("plan").settings, make_corpus(20, "more"))
        label(open_plan("other"), TRAIN, make_corpus(20, "more"), ToyWorld(), FINE_TUNE, "unseen")
        command(*("sample", "train.jsonl", "--queries", "queries.jsonl", "--out", "removals"), *REMOVED)()
        label(open_plan("removals"), TRAIN, QUERIES, ToyWorld(), FINE_TUNE, "removed", seeds=2)
        np.save("losses.npy", np.random.default_rng(0).normal(2, 0.1, (2, 9, 4)))
        Path("trainer.py").write_text(TRAINER)
        Path("tfidf.yaml").write_text("- method: tfidf\n")
    finally:
        os.chdir(here)
    return folder


def same(folder: Path) -> dict[str, bytes]:
    """Files below a folder with their bytes, but for those that differ from run to run."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    kept = {name: path for name, path in files.items() if path.name not in CHANGING}
    return {
        name: path.read_bytes() for name, path in kept.items() if not path.name.startswith((".lock", "times", "costs"))
    }


def leftovers(folder: Path) -> list[str]:
    found = (path.name for path in folder.rglob("*"))
    return [name for name in found if name.startswith(".airrep-") or name.endswith((".partial", ".tmp", ".swapped"))]


class Campaign:
    """The kills of one operation, in a folder of its own."""

    def __init__(self, operation: Operation, world: Path, folder: Path) -> None:
        self.operation, self.out, self._start = operation, world / "out", folder / "start"
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        for work in operation.before:
            work()
        shutil.copytree(self.out, self._start, symlinks=True)
        self.before = same(self.out)
        operation.work()  # in this process, so that children find all modules loaded
        self.after = same(self.out)
        self.reset()
        self.changes = list_changes(operation.work, self.out)
        assert same(self.out) == self.after, "the same work gives other bytes without any kill"

    def reset(self) -> None:
        shutil.rmtree(self.out)
        shutil.copytree(self._start, self.out, symlinks=True)

    def trials(self) -> list[tuple[int, int | None]]:
        """Each change, and how many bytes of a file that it opens are written."""
        found: list[tuple[int, int | None]] = []
        for number, change in enumerate(self.changes):
            found += [(number, torn) for torn in ((None, 0, TORN) if change.startswith("open") else (None,))]
        return found

    def failure(self, change: int, torn: int | None) -> str | None:
        """What is wrong after a kill; None if nothing is."""
        self.reset()
        where = f"killed at {change} ({self.changes[change]}, torn {torn})"
        if not kill_at(self.operation.work, self.out, change, torn):
            return f"{where}: it ended before"
        try:
            self._check_names()
        except (AirRepError, AssertionError) as error:
            return f"{where}: {error}"
        finished = same(self.out) == self.after
        again = self.operation.again if finished and self.operation.again else self.operation.work
        status = os.waitstatus_to_exitcode(os.waitpid(in_child(again), 0)[1])
        if status and not finished:
            return f"{where}: run again, it ended with {status}"
        if same(self.out) != self.after:
            other = {name for name, content in same(self.out).items() ^ self.after.items()}
            return f"{where}: run again, it made something else: {sorted(other)}"
        if not finished and leftovers(self.out):
            return f"{where}: run again, it left {leftovers(self.out)}"
        return None

    def _check_names(self) -> None:
        """Under each name that is not of unfinished work there is the old version, or the new one, and it is whole."""
        for path in self.out.iterdir():
            if path.name.startswith(".") or path.name.endswith(".partial"):
                continue
            if path.is_file():
                assert path.read_bytes() in (self.before.get(path.name), self.after.get(path.name)), (
                    f"{path.name}: torn"
                )
            elif (path / MANIFEST).is_file():
                read_manifest(path, verify=True)
                manifest = f"{path.name}/{MANIFEST}"
                whole = (self.before.get(manifest), self.after.get(manifest))
                assert (path / MANIFEST).read_bytes() in whole, f"{path.name}: neither the old nor the new version"
        gone = {name.partition("/")[0] for name in self.before} - {path.name for path in self.out.iterdir()}
        assert not gone, f"nothing is left under {sorted(gone)}"


def spread(points: int, budget: int, seed: int) -> range:
    """Points spread evenly, as many as the budget allows; consecutive seeds, one for each of a step, take them all."""
    step = max(-(-points // budget), 1)
    return range(seed % step, points, step)


@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("name", OPERATIONS)
def test_kills(
    name: str,
    piece: int,
    world: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.chdir(world)
    monkeypatch.setattr("airrep.training.train.RESAMPLES", 40)
    monkeypatch.setattr(sys, "argv", ["airrep"])
    begun = children_seconds()
    campaign = Campaign(OPERATIONS[name], world, tmp_path)
    trials = campaign.trials()
    few = 1 if name in SLOW else 3 * KILLS if name in CORE else KILLS
    budget = BUDGETS.get(name, BUDGET) if LONG else few
    chosen = spread(len(trials), budget, SEED + zlib.crc32(name.encode()))
    mine = chosen[piece::PIECES]
    failures = [failure for number in mine if (failure := campaign.failure(*trials[number])) is not None]
    told = {"points": len(trials), "seeds": chosen.step, "tried": len(mine), "failed": len(failures)}
    record_property("kills", {"name": name, **told, "seconds": children_seconds() - begun})
    assert not failures, json.dumps(failures, indent=1)


@pytest.mark.parametrize(("points", "budget"), [(1, 3), (7, 3), (91, 400), (566, 30)])
def test_seeds_in_a_row_try_every_point_once(points: int, budget: int) -> None:
    step = spread(points, budget, 0).step
    chosen = [spread(points, budget, seed) for seed in range(5, 5 + step)]
    assert sorted(point for some in chosen for point in some) == list(range(points))
    assert all(len(some) <= budget for some in chosen)
