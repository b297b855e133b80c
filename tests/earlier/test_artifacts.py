"""Labels and evaluations that an earlier version wrote: they open, are whole, say what they said, and can be resumed.

`artifacts.tar.xz` was made by the package as it was before its modules moved into sub-packages; `expected.json` in it
has what they held and how interrupted work ended. Bytes are compared where this machine rounds as that one did.
"""

import hashlib
import json
import re
import tarfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds.commands import Run

import airrep
from airrep.runtime.artifacts import read_manifest

ARCHIVE = Path(__file__).parent / "artifacts.tar.xz"
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pyarrow", "transformers", "safetensors", "tokenizers")
FINISHED = ("labels", "effects", "lds", "loo", "classify", "select", "comparison", "subsets", "removals")


def expected() -> dict[str, Any]:
    with tarfile.open(ARCHIVE) as archive:
        found: dict[str, Any] = json.load(archive.extractfile("expected.json"))
        return found


EXPECTED = expected()


def rounds_alike() -> bool:
    """Whether this machine rounds, by its packages too, as the one that made the archive."""
    numbers = torch.arange(1, 4097, dtype=torch.float32).reshape(64, 64).sin()
    made = torch.softmax(torch.nn.functional.gelu(numbers @ numbers.T / 8), -1) @ numbers
    rounded = torch.nn.functional.layer_norm(made, (64,)).numpy().tobytes()
    versions = repr([version(name) for name in PACKAGES])
    return hashlib.sha256(rounded + versions.encode()).hexdigest() == EXPECTED["arithmetic"]


def tree(path: str) -> dict[str, str]:
    """Digests of an artifact's files, but for what is never the same."""
    files = sorted(file for file in Path(path).rglob("*") if file.is_file() and not file.name.startswith("."))
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        for file in files
        if file.name not in ("costs.jsonl", "times.jsonl")
    }


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The current folder is a copy of the data, with its LM for that of the Hub."""
    with tarfile.open(ARCHIVE) as archive:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
        archive.extractall(tmp_path, **safely)
    (tmp_path / "begun-labels.unfinished").rename(tmp_path / "begun-labels")
    (tmp_path / "begun-labels" / ".lock").touch()
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path)
        patched.setenv("AIRREP_CACHE", str(tmp_path / "cache"))
        patched.setattr("huggingface_hub.snapshot_download", lambda name, **_: f"models/{name.partition('/')[2]}")
        yield tmp_path


@pytest.mark.parametrize("name", FINISHED)
def test_every_byte_has_its_checksum(folder: Path, name: str) -> None:
    assert read_manifest(folder / name, verify=True)["files"]


def test_labels_hold_the_losses_that_they_held(folder: Path) -> None:
    for name, wanted in EXPECTED["losses"].items():
        labels = airrep.open(name)
        found = [labels.losses(number).mean(axis=(1, 2), dtype=np.float64) for number in range(len(wanted))]
        np.testing.assert_array_equal(found, wanted)
    assert airrep.open("removals").settings.kind == "removals"
    assert len(airrep.open("subsets").instances) == 3


def test_evaluations_say_what_they_said(folder: Path) -> None:
    for name in ("lds", "loo", "classify", "select"):
        found = airrep.open(name)
        assert found.measure == name
        values = [(row.name, pytest.approx(row.value, abs=1e-8)) for row in found.rows]
        assert name == "select" or values == [tuple(row) for row in EXPECTED["values"][name]]


@pytest.mark.parametrize("name", ["labels", "effects"])
def test_a_command_run_again_finds_the_labels_that_it_made(folder: Path, run: Run, name: str) -> None:
    before = tree(name)
    assert run(*EXPECTED["commands"][name]).status == 0
    assert tree(name) == before


def test_interrupted_labels_end_as_undisturbed_ones_do(folder: Path, run: Run) -> None:
    begun = EXPECTED["begun"]
    assert run(*begun["command"]).status == 0
    lines = [json.loads(line) for line in (folder / "begun-labels" / "times.jsonl").read_text("utf-8").splitlines()]
    assert len(lines) == begun["work"], "finished parts were made again"
    made = tree("begun-labels")
    assert names(made) == names(begun["ends"])
    if rounds_alike():
        arrays = {file for file in made if file.endswith(".npy")}
        assert {file: made[file] for file in arrays} == {file: begun["ends"][file] for file in arrays}


def names(files: dict[str, str]) -> list[str]:
    """Names of files without the digests of numbers in them."""
    return sorted(re.sub(r"(losses|base)-(\d+)-[0-9a-f]{12}", r"\1-\2", name) for name in files)
