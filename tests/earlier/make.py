"""Make `artifacts.tar.xz`, with the package as it was before its modules moved into sub-packages.

    PYTHONPATH=BEFORE/src:BEFORE/tests OMP_NUM_THREADS=1 python make.py

BEFORE is a checkout of commit ecd402d. Everything runs from within one folder, and models have names of the Hub, so
that no path of the machine is written down. What an interruption leaves, X.partial, is kept as X.unfinished, without
its lock: names that the repository does not ignore.
"""

import contextlib
import json
import os
import pkgutil
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["COLUMNS"] = "100"
os.environ["AIRREP_CACHE"] = tempfile.mkdtemp()

import torch
from airrep.bert import BertShape, SentenceBert
from airrep.checkpoints import Checkpoint
from airrep.executor import InProcess
from airrep.exports import write_sentence_transformer
from airrep.model_folders import Card
from test_artifacts import (
    ARCHIVE,
    NEVER_THE_SAME,
    UNFINISHED,
    arithmetic,
    ask,
    decided,
    fetch,
    last_line,
    run,
    tree,
    work_done,
)
from tiny_bert import WORDS, tiny_tokenizer
from tiny_lms import tiny_lm

import airrep
from airrep.corpus import read_corpus

SEVERAL = ("--instances", "3", "--held-out", "2", "--train-count", "12", "--query-count", "4", "--subsets", "8")
TUNING = (
    *("--set", "epochs=1", "--set", "learning_rate=1e-2"),
    *("--set", "precision=float32", "--set", "device=cpu"),
)
JUDGED = ("--data", "train.jsonl", "--resamples", "50")
TRAINING = (
    *("labels#2", "--held-out", "labels#0", "--test", "labels#1", "--data", "train.jsonl"),
    *("--start", "example/encoder", "--train-layers", "1", "--steps", "6", "--device", "cpu"),
    *("--set", "warmup_steps=1", "--set", "evaluate_every=2", "--set", "checkpoint_every=2"),
    *(
        "--set",
        "learning_rate=1e-2",
        "--set",
        "seed=1",
        "--set",
        "queries_per_step=4",
        "--set",
        "subsets_per_step=8",
        "--set",
        "initial_scale=2",
    ),
)
PLAIN = ("--encoder", "example/encoder", "--precision", "float32", "--device", "cpu")
SELECTING = ("--queries", "queries.jsonl", "--lm", "example/lm", "--count", "3", "--max-new-tokens", "4", *TUNING)
"""Settings that several commands share."""


def do(*words: str) -> str:
    code, out, err = run(*words)
    assert code == 0, (out, err)
    return out


class Cut(BaseException):
    """Stands for a process that is killed."""


