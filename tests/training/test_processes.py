"""Encoder training by several processes, and by one that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from worlds.small_world import tree
from worlds.training_world import tiny_settings

from airrep.encoder.load import load_encoder

PROGRAM = str(Path(__file__).parents[1] / "worlds" / "training_process.py")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

pytestmark = pytest.mark.slow


def run(folder: Path, what: str, launcher: list[str] | None = None) -> None:
    """Run the program to its end."""
    command = [sys.executable, *(launcher or []), PROGRAM, str(folder), what]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def environment() -> dict[str, str]:
    """One thread, and messages by the loopback device."""
    here = str(Path(__file__).parents[1])
    return os.environ | {"PYTHONPATH": here, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def losses(folder: Path) -> list[float]:
    """Losses of all steps."""
    lines = [json.loads(line) for line in (folder / "encoder" / "steps.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


ROUNDING = 1e-4
"""Of the longest gradient. Each process has other texts in a batch, which moves a feature by up to 1e-6 of its length
where products depend on the number of their rows; the loss divides by deviations of scores, far smaller than these."""


def test_two_processes_have_the_gradient_of_one(tmp_path: Path) -> None:
    tiny_settings(tmp_path)
    run(tmp_path, "gradients")
    run(tmp_path, "gradients", TORCHRUN)
    for layers in ("all", "1", "0", "1-beside"):
        alone = load_file(tmp_path / f"gradients-{layers}-0-of-1.safetensors")
        assert ("beside.log_weights" in alone) == layers.endswith("beside")
        longest = max(float(gradient.norm()) for gradient in alone.values())
        for rank in (0, 1):
            shared = load_file(tmp_path / f"gradients-{layers}-{rank}-of-2.safetensors")
            assert alone.keys() == shared.keys()
            for name in alone:
                assert float((alone[name] - shared[name]).norm()) <= ROUNDING * longest, (layers, rank, name)


def test_two_processes_train_one_encoder(tmp_path: Path) -> None:
    together, alone = tmp_path / "together", tmp_path / "alone"
    for folder, launcher in ((together, TORCHRUN), (alone, None)):
        folder.mkdir()
        tiny_settings(folder)
        run(folder, "train", launcher)
    assert losses(together)[:5] == pytest.approx(losses(alone)[:5], rel=1e-3)
    assert load_encoder(together / "encoder").trained_for_attribution


def test_a_run_that_is_killed_at_any_moment_ends_in_the_bytes_of_an_undisturbed_one(tmp_path: Path) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    for folder in (undisturbed, killed):
        folder.mkdir()
        tiny_settings(folder)
    run(undisturbed, "train")
    steps = killed / "encoder.partial" / "steps.jsonl"
    for least in (1, 400, 2500, 5000):
        process = subprocess.Popen([sys.executable, PROGRAM, str(killed), "train"], env=environment())
        while process.poll() is None and not (steps.exists() and steps.stat().st_size > least):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    run(killed, "train")
    found, expected = (
        {name: content for name, content in tree(folder / "encoder").items() if name not in ("times.jsonl", ".lock")}
        for folder in (killed, undisturbed)
    )
    assert found == expected
