"""Each public name has an example in its docstring, and it runs."""

import doctest
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worlds.small_world import make_corpus

import airrep

MODEL = Path(airrep.__file__).parent / "models" / "tiny-lm"
TOLD_ELSEWHERE = {"METHODS", "metrics", "evaluate_loo", "evaluate_selection", "import_labels", "label_by_command"}
"""Names that are no function or class, or whose example would be a page: docs/evaluation.md, docs/trainers.md."""
LEARNING = {
    "Labels",
    "open_labels",
    "label",
    "learn_stack",
    "train_encoder",
    "fit_datamodels",
    "evaluate_lds",
    "diagnose",
}
"""Names whose examples need labels."""
SLOW = LEARNING | {"warm_up", "load_lm", "load_encoder", "audit", "clean"}
NAMES = sorted(set(dir(airrep)) - TOLD_ELSEWHERE - {"__version__"})


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
        "instances": 2,
        "disjoint_instances": True,
        "train_count": 18,
        "query_count": 6,
        "subsets": 10,
        "size": 4,
    }
    airrep.sample(train, "runs/subsets", settings)
    trained = Path("runs/trained")
    trained.mkdir()
    (trained / "record.json").write_text(json.dumps({"format": 1, "world_size": 1}))
    lines = [{"first": n, "last": n, "loss": 2.0, "learning_rate": 0.1, "rows": [n]} for n in (1, 2, 3)]
    (trained / "steps-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    yield {"airrep": airrep, "train": train, "queries": queries, "index": index}
    os.chdir(before)


def instances(train: airrep.Corpus) -> Any:
    """Labels of two instances, made once."""
    if not Path("runs/labels").exists():
        airrep.label(airrep.open_plan("runs/subsets"), train, None, str(MODEL), {"epochs": 1}, "runs/labels")
    return airrep.open_labels("runs/labels").instances(train)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NAMES])
def test_the_example_of_a_docstring_runs(name: str, world: dict[str, Any]) -> None:
    found = doctest.DocTestFinder(recurse=False).find(getattr(airrep, name), name)
    (example,) = [one for one in found if one.examples]
    known = dict(world)
    if name in LEARNING:
        known["instances"] = instances(world["train"])
    code = doctest.DocTestParser().get_doctest(
        (example.docstring or "").replace('"MODEL"', repr(str(MODEL))), known, name, None, 0
    )
    told: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(code, out=told.append)
    assert not failed, "".join(told)
    assert len(code.examples) <= 3
