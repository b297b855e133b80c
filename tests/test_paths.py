"""A path is a path wherever one is taken, as text or as Path, and a text that names a file asks back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import airrep
from airrep.answers.together import top_of_set
from airrep.attributors.methods import make_attributor
from airrep.corpus.originals import take_records
from airrep.encoder.folders import find_model
from airrep.reports.evaluations import write_evaluation_report

RECORDS = [{"prompt": f"q {i}", "response": f"answer number {i}", "source": "ab"[i % 2]} for i in range(12)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paths")
    airrep.Corpus.from_records(RECORDS).to_jsonl(folder / "train.jsonl")
    index = airrep.build_index(str(folder / "train.jsonl"), str(folder / "index"), "tfidf")
    index.top(RECORDS[:2]).save(str(folder / "top"))
    airrep.classify([("one", index)], RECORDS[:4], {"by": "source", "votes": (1,)}).save(str(folder / "classes"))
    return folder


TAKEN: dict[str, Callable[[Any, Path], object]] = {
    "train.jsonl: read_corpus": lambda path, _: airrep.read_corpus(path),
    "train.jsonl: build_index": lambda path, out: airrep.build_index(path, out / "index", "tfidf").fingerprint,
    "train.jsonl: sample": lambda path, out: (
        airrep.sample(
            path, out / "plan", {"instances": 1, "train_count": 8, "query_count": 2, "subsets": 3, "size": 2}
        ).fingerprint
    ),
    "train.jsonl: take_records": lambda path, _: list(take_records(path, path)),
    "index: open": lambda path, _: airrep.open(path).fingerprint,
    "index: top": lambda path, _: airrep.top(path, "answer").to_dict(),
    "index: select": lambda path, _: airrep.select(path, "answer", 2).to_dict(),
    "index: mix": lambda path, _: airrep.mix(path, "answer").to_dict(),
    "index: audit": lambda path, _: airrep.audit(path, "answer").to_dict(),
    "index: clean": lambda path, _: airrep.clean(path, kinds=["duplicate"]).to_dict(),
    "index: top_of_set": lambda path, _: top_of_set(path, "answer").to_dict(),
    "index: classify": lambda path, _: airrep.classify(path, RECORDS[:4], {"by": "source"}).rows[0].value,
    "top: open": lambda path, _: airrep.open(path).to_dict(),
    "top: write_report": lambda path, out: airrep.write_report(path, out / "page.html").read_bytes(),
    "classes: open": lambda path, _: airrep.open(path).to_dict(),
    "classes: write_evaluation_report": lambda path, out: write_evaluation_report(path, out / "page.html").exists(),
}


@pytest.mark.parametrize("what", TAKEN)
def test_a_path_may_be_text_or_a_path(what: str, place: Path, tmp_path: Path) -> None:
    name, call = what.partition(":")[0], TAKEN[what]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert call(str(place / name), tmp_path / "a") == call(place / name, tmp_path / "b")


def test_an_encoder_may_be_text_or_a_path(place: Path) -> None:
    folder = find_model("default", ())
    assert len({make_attributor("gte", {"encoder": one}).fingerprint for one in (str(folder), folder)}) == 1
    how: dict[str, Any] = {"kinds": ["outlier"], "settings": {"outlier_neighbours": 5}}
    found = [airrep.clean(place / "index", encoder=one, **how) for one in (str(folder), folder)]
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["train.jsonl", "index"])
def test_a_text_that_names_a_file_asks_back_wherever_texts_are_taken(name: str, place: Path) -> None:
    named, index = str(place / name), airrep.Index(place / "index")
    asked = airrep.Example("q 1", "answer number 1")
    calls: tuple[Callable[[], object], ...] = (
        lambda: index.top(named),
        lambda: index.group_scores([named], by="source"),
        lambda: index.what_if(named, remove=[0]),
        lambda: airrep.select(index, named, 2),
        lambda: airrep.top(index, asked, better=named),
        lambda: index.top(asked, better=[named]),
        lambda: airrep.top(index, prompt="q 1", response=named),
    )
    for call in calls:
        with pytest.raises(airrep.errors.ConfigError, match="is the name of a file or folder"):
            call()


def test_an_answer_is_explained_by_its_texts(place: Path) -> None:
    index = airrep.Index(place / "index")
    whole = airrep.Example("q 1", "answer number 1")
    told = airrep.top(index, prompt="q 1", response="answer number 1", better="answer number 2", k=3)
    known = airrep.top(index, whole, 3, better=[airrep.Example("q 1", "answer number 2")])
    assert [(hit.row, hit.score) for hit in told[0]] == [(hit.row, hit.score) for hit in known[0]]
    assert told[0].better is not None
    alone = airrep.top(index, response="answer number 1", k=3)[0]
    assert alone.query.prompt == ""
    assert alone.hits == airrep.top(index, "answer number 1", k=3)[0].hits


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "queries: nothing was given"),
        ({"prompt": "q 1"}, "response"),
        ({"queries": "answer", "response": "answer"}, "cannot be combined with prompt or response"),
        ({"response": " "}, "blank"),
    ],
)
def test_an_answer_is_given_once_and_whole(given: dict[str, Any], told: str, place: Path) -> None:
    with pytest.raises(airrep.errors.ConfigError, match=told) as caught:
        airrep.top(place / "index", **given)
    assert "\n" not in str(caught.value)
