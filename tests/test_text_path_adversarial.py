"""The text path without torch, from what is promised: same index, same answers, one line where torch is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import airrep

NEEDED = ("torch", "transformers", "sentence_transformers")
ABSENT = """import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
WORDS = ("harbor", "violin", "granite", "tell", "me", "of", "the", "old", "sum", "12", "108", "not", "x = y")
RECORDS = [
    {
        "prompt": " ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 6)),
        "response": f"answer {number}: " + " ".join(WORDS[(number + step) % len(WORDS)] for step in range(7)),
        "source": "ab"[number % 2],
    }
    for number in range(60)
]
QUERY = {"prompt": "tell me of the old harbor", "response": "the old harbor is not granite"}
ODD = [
    {"prompt": "", "response": "an answer to nothing"},
    {"prompt": "x", "response": "中文 한국어 ไทย हिन्दी"},
    {"prompt": "\u0b85" * 40, "response": "\U0001f9ff\U0001f9ff"},
    {"prompt": "long", "response": "harbor granite " * 20_000},
    {"prompt": "word", "response": "q" * 5_000},
    {"prompt": "?", "response": "!"},
]


def environment(folder: Path, **modules: str) -> dict[str, str]:
    """An environment in which modules are what these texts say; ``sitecustomize`` runs before all else."""
    folder.mkdir(exist_ok=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    paths = [str(folder), str(Path(airrep.__file__).parents[1])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def without_torch(folder: Path) -> dict[str, str]:
    return environment(folder, sitecustomize=ABSENT.format(names=set(NEEDED)))


def run(known: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "airrep", *map(str, arguments)]
    return subprocess.run(command, env=known, capture_output=True, text=True, check=False)


def top(index: Path, known: dict[str, str], *more: str) -> Any:
    """What a process answers, without what names the run."""
    asked = run(known, "top", index, "--prompt", QUERY["prompt"], "--response", QUERY["response"], "--json", *more)
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


def contents(index: Path) -> dict[str, bytes]:
    """All files of an index but its manifests, which tell times."""
    files = (path for path in index.rglob("*") if path.is_file() and path.suffix == ".npy")
    return {str(path.relative_to(index)): path.read_bytes() for path in files}


def hits(index: Path, query: dict[str, str]) -> list[tuple[str, float]]:
    """Examples from the most helpful to the least, with their scores."""
    return [(hit.example.id, hit.score) for hit in airrep.Index(index).top(query, k=100)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of examples and an index that was made where torch is absent."""
    folder = tmp_path_factory.mktemp("texts")
    airrep.Corpus.from_records(RECORDS).to_jsonl(folder / "train.jsonl")
    made = run(without_torch(folder / "absent"), "index", folder / "train.jsonl", "--out", folder / "index")
    assert made.returncode == 0, made.stderr
    return folder


def test_the_index_is_the_same_with_torch_and_without(place: Path, tmp_path: Path) -> None:
    import torch  # is there, and loaded

    assert torch.__version__
    made = airrep.build_index(place / "train.jsonl", tmp_path / "index")
    assert made.fingerprint == airrep.Index(place / "index").fingerprint
    assert contents(made.path) == contents(place / "index")


@pytest.mark.parametrize("recipe", ["text", "kind"])
def test_the_answer_is_the_same_with_torch_and_without(place: Path, recipe: str) -> None:
    more = ("--recipe", str(recipe))
    index = place / "index"
    alone, beside = (top(index, known, *more) for known in (without_torch(place / "absent"), dict(os.environ)))
    assert alone == beside


def test_kind_and_effect_are_two_questions(place: Path) -> None:
    known = without_torch(place / "absent")
    assert top(place / "index", known) == top(place / "index", known, "--recipe", "text")
    assert top(place / "index", known) != top(place / "index", known, "--recipe", "kind")


@pytest.mark.slow
def test_processes_and_shards_change_nothing(place: Path, tmp_path: Path) -> None:
    known = without_torch(place / "absent")
    for name, how in {"two": ("--workers", "2", "--set", "shard_rows=16"), "one": ("--workers", "1")}.items():
        made = run(known, "index", place / "train.jsonl", "--out", tmp_path / name, *how)
        assert made.returncode == 0, made.stderr
    assert hits(tmp_path / "one", QUERY) == hits(tmp_path / "two", QUERY) != []


@pytest.mark.parametrize("method", ["channels", "ngram", "tfidf", "bm25", "dsir"])
def test_odd_texts_are_indexed_and_asked(method: str, tmp_path: Path) -> None:
    index = airrep.build_index(ODD + RECORDS[:5], tmp_path / "index", method)
    assert len(index) == len(ODD) + 5
    for query in ODD:
        assert np.isfinite([score for _, score in hits(index.path, query)]).all()


BROKEN = 'raise OSError("libtorch_cpu.so: cannot open shared object file: No such file or directory")\n'
OLD = '__version__ = "1.13.1"\n'


def with_old_torch(folder: Path) -> dict[str, str]:
    told = folder / "torch-1.13.1.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.13.1\n")
    return environment(folder, torch=OLD)


STATES = {
    "absent": without_torch,
    "broken": lambda folder: environment(folder, torch=BROKEN),
    "old": with_old_torch,
}


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_what_needs_torch_says_so_in_a_line_and_writes_nothing(state: str, place: Path, tmp_path: Path) -> None:
    known, lm = STATES[state](tmp_path / "m"), Path(airrep.__file__).parent / "models" / "tiny-lm"
    for how in (("--lm", lm), ("--encoder", "default"), ("--method", "gte", "--encoder", "untrained")):
        told = run(known, "index", place / "train.jsonl", "--out", tmp_path / "out", *how)
        assert told.returncode > 0, how
        assert "Traceback" not in told.stderr, how
        lines = [line for line in told.stderr.splitlines() if line.strip()]
        assert any("pip install" in line and "airrep[" in line for line in lines), told.stderr
        assert not (tmp_path / "out").exists(), how
    assert top(place / "index", known) == top(place / "index", without_torch(place / "absent"))


def test_a_cold_question_loads_no_torch(place: Path) -> None:
    ask = ["top", str(place / "index"), "--prompt", QUERY["prompt"], "--response", QUERY["response"]]
    command = [sys.executable, "-X", "importtime", "-m", "airrep", *ask]
    told = subprocess.run(command, env=environment(place / "plain"), capture_output=True, text=True, check=True).stderr
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in told.splitlines()}
    assert "numpy" in loaded
    assert loaded.isdisjoint(NEEDED)
