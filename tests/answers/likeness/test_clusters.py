"""Maps and clusters: what is alike lies near, and is called by its words."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from worlds.topics import WORDS, topics

import airrep
from airrep.answers.likeness import clusters
from airrep.answers.likeness.clusters import find_clusters, lay_out, vectors
from airrep.errors import ConfigError
from airrep.index.rows import IndexRows

FAKE = """
class UMAP:
    def __init__(self, **settings):
        assert settings["random_state"] == 0

    def fit_transform(self, vectors):
        return vectors[:, :2] * 3 + 1
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> IndexRows:
    made = airrep.build_index(topics(), tmp_path_factory.mktemp("map") / "index", shard_rows=50)
    return IndexRows(made.delete(["stars3"]).path)


def test_the_map_without_umap_is_the_principal_components(index: IndexRows, monkeypatch: pytest.MonkeyPatch) -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    monkeypatch.setattr(clusters, "has", lambda _: False)
    monkeypatch.setattr(clusters, "BATCH", 7)
    found = lay_out(index)
    assert "pip install 'airrep[map]'" in found.how
    known = np.concatenate([part for _, part in vectors(index, "encoder")])
    assert np.linalg.norm(known, axis=1) == pytest.approx(1, abs=1e-5)
    expected = decomposition.PCA(2).fit(known[index.live]).transform(known)
    for own, other in zip(found.places.T, expected.T, strict=True):
        assert abs(np.corrcoef(own, other)[0, 1]) > 0.999
    assert found.places.dtype == np.float32
    assert np.quantile(np.abs(found.places), 0.99) < 1.05


def test_umap_lays_others_between_the_placed(index: IndexRows, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "umap.py").write_text(FAKE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "umap", raising=False)
    whole = lay_out(index)
    assert whole.how.startswith("UMAP of encoder, 128 numbers")
    monkeypatch.setattr(clusters, "FITTED", 90)
    some = lay_out(index)
    assert "90 examples were fitted" in some.how
    sources = np.array(index.values("source"))
    centres = {topic: whole.places[sources == topic].mean(axis=0) for topic in WORDS}
    nearest = [min(centres, key=lambda topic: np.linalg.norm(centres[topic] - place)) for place in some.places]
    assert np.mean(np.array(nearest) == sources) > 0.9


def test_clusters_are_of_one_topic_and_named_by_its_words(index: IndexRows) -> None:
    pytest.importorskip("sklearn")
    found = find_clusters(index)
    groups = found.groups(index)
    sources, live = index.values("source"), np.flatnonzero(index.live)
    assert sorted(groups.rows.tolist()) == live.tolist()
    sizes = np.diff(groups.offsets)
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    alike = 0
    for name, (first, last) in zip(groups.names, pairwise(groups.offsets.tolist()), strict=True):
        own = [sources[row] for row in groups.rows[first:last]]
        topic = max(set(own), key=own.count)
        alike += own.count(topic)
        words = name.partition(". ")[2].split(", ")
        assert sum(word in WORDS[str(topic)] for word in words) >= 2, name
    assert alike / len(live) > 0.9
    again = find_clusters(IndexRows(index.path))
    assert again.names == found.names
    assert np.array_equal(again.codes, found.codes)


def test_an_index_without_vectors_has_no_map(tmp_path: Path) -> None:
    built = airrep.build_index(topics(4), tmp_path / "index", "tfidf")
    for make in (lay_out, find_clusters):
        with pytest.raises(ConfigError, match="has no embeddings"):
            make(built)
    with pytest.raises(ConfigError, match="field"):
        built.group_scores(["soup"], by="cluster")
