"""Shared by all tests: shapes checked at run time, a small world."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from jaxtyping import install_import_hook

with install_import_hook("airrep", "beartype.beartype"):
    import airrep

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from worlds.commands import Ran, Run
from worlds.small_world import HashAttributor, make_corpus

from airrep.cli import app
from airrep.corpus.corpus import Corpus


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the files with the most slow tests first: of several processes, none shall begin a long one at the end."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep gradients of the tests out of the user's cache."""
    os.environ["AIRREP_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _no_power_cuts() -> Iterator[None]:
    """No test cuts the power, and waiting for the disk was most of the time that a small index took."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which fails for what is not open, too
        yield


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a process of its own for cautions that are told once."""
    monkeypatch.setattr(airrep.errors, "_TOLD", set())


@pytest.fixture(autouse=True)
def _as_wide_as_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readline, which test workers load, puts its own idea of the terminal's width into the environment."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that holds nothing from other tests."""
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs a command in this process, in the folder that it is called in."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["airrep", *arguments])
        with pytest.raises(SystemExit) as ended:
            app.main()
            raise SystemExit(0)
        printed = capsys.readouterr()
        return Ran(int(ended.value.code or 0), printed.out, printed.err)

    return run


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
