"""Indexes, instances and evaluations as programs hold them: each form, and what is none."""

from pathlib import Path
from typing import Any

import pytest
from worlds.small_world import make_corpus
from worlds.training_world import planted

import airrep
from airrep.errors import ArtifactError, ConfigError
from airrep.evaluation.diagnosis import diagnose
from airrep.evaluation.loo import evaluate_loo
from airrep.evaluation.select import evaluate_selection
from airrep.reports.evaluations import write_evaluation_report

ONE = planted(1, "a", n=40, q=8, m=16, size=8)
QUERIES = make_corpus(6, "q")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> airrep.Index:
    folder = tmp_path_factory.mktemp("given")
    return airrep.build_index([*make_corpus(30), *ONE.train], folder / "ngram", "ngram")


def rows(found: Any) -> list[str]:
    return [row.name for row in found.rows]


def test_indexes_are_named_by_pairs_names_or_paths(index: airrep.Index) -> None:
    path = str(index.path)
    for given in (index, path, index.path, [index], (index.path,)):
        assert rows(airrep.classify(given, QUERIES)) == [path]
    pairs = [("one", index), ("other", path)]
    assert rows(airrep.classify(pairs, QUERIES)) == ["one", "other"]
    assert rows(airrep.evaluate_lds(pairs, ONE, resamples=10)) == ["one", "other"]
    for given in (index, [index]):
        assert rows(airrep.evaluate_lds(given, [ONE], resamples=10)) == [path]
        assert rows(airrep.evaluate_lds(given, ONE, resamples=10, names="tfidf")) == ["tfidf"]
    found, wanted = (diagnose(*given, resamples=10) for given in ((ONE, index), ([ONE], [index])))
    assert (found.sentence, found.request) == (wanted.sentence, wanted.request)
    with pytest.raises(ConfigError, match="^lm nowhere: "):  # its indexes are read before the LM is
        evaluate_selection([index], QUERIES, "nowhere", {"count": 3})


def test_classes_are_asked_of_any_data_with_settings_as_a_dict(index: airrep.Index) -> None:
    records = [one.to_dict() for one in QUERIES]
    wanted = airrep.classify([("tfidf", index)], QUERIES, {"by": "source", "skip_unlabelled": True})
    found = airrep.classify([("tfidf", index)], records, {"by": "source", "skip_unlabelled": True})
    assert found.to_dict() == wanted.to_dict()
    with pytest.raises(ConfigError, match="settings: 'field' is not a setting here"):
        airrep.classify([("tfidf", index)], QUERIES, {"field": "source"})


INDEXES = r"; must be a list of indexes, their paths, or pairs \(name, index\)\.$"
INSTANCES = r"; must be a list of labelled instances: airrep\.open\(PATH\)\.instances\(TRAIN\)\.$"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "classify: indexes is a int" + INDEXES),
        ({"tfidf": 1}, "classify: indexes is a dict" + INDEXES),
        ([3], "classify: indexes holds a int" + INDEXES),
        ([("a", None)], "classify: indexes holds a NoneType" + INDEXES),
    ],
)
def test_what_is_no_index_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        airrep.classify(given, QUERIES)
    with pytest.raises(ArtifactError, match="nowhere: does not exist"):
        airrep.classify("nowhere", QUERIES)


def test_what_is_no_instance_is_refused(index: airrep.Index) -> None:
    class Labels:
        """Stands for a directory of labels, whose instances were not asked for."""

    for ask in (airrep.evaluate_lds, evaluate_loo):
        with pytest.raises(ConfigError, match=f"^evaluate: instances is a Labels{INSTANCES}"):
            ask([index], Labels())
    with pytest.raises(ConfigError, match=f"^evaluate: tune: instances holds a str{INSTANCES}"):
        airrep.evaluate_lds(index, ONE, tune=["a"])
    with pytest.raises(ConfigError, match=f"^diagnose: instances is a Labels{INSTANCES}"):
        diagnose(Labels())
    with pytest.raises(ConfigError, match=r"^evaluate: 1 name for 2 indexes"):
        airrep.evaluate_lds([index, index], [ONE], names=["a"])


def test_evaluations_are_compared_and_reported_alone_in_lists_and_by_path(index: airrep.Index, tmp_path: Path) -> None:
    found = airrep.classify([("one", index), ("other", index)], QUERIES)
    path = found.save(tmp_path / "run")
    for given in (found, [found], path, [str(path)], [("run", path)]):
        assert {row.name for row in airrep.compare_evaluations(given).rows} == {"one", "other"}
    both = airrep.compare_evaluations([found, path], resamples=10)
    assert {row.run for row in both.rows} == {"evaluation 1", str(path)}
    with pytest.raises(ConfigError, match="^compare: runs holds a int"):
        airrep.compare_evaluations([3])
    pages = [
        write_evaluation_report(given, tmp_path / f"{number}.html").read_text()
        for number, given in enumerate((found, [found]))
    ]
    assert pages[0] == pages[1]
    assert write_evaluation_report(str(path), tmp_path / "path.html").exists()
