"""Each public name has an example in its docstring, and it runs."""

import doctest
import json
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds.small_world import make_corpus

import airrep

BESIDE = {
    "encoder.load": ["load_encoder"],
    "evaluation.result": ["Evaluation"],
    "evaluation.select": ["evaluate_selection"],
    "index.results.hits": ["Hit"],
    "index.results.kinds": ["GroupResult", "TopResult", "WhatIfResult"],
    "labels.labels": ["Labels"],
    "answers.together": ["top_of_set"],
    "corpus.originals": ["take_records"],
    "evaluation.diagnosis": ["diagnose"],
    "evaluation.loo": ["evaluate_loo"],
    "labels.outside": ["import_labels", "label_by_command"],
    "lm.trainer_records.training": ["read_training"],
    "reports.evaluations": ["write_evaluation_report"],
    "training.linear.datamodels": ["fit_datamodels"],
}
"""Types of what public names give, and a loader: they have examples too."""
MODEL = Path(airrep.__file__).parent / "models" / "tiny-lm"
LEARNING = {"Labels", "label", "adapt", "train_encoder", "fit_datamodels", "evaluate_lds", "diagnose", "evaluate_loo"}
"""Names whose examples need labels."""
SLOW = LEARNING | {"warm_up", "load_lm", "load_encoder", "audit", "clean", "evaluate_selection", "label_by_command"}
SLOW |= {"judge", "prove"}
SPACES = {"airrep": airrep._HOMES, "airrep.errors": airrep.errors.__all__, "airrep.metrics": airrep.metrics.__all__}
NAMES = [
    (module, name)
    for module, names in (SPACES | {f"airrep.{home}": names for home, names in BESIDE.items()}).items()
    for name in names
]


TRAINER = """import sys
count = sum(1 for _ in open(sys.argv[2]))
open(sys.argv[3], "w").write("2.5\\n" * count)
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the examples find: files, an index, in the folder where they run."""
    before, folder = Path.cwd(), tmp_path_factory.mktemp("examples")
    os.chdir(folder)
    train, queries = make_corpus(60), make_corpus(5, "q")
    train.to_jsonl("train.jsonl")
    queries.to_jsonl("queries.jsonl")
    index = airrep.build_index(train, "runs/index", "tfidf")
    settings = {
        "instances": 2, "disjoint_instances": True, "train_count": 18, "query_count": 6, "subsets": 10, "size": 4,
    }  # fmt: skip
    airrep.sample(train, "runs/subsets", settings)
    trained = Path("runs/trained")
    trained.mkdir()
    (trained / "record.json").write_text(json.dumps({"format": 1, "world_size": 1}))
    logged = {"log_history": [{"step": 1, "learning_rate": 2e-4}]}
    (trained / "trainer_state.json").write_text(json.dumps(logged))
    np.save("losses.npy", np.random.default_rng(0).normal(2, 0.1, (2, 10, 6)))
    Path("trainer.py").write_text(TRAINER)
    lines = [{"first": n, "last": n, "loss": 2.0, "learning_rate": 0.1, "rows": [n]} for n in (1, 2, 3)]
    (trained / "steps-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    yield {"airrep": airrep, "np": np, "torch": torch, "train": train, "queries": queries, "index": index}
    os.chdir(before)


def instances(train: airrep.Corpus) -> Any:
    """Labels of two instances, made once."""
    if not Path("runs/labels").exists():
        airrep.label(airrep.open("runs/subsets"), train, None, str(MODEL), {"epochs": 1}, "runs/labels")
    return airrep.open("runs/labels").instances(train)


def removals(train: airrep.Corpus) -> Any:
    """Labels of a pool less an example each."""
    settings = {"instances": 1, "train_count": 8, "query_count": 4, "kind": "removals", "removals": 3}
    plan = airrep.sample(train, "runs/removals", settings)
    return airrep.label(plan, train, None, str(MODEL), {"epochs": 1}, "runs/removed").instances(train)


@pytest.mark.parametrize(
    ("module", "name"),
    [pytest.param(module, name, marks=[pytest.mark.slow] * (name in SLOW)) for module, name in NAMES],
)
def test_docstrings_run(module: str, name: str, world: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for fact, value in (("MOST_SUBSETS", 20), ("SIZES", (5,)), ("GRADIENT_SHARE", 0.0)):
        monkeypatch.setattr(f"airrep.planning.judge.{fact}", value)  # a budget is there to be used up
    found = doctest.DocTestFinder(recurse=False).find(getattr(import_module(module), name), name)
    (example,) = [one for one in found if one.examples]
    known = dict(world)
    if name in LEARNING:
        known["instances"] = instances(world["train"])
    if name == "evaluate_loo":
        known["removals"] = removals(world["train"])
    code = doctest.DocTestParser().get_doctest(
        (example.docstring or "").replace('"MODEL"', repr(str(MODEL))), known, name, None, 0
    )
    told: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(code, out=told.append)
    assert not failed, "".join(told)
    assert len(code.examples) <= 4


def test_a_docstring_names_its_subject_first() -> None:
    """A first word that only points at a subject makes a reader look for it."""
    opening = re.compile(r'\s*"""(Of|What|Whether|Likewise|The same)\b')
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for folder in ("src", "benchmarks", "experiments", "oracles")
        for path in sorted((Path(__file__).parents[1] / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if opening.match(line)
    ]
    assert not found, "\n".join(found)