def cut_after(count: int, work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work; the call after so many ends the process, as it were."""
    calls = iter(range(count))

    def limited(*values: Any, **named: Any) -> Any:
        if next(calls, None) is None:
            raise Cut
        return work(*values, **named)

    return limited


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    try:
        yield
    except Cut:
        return
    raise AssertionError("was not interrupted")


def write_data() -> None:
    """The shortest examples of each source of the shipped data, with ids, labels and sources."""
    shipped = Path(airrep.__file__).parent / "data"
    shutil.copy(shipped / "LICENSES.md", "LICENSES.md")
    for name, count in (("train", 10), ("queries", 1), ("texts", 16)):
        records = [
            json.loads(line)
            for line in (shipped / ("queries.jsonl" if name == "queries" else "train.jsonl"))
            .read_text("utf-8")
            .splitlines()
        ]
        by_source: dict[str, list[Any]] = {}
        for record in sorted(records, key=lambda record: (len(record["prompt"] + record["response"]), record["id"])):
            by_source.setdefault(record["source"], []).append(record)
        chosen = [record for source in sorted(by_source) for record in by_source[source][:count]]
        chosen.sort(key=lambda record: record["id"])
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in chosen]
        Path(f"{name}.jsonl").write_text("".join(lines), "utf-8")
        if name == "train":
            Path("first.jsonl").write_text("".join(lines[:30]), "utf-8")
            Path("more.jsonl").write_text("".join(lines[30:40]), "utf-8")
            Path("last.jsonl").write_text("".join(lines[40:]), "utf-8")


def write_models() -> None:
    """A language model of bytes and an encoder of letters, of random weights and a few thousand parameters."""
    Path("models").mkdir()
    shape = {"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "num_key_value_heads": 1}
    tiny_lm(Path("models/lm"), max_position_embeddings=512, tie_word_embeddings=True, **shape)
    words = [*WORDS[:8], *(start + letter for letter in "abcdefghijklmnopqrstuvwxyz0123456789" for start in ("", "##"))]
    tokenizer = tiny_tokenizer()
    tokenizer["model"]["vocab"] = {word: number for number, word in enumerate(words)}
    bert = BertShape(len(words), positions=48, types=2, width=8, layers=2, heads=2, inner=16, epsilon=1e-12)
    model, generator = SentenceBert(bert, (None, (8, 8, True))), torch.Generator().manual_seed(0)
    state = {name: torch.randn(tensor.shape, generator=generator) / 3 for name, tensor in model.state_dict().items()}
    state |= {name: torch.ones_like(tensor) for name, tensor in state.items() if "norm" in name and "weight" in name}
    model.load_state_dict(state)
    for _ in range(2):  # the second time centred, so that training can begin from it with any scale
        shutil.rmtree("models/encoder", ignore_errors=True)
        Path("models/encoder").mkdir()
        write_sentence_transformer(Checkpoint(model, tokenizer, {}, bert.positions, Card()), Path("models/encoder"))
        features = airrep.load_encoder("models/encoder", precision="float32").encode(list(read_corpus("train.jsonl")))
        with torch.no_grad():
            model.heads[-1].bias -= torch.from_numpy(features.mean(0))


COMMANDS: dict[str, tuple[str, ...]] = {
    "index": (
        "index",
        "first.jsonl",
        "--out",
        "index",
        "--shard-rows",
        "16",
        "--precision",
        "float32",
        "--device",
        "cpu",
    ),
    "tfidf": ("index", "train.jsonl", "--method", "tfidf", "--out", "tfidf", "--shard-rows", "16"),
    "logra": (
        *("index", "train.jsonl", "--method", "logra", "--lm", "example/lm", "--out", "logra", "--shard-rows", "16"),
        *("--set", "rank=2", "--precision", "float32", "--device", "cpu"),
    ),
    "subsets": ("sample", "train.jsonl", "--out", "subsets", *SEVERAL, "--size", "4", "--seed", "3"),
    "removals": (
        *("sample", "train.jsonl", "--out", "removals", "--instances", "1", "--train-count", "12"),
        *("--query-count", "4", "--removals", "5"),
    ),
    "labels": ("label", "subsets", "train.jsonl", "--lm", "example/lm", "--out", "labels", "--seeds", "2", *TUNING),
    "effects": ("label", "removals", "train.jsonl", "--lm", "example/lm", "--out", "effects", "--seeds", "2", *TUNING),
    "encoder": ("train", *TRAINING, "--out", "encoder"),
    "warm": (
        *("warmup", "train.jsonl", "--lm", "example/lm", "--out", "warm", "--count", "20", "--checkpoints", "2"),
        *("--set", "batch_examples=5"),
        *TUNING,
    ),
    "datamodels": ("datamodels", "labels#0", "--data", "train.jsonl", "--set", "folds=3", "--out", "datamodels"),
    "stack": (
        *("stack", "labels#2", "--held-out", "labels#0", "--data", "train.jsonl", "--out", "stack"),
        *("--member", "tfidf", "--member", "gte:encoder=example/encoder,precision=float32,device=cpu"),
    ),
    "lds": (
        *("evaluate", "lds", "Words=tfidf", "LoGra=logra", "--labels", "labels#0-1", *JUDGED),
        *("--out", "lds", "--tag", "size=4"),
    ),
    "loo": ("evaluate", "loo", "tfidf", "logra", "--labels", "effects", *JUDGED, "--out", "loo"),
    "classify": ("evaluate", "classify", "tfidf", "logra", "--queries", "queries.jsonl", "--out", "classify"),
    "select": ("evaluate", "select", "Words=tfidf", *SELECTING, "--where", 'label != "instruction"', "--out", "select"),
    "comparison": ("compare", "lds", "--out", "comparison"),
    "diagnosis": (
        *(
            "diagnose",
            "labels#0",
            "--data",
            "train.jsonl",
            "--index",
            "tfidf",
            "--index",
            "logra",
            "--out",
            "diagnosis",
        ),
    ),
    "plan": (
        *("plan", "texts.jsonl", "--lm", "example/lm", "--encoder", "example/encoder", "--train-layers", "1"),
        *(
            "--seconds",
            "2",
            "--set",
            "rank=2",
            "--size",
            "4",
            "--method",
            "logra",
            "--against",
            "logra",
            "--out",
            "plan",
        ),
    ),
    "top": ("top", "index", "queries.jsonl", "-k", "3", "--out", "top"),
    "group": ("group", "index", "queries.jsonl", "--by", "source", "--out", "group"),
    "what-if": ("what-if", "index", "queries.jsonl", "--remove", 'source == "creak"', "--out", "what-if"),
    "picked.jsonl": ("select", "tfidf", "queries.jsonl", "--count", "5", "--out", "picked.jsonl"),
    "adapted": (
        *("adapt", "train.jsonl", "--lm", "example/lm", "--out", "adapted", "--start", "example/encoder"),
        *("--budget", "2h", *TUNING),
    ),
}
"""By what each makes; those that the text of a later one names come first."""

BEGUN: dict[str, tuple[tuple[str, ...], str, int]] = {
    "begun-index": (
        ("index", "train.jsonl", *PLAIN, "--out", "begun-index", "--shard-rows", "10"),
        "airrep.building.write_shard",
        2,
    ),
    "begun-logra": (
        tuple(
            "begun-logra" if word == "logra" and before == "--out" else word
            for before, word in zip(("", *COMMANDS["logra"]), COMMANDS["logra"], strict=False)
        ),
        "airrep.building.write_shard",
        1,
    ),
    "begun-labels": (
        ("label", "subsets", "train.jsonl", "--lm", "example/lm", "--out", "begun-labels", "--seeds", "2", *TUNING),
        "airrep.ledger.Ledger.write",
        7,
    ),
    "begun-encoder": (("train", *TRAINING, "--out", "begun-encoder"), "airrep.train_run.save_state", 3),
    "begun-select": (
        ("evaluate", "select", "Words=tfidf", *SELECTING, "--where", 'label != "instruction"', "--out", "begun-select"),
        "airrep.answering.AnswerFiles.write",
        2,
    ),
}
"""Commands that are interrupted: in what, and after how many calls of that."""

QUESTIONS: dict[str, list[str]] = {
    "top": ["top", "-k", "3"],
    "least": ["top", "-k", "2", "--least", "--where", 'source != "creak"'],
    "group": ["group", "--by", "label"],
    "what-if": ["what-if", "--keep", 'label == "algebra"'],
}
BUILT: dict[str, tuple[tuple[str, ...], str]] = {
    "of-encoder": (("index", "train.jsonl", "--encoder", "encoder", "--precision", "float32", "--device", "cpu"), ""),
    "of-warm": (
        (
            *("index", "train.jsonl", "--method", "tracin", "--lm", "warm", "--set", "checkpoints=all"),
            *("--set", "rank=2", "--precision", "float32", "--device", "cpu"),
        ),
        "",
    ),
    "of-datamodels": (
        ("index", "datamodels/train.jsonl", "--method", "datamodels", "--set", "weights=datamodels"),
        "datamodels/queries.jsonl",
    ),
    "of-stack": (("index", "train.jsonl", "--method", "stack", "--set", "stack=stack"), ""),
}
"""Indexes by what was learnt before, and the queries that they are asked."""
JUDGED_ANEW = ("lds", "loo", "classify", "comparison", "diagnosis")


def adapt() -> None:
    """As the command would, with a plan that was chosen before, so that nothing is measured."""
    from airrep.adapting import Adaptation
    from airrep.budget import LearnPlan
    from airrep.lm_settings import FineTuneSettings, LmSettings

    plan = LearnPlan(
        size=3, subsets=6, held_out_subsets=3, pool=16, held_out_pool=8, queries=4, held_out_queries=3, epochs=1,
        train_layers=1, steps=6,
    )  # fmt: skip
    tuning = FineTuneSettings(epochs=1, learning_rate=1e-2)
    with patch("airrep.adapting.choose", lambda *_: plan):
        Adaptation(
            read_corpus("train.jsonl"), LmSettings(lm="example/lm", precision="float32", device="cpu"), tuning,
            Path("adapted"), start="example/encoder", engine=InProcess(),
        ).run(7200.0, lambda line: None)  # fmt: skip


def make() -> dict[str, Any]:
    write_data()
    write_models()
    for name, command in COMMANDS.items():
        if name == "adapted":
            adapt()
        else:
            do(*command)
    do("index", "first.jsonl", *PLAIN, "--out", "changed", "--shard-rows", "10")
    do("delete", "changed", "--where", 'source == "creak"')
    do("append", "changed", "more.jsonl")
    begun = {name: begin(name) for name in BEGUN}
    forget_costs()
    return {
        "arithmetic": arithmetic(),
        "questions": QUESTIONS,
        "kinds": {name: kind(name) for name in artifacts()},
        "again": {name: repeat(name) for name in COMMANDS},
        "answers": {name: ask(name, QUESTIONS) for name in ("index", "tfidf", "logra", "changed")},
        "begun": begun,
        "changes": {name: change(name) for name in ("changed", "tfidf", "logra", "index")},
        "built": {name: build(name) for name in BUILT},
        "judged": {name: decided(json.loads(Path(name, "result.json").read_bytes())) for name in JUDGED_ANEW},
    }


def begin(name: str) -> dict[str, Any]:
    """Interrupt a command, keep what it leaves, and let it end; as an undisturbed one does."""
    command, where, count = BEGUN[name]
    place, _, last = where.rpartition(".")
    target = pkgutil.resolve_name(place)
    with interrupted(), patch.object(target, last, cut_after(count, getattr(target, last))):
        run(*command)
    left = name if Path(name).exists() else f"{name}.partial"
    for file in (*Path(left).glob("costs.jsonl"), *Path(left).glob("times.jsonl")):
        file.unlink()
    shutil.copytree(left, name + UNFINISHED)
    do(*command)
    ends, work, result = tree(name), work_done(name), None
    shutil.rmtree(name)
    do(*command)
    undisturbed = tree(name)
    if Path(name, "result.json").exists():
        result = decided(json.loads(Path(name, "result.json").read_bytes()))
        for file in ("manifest.json", "result.json"):
            del ends[file], undisturbed[file]
    assert ends == undisturbed, name
    assert work < work_done(name) or result is not None, name
    shutil.rmtree(name)
    return {"command": command, "left": left, "work": work, "ends": ends, "result": result}


def repeat(name: str) -> dict[str, Any]:
    """What a command says of what it made before; nothing changes."""
    before = tree(name)
    status, _, told = run(*COMMANDS[name])
    assert tree(name) == before, name
    return {"command": COMMANDS[name], "status": status, "told": last_line(told)}


def change(name: str) -> dict[str, Any]:
    """What appending, deleting and compacting make of an index, and what it answers then."""
    shutil.copytree(name, "original")
    first, second = (json.loads(line)["id"] for line in Path("first.jsonl").read_text("utf-8").splitlines()[:2])
    more = {"changed": ["last.jsonl"], "index": ["more.jsonl"]}.get(name, [])
    commands = [("delete", name, "--id", first, "--id", second), *(("append", name, one) for one in more)]
    steps = []
    for command in [*commands, ("compact", name)]:
        do(*command)
        steps.append({"command": command, "made": tree(name)})
    answers = ask(name, {"top": QUESTIONS["top"]})
    shutil.rmtree(name)
    Path("original").rename(name)
    return {"steps": steps, "answers": answers}


def build(name: str) -> dict[str, Any]:
    words, queries = BUILT[name]
    command, queries = (*words, "--out", name), queries or "queries.jsonl"
    do(*command)
    answers = ask(name, {"top": QUESTIONS["top"]}, queries)
    shutil.rmtree(name)
    return {"command": command, "queries": queries, "answers": answers}


def artifacts() -> list[str]:
    found = [path.parent.as_posix() for path in sorted(Path().rglob("manifest.json"))]
    return [name for name in found if UNFINISHED not in name and "/plan-" not in name]


def kind(name: str) -> str:
    do("show", name, "--verify")
    return str(json.loads(Path(name, "manifest.json").read_bytes())["kind"])


def forget_costs() -> None:
    """Remove what is not part of any artifact, and differs each time."""
    for path in list(Path().rglob("*")):
        if path.name in NEVER_THE_SAME or path.name.startswith(".lock"):
            path.unlink()


def rounded(value: Any) -> Any:
    """The same with numbers of eight digits."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


def main() -> None:
    archive = ARCHIVE.resolve()
    data = Path(tempfile.mkdtemp())
    os.chdir(data)
    with (
        patch("huggingface_hub.snapshot_download", fetch),
        patch("airrep.planner.LocalProcesses", lambda workers: InProcess()),
        patch("airrep.predicting.describe_machine", lambda: "2 cores of a processor, 8 GiB memory"),
        patch("airrep.metering.describe_machine", lambda: "2 cores of a processor, 8 GiB memory"),
    ):
        expected = make()
    Path("texts.jsonl").unlink()  # asked for by the plan alone, which is there already when its command is run again
    forget_costs()
    Path("expected.json").write_text(
        json.dumps(rounded(expected), ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8"
    )
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for file in sorted(data.rglob("*")):
            packed.add(file, file.relative_to(data).as_posix(), recursive=False, filter=plain)


def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without what differs from machine to machine."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


if __name__ == "__main__":
    main()
