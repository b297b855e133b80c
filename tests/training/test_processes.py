"""Encoder training by several processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from worlds.training_world import tiny_settings

from airrep.encoder.load import load_encoder

PROGRAM = str(Path(__file__).parents[1] / "worlds" / "training_process.py")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

pytestmark = pytest.mark.slow


def environment() -> dict[str, str]:
    """One thread, and messages by the loopback device."""
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def losses(folder: Path) -> list[float]:
    """Losses of all steps."""
    lines = [json.loads(line) for line in (folder / "encoder" / "steps.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


ROUNDING = 1e-4
"""Of the longest gradient. Each process has other texts in a batch, which moves a feature by up to 1e-6 of its length
where products depend on the number of their rows; the loss divides by deviations of scores, far smaller than these."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gradients and an encoder, by one process that nobody disturbs."""
    return made(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, by two processes."""
    return made(tmp_path_factory.mktemp("together"), TORCHRUN)


def made(folder: Path, launcher: list[str] | None = None) -> Path:
    """Run the program to its end."""
    tiny_settings(folder)
    command = [sys.executable, *(launcher or []), PROGRAM, str(folder)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_two_processes_have_the_gradient_of_one(alone: Path, together: Path) -> None:
    for layers in ("all", "1", "0", "1-beside"):
        single = load_file(alone / f"gradients-{layers}-0-of-1.safetensors")
        assert ("beside.log_weights" in single) == layers.endswith("beside")
        longest = max(float(gradient.norm()) for gradient in single.values())
        for rank in (0, 1):
            shared = load_file(together / f"gradients-{layers}-{rank}-of-2.safetensors")
            assert single.keys() == shared.keys()
            for name in single:
                assert float((single[name] - shared[name]).norm()) <= ROUNDING * longest, (layers, rank, name)


def test_two_processes_train_one_encoder(alone: Path, together: Path) -> None:
    assert losses(together)[:5] == pytest.approx(losses(alone)[:5], rel=1e-3)
    assert load_encoder(together / "encoder").trained_for_attribution
