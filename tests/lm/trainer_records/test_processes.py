"""The callback in several processes that train together: whole records, one writer of each file."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from airrep.lm.trainer_records.record import read_training_record

TESTS = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("trained_in_processes.py")


def run(record: Path, processes: int, *more: str, count: int = 22) -> None:
    """Train in some processes, joined by gloo."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    children = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(record), str(count), *more],
            env={**os.environ, **common, "RANK": str(n), "LOCAL_RANK": str(n), "PYTHONPATH": path},
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(processes)
    ]
    for child in children:
        _, told = child.communicate(timeout=300)
        assert child.returncode == 0, told[-3000:]


def seen(folder: Path, processes: int) -> dict[int, list[int]]:
    """Rows of each step, of all processes."""
    parts = [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(processes)]
    return {int(step): [row for part in parts for row in part[step]] for step in parts[0]}


@pytest.mark.slow
def test_two_processes_leave_one_whole_record(tmp_path: Path) -> None:
    record = tmp_path / "record"
    run(record, 2, "again")
    found = read_training_record(record)
    assert found.about["world_size"] == 2
    assert found.about["ended_at"] == len(found.steps)
    assert {step.last: list(step.rows) for step in found.steps} == seen(tmp_path, 2)
    assert {path.name for path in record.iterdir()} == {"record.json", "steps-0.jsonl", "steps-1.jsonl"}
    # Another training of the same name, in the same processes.
    assert [(tmp_path / f"refused-{rank}").read_text() for rank in (0, 1)] == [
        f"{record}: is not empty. Empty it, give another folder, or pass replace=True."
    ] * 2

    first = found.steps[:2]
    run(record, 1, "resume")  # what went on by itself
    resumed = read_training_record(record)
    assert resumed.steps[:2] == first
    later = {step.last: list(step.rows) for step in resumed.steps[2:]}
    assert later == {step: rows for step, rows in seen(tmp_path, 1).items() if step > 2}
    assert len(later) > 2
