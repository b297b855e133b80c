"""Shared by all tests: shapes checked at run time, a small world."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from jaxtyping import install_import_hook

with install_import_hook("airrep", "beartype.beartype"):
    import airrep

from pathlib import Path

import pytest
from worlds.small_world import HashAttributor, make_corpus

from airrep.corpus.corpus import Corpus


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep gradients of the tests out of the user's cache."""
    os.environ["AIRREP_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a process of its own for cautions that are told once."""
    monkeypatch.setattr(airrep.errors, "_TOLD", set())


@pytest.fixture(autouse=True)
def _as_wide_as_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readline, which test workers load, puts its own idea of the terminal's width into the environment."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def corpus() -> Corpus:
    """Fifty examples."""
    return make_corpus(50)


@pytest.fixture
def queries() -> Corpus:
    """Five queries."""
    return make_corpus(5, "q")


@pytest.fixture
def index(tmp_path: Path, corpus: Corpus) -> airrep.Index:
    """An index of the fifty examples in shards of 16."""
    return airrep.build_index(corpus, tmp_path / "index", HashAttributor(), shard_rows=16)
