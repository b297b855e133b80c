"""Results on disk: what is written is read back as the same result."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.made_evaluations import write_artifact

from airrep.answers.reading import read_result
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.places import Span
from airrep.errors import ArtifactError, DataError
from airrep.index.results.hits import Hit, Hits
from airrep.index.results.kinds import GroupResult, TopResult, WhatIfResult
from airrep.index.results.result import Provenance
from airrep.index.why import SameWords, Why
from airrep.runtime.artifacts import new_artifact
from airrep.runtime.publishing import write_file

QUERIES = Corpus.from_examples([Example("who?", "me", "q1"), Example("why?", "so", "q2", label="l")])
TRAIN = Example("what?", "that", "t1", source="forum", metadata={"stars": 5, "id": "7", "tags": ["a", None]})
PROVENANCE = Provenance("airrep", "f" * 64, caution="take care")
POOLED = Provenance("airrep", "f" * 64, "attention", 0.3)
SCORES = np.array([[0.1, 1.5, 1e-7], [1 / 3, -1.0, 2.0]], dtype=np.float32)


def _top(least: bool = False) -> TopResult:
    hits = (Hit(1, float(SCORES[0, 0]), 4, TRAIN), Hit(2, -0.5, 0, Example("p", "r", "t2", label="")))
    return TopResult(tuple(Hits(query, hits, PROVENANCE, least) for query in QUERIES), PROVENANCE, least)


CHANNELS = {"b": SCORES / 2, "a.<b>": SCORES / 2}
WHY = Why(
    {"words": 0.25, "encoder": -0.75},
    (SameWords("that </mark>", 0.25, (Span("prompt", 0, 3), Span("response", 0, 2)), (Span("response", 0, 4),)),),
)


def _told() -> TopResult:
    hits = (Hit(1, -0.5, 4, TRAIN, WHY), Hit(2, -0.75, 3, TRAIN, Why({"words": -0.75})))
    return TopResult(tuple(Hits(query, hits, PROVENANCE) for query in QUERIES), PROVENANCE, False)


RESULTS = {
    "why": _told(),
    "group with channels": GroupResult.of(tuple(QUERIES), ("a", "b", "c"), (3, 4, 1), SCORES, POOLED, CHANNELS),
    "what-if with channels": WhatIfResult.of(
        tuple(QUERIES), SCORES[:, 0], SCORES[:, 1], 5, 6, POOLED, {name: part[:, 0] for name, part in CHANNELS.items()}
    ),
    "helpful": _top(),
    "harmful": _top(least=True),
    "group": GroupResult.of(tuple(QUERIES), ("a", "b", "c"), (3, 4, 1), SCORES, POOLED),
    "what-if": WhatIfResult.of(tuple(QUERIES), SCORES[:, 0], SCORES[:, 1], 5, 6, POOLED),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_read_back_as_the_result_it_was(name: str, tmp_path: Path) -> None:
    made = RESULTS[name]
    read = read_result(made.save(tmp_path / "run"))
    assert type(read) is type(made)
    assert read.provenance == made.provenance
    assert read.to_dict() == made.to_dict() == json.loads((tmp_path / "run" / "results.json").read_bytes())
    again = read.save(tmp_path / "again")
    assert (again / "results.json").read_bytes() == (tmp_path / "run" / "results.json").read_bytes()


def test_rankings_are_read_as_hits_of_examples(tmp_path: Path) -> None:
    read = read_result(_top(least=True).save(tmp_path / "run"))
    assert read == _top(least=True)
    assert isinstance(read, TopResult)
    assert [hit.example.metadata for hit in read[0]] == [TRAIN.metadata, {}]


def test_reasons_are_read_as_they_were(tmp_path: Path) -> None:
    assert read_result(RESULTS["why"].save(tmp_path / "top")) == RESULTS["why"]
    for name in ("group with channels", "what-if with channels"):
        made, read = RESULTS[name], read_result(RESULTS[name].save(tmp_path / name))
        assert isinstance(made, GroupResult | WhatIfResult)
        assert isinstance(read, GroupResult | WhatIfResult)
        assert made.channels is not None
        assert read.channels is not None
        assert set(read.channels) == set(made.channels)
        for channel, part in made.channels.items():
            np.testing.assert_array_equal(read.channels[channel], part)


def test_without_reasons_a_result_is_written_as_ever() -> None:
    hit = RESULTS["helpful"].to_dict()["queries"][0]["hits"][0]
    assert list(hit) == ["rank", "score", "row", "example"]
    assert list(RESULTS["group"].to_dict()["queries"][0]) == ["query", "scores"]
    assert list(RESULTS["what-if"].to_dict()["queries"][0]) == ["query", "change", "before", "after"]
    assert list(RESULTS["helpful"].to_dict()["provenance"]) == [
        "method", "index", "pool", "temperature", "units", "sign", "caution", "rows"
    ]  # fmt: skip


def test_channels_of_some_queries_alone_are_refused(tmp_path: Path) -> None:
    for name, damaged in {"group": None, "what-if": None, "names": {"other": [1.0] * 3}, "size": {"b": [1.0]}}.items():
        value = json.loads(
            json.dumps(RESULTS["what-if with channels" if name == "what-if" else "group with channels"].to_dict())
        )
        value["queries"][1]["channels"] = damaged if name != "size" else {"b": [1.0], "a.<b>": [1.0]}
        with pytest.raises(DataError, match=f"{name}: .*channel"):
            read_result(_artifact(tmp_path / name, value))


def test_scores_are_read_as_arrays(tmp_path: Path) -> None:
    group, change = (read_result(RESULTS[name].save(tmp_path / name)) for name in ("group", "what-if"))
    assert isinstance(group, GroupResult)
    assert isinstance(change, WhatIfResult)
    assert (group.queries, group.names, group.sizes) == (tuple(QUERIES), ("a", "b", "c"), (3, 4, 1))
    assert group.scores.dtype == np.float32
    np.testing.assert_array_equal(np.asarray(group), SCORES)
    assert group.ranked(0) == RESULTS["group"].ranked(0)
    np.testing.assert_array_equal(np.asarray(change), SCORES[:, 1] - SCORES[:, 0])
    assert (change.removed, change.kept) == (5, 6)


def test_a_result_without_queries_or_groups_keeps_its_shape(tmp_path: Path) -> None:
    for place, shape in enumerate([(0, 2), (2, 0)]):
        queries, names = tuple(QUERIES)[: shape[0]], ("a", "b")[: shape[1]]
        made = GroupResult.of(queries, names, (1, 1)[: shape[1]], np.zeros(shape, np.float32), POOLED)
        assert np.asarray(read_result(made.save(tmp_path / str(place)))).shape == shape


def test_numbers_from_elsewhere_lose_no_digits(tmp_path: Path) -> None:
    value = RESULTS["group"].to_dict()
    value["queries"][0]["scores"] = [0.1, 1e300, 3]
    read = read_result(_artifact(tmp_path / "run", value))
    assert np.asarray(read)[0].tolist() == [0.1, 1e300, 3.0]


def _artifact(path: Path, value: dict[str, Any]) -> Path:
    """An artifact of a result, made by hand."""
    with new_artifact(path, value["kind"], {}) as folder:
        write_file(folder / "results.json", json.dumps(value).encode())
    return path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("helpful", ("order",)), ("helpful", ("provenance",)), ("helpful", ("provenance", "method")),
        ("helpful", ("provenance", "units")), ("helpful", ("provenance", "sign")), ("helpful", ("queries", 1, "query")),
        ("helpful", ("queries", 1, "query", "prompt")), ("helpful", ("queries", 0, "hits", 1, "score")),
        ("helpful", ("queries", 0, "hits", 1, "example", "id")), ("group", ("groups",)),
        ("group", ("groups", 2, "size")), ("group", ("queries", 0, "scores")), ("what-if", ("kept",)),
        ("what-if", ("queries", 1, "change")),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_in_one_line(name: str, path: tuple[str | int, ...], tmp_path: Path) -> None:
    run = _artifact(tmp_path / "run", _drop(json.loads(json.dumps(RESULTS[name].to_dict())), path))
    with pytest.raises(DataError) as caught:
        read_result(run)
    assert str(caught.value).startswith(f"{run}: ")
    assert str(path[-1]) in str(caught.value)
    assert "\n" not in str(caught.value)


def _drop(value: Any, path: tuple[str | int, ...]) -> Any:
    """Take one key out of a value of JSON."""
    part = value
    for step in path[:-1]:
        part = part[step]
    del part[path[-1]]
    return value


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "many", None])
def test_scores_that_are_no_finite_numbers_are_refused(number: object, tmp_path: Path) -> None:
    for name, (row, key) in {"group": (0, "scores"), "what-if": (1, "after")}.items():
        value = RESULTS[name].to_dict()
        value["queries"][row][key] = [number, 1.0, 1.0] if name == "group" else number
        with pytest.raises(DataError, match=rf"queries\.{row}\.{key}.*: input should be a"):
            read_result(_artifact(tmp_path / name, value))


def test_scores_of_other_groups_are_refused(tmp_path: Path) -> None:
    value = RESULTS["group"].to_dict()
    value["queries"][1]["scores"].pop()
    with pytest.raises(DataError, match="run: .*one score for each group"):
        read_result(_artifact(tmp_path / "run", value))


def test_other_artifacts_and_altered_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is of kind 'plan'"):
        read_result(write_artifact(tmp_path / "plan", "plan", {}))
    run = _top().save(tmp_path / "run")
    (run / "results.json").write_text("{}")
    with pytest.raises(ArtifactError, match="has 2 bytes"):
        read_result(run)
