"""An index of channels, one of which is damaged: named; the others answer if they are asked alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import make_corpus
from worlds.tiny_bert import tiny_folder

from airrep.errors import ArtifactError
from airrep.index.building import build_index
from airrep.index.index import Index

TRAIN, ASKED = make_corpus(20), make_corpus(2, "q")
DENSE, SPARSE = ("features", "codes", "scales", "bounds"), ("columns", "rows", "values")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    encoder = tiny_folder(tmp_path_factory.mktemp("encoder") / "tiny")
    settings = {"encoder": str(encoder), "device": "cpu"}
    return [
        {"method": "ngram", "settings": {"tokenizer": "words"}, "name": "n-grams", "weight": 2.0},
        {"method": "tfidf", "pool": "mean"},
        {"method": "airrep", "settings": settings, "name": "meaning", "weight": 0.5},
        {"method": "airrep", "settings": {**settings, "view": "response"}, "weight": 0.2},
    ]


@pytest.fixture
def index(tmp_path: Path, recipe: list[dict[str, Any]]) -> Index:
    return build_index(TRAIN, tmp_path / "index", "channels", settings={"channels": recipe}, shard_rows=8)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def answers(index: Index, *, why: bool = False) -> list[np.ndarray]:
    """Rankings, groups and a what-if."""
    hits = [(hit.row, hit.score) for hits in index.top(ASKED, k=len(index), why=why) for hit in hits]
    groups = index.group_scores(ASKED, by="source", why=why).scores
    return [np.array(hits), groups, index.what_if(ASKED, remove=[1, 2]).change]


@pytest.mark.parametrize("name", [*DENSE, *SPARSE])
def test_the_channels_of_a_damaged_file_are_named_and_the_others_answer_if_asked(
    index: Index, recipe: list[dict[str, Any]], tmp_path: Path, name: str
) -> None:
    others = recipe[:2] if name in DENSE else recipe[2:]
    expected = answers(Index(index.path).made_with({"channels": others}), why=True)
    alone = answers(build_index(TRAIN, tmp_path / "alone", "channels", settings={"channels": others}, shard_rows=8))
    for found, wanted in zip(expected, alone, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
    folder, channel = ("2-meaning", "meaning") if name in DENSE else ("0-n-grams", "n-grams")
    flip(next((index.path / "shards").glob(f"0000000008-*/{folder}/{name}.npy")))
    told = rf"{name}\.npy: was altered .* belongs to channel .* '{channel}'.* recipe .* without '{channel}': --recipe"
    with pytest.raises(ArtifactError, match=told) as caught:
        answers(Index(index.path))
    assert "\n" not in str(caught.value)
    with pytest.raises(ArtifactError, match="was altered"):  # one of its channels is enough
        answers(Index(index.path).made_with({"channels": [*others, recipe[2] if name in DENSE else recipe[0]]}))
    for found, wanted in zip(answers(Index(index.path).made_with({"channels": others})), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(ArtifactError, match="was altered"):
        Index(index.path).verify()


def test_a_damaged_state_names_its_channel(index: Index) -> None:
    path = next((index.path / "state").glob("0-*"))
    flip(path)
    told = rf"{path.name}: was altered .* The file belongs to channel \(method\) 'n-grams'\.$"
    with pytest.raises(ArtifactError, match=told):
        answers(Index(index.path))


@pytest.mark.parametrize("name", ["features", "rows"])
def test_channels_that_differ_in_rows_are_refused(index: Index, name: str) -> None:
    folder = next((index.path / "shards").glob("0000000008-*"))
    other = next((index.path / "shards").glob("0000000016-*"))  # of four rows, not eight
    channel = "2-meaning" if name == "features" else "1-tfidf"
    (folder / channel / f"{name}.npy").write_bytes((other / channel / f"{name}.npy").read_bytes())
    with pytest.raises(ArtifactError, match=rf"{name}\.npy: has \d+ bytes; expected \d+"):
        Index(index.path)
