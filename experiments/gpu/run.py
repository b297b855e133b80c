"""The GPU kit: smoke tests, benchmarks and a label farm on one CUDA card, in pieces, resumable.

Usage: python experiments/gpu/run.py --out FOLDER [--minutes 8] [--device cuda] [--lm FOLDER --data FOLDER] [--tiny]

Each call runs the pieces that are not done yet, one after the other, each in a process of its own, until the minutes
are over; the same call goes on from there. A piece that fails is noted and the next one runs. FOLDER/results has a
file of JSON for each piece, FOLDER/labels the label matrices, FOLDER/report.md all tables: a few MB; FOLDER/work can
be thrown away. Ends with 0 when all is done, 1 when some piece failed, 3 when pieces are left: call it again.

    --list            the pieces, and how each stands
    --only NAME       only pieces that begin so; may be repeated
    --again           pieces that failed or were left out, too
    --device cpu --tiny   a dry run without a card, in a minute or two
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pieces import ROLES, Kit, names

DONE, FAILED, LEFT_OUT = "done", "failed", "left out"
ENOUGH = 20.0
"""Seconds that must be left for another piece to begin."""
PATIENCE = 8.0
"""Seconds that an interrupted piece has to stop by itself."""


def main(arguments: list[str] | None = None) -> int:
    """Run pieces until the time is over."""
    given = _parse(arguments)
    until = time.monotonic() + 60 * given.minutes
    kit = Kit(given.out.resolve(), given.device, given.tiny, given.lm, given.data)
    chosen = [name for name in names() if not given.only or name.startswith(tuple(given.only))]
    kit.results.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        if given.list:
            print(f"{name:32}{read(kit, name).get('status', '')}")
        elif _wanted(read(kit, name), given.again):
            if until - time.monotonic() < ENOUGH:
                break
            print(f"{name:32}", end="", flush=True)
            print(run_piece(kit, name, until), flush=True)
    if given.list:
        return 0
    (kit.out / "report.md").write_text(report(kit), encoding="utf-8")
    states = [read(kit, name).get("status") for name in chosen]
    left, failed = states.count(None), states.count(FAILED)
    done = f"{states.count(DONE)} done, {states.count(LEFT_OUT)} left out"
    print(f"{done}, {failed} failed, {left} to do: {kit.out}/report.md")
    return 3 if left else int(failed > 0)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--lm", type=Path, help="folder of SmolLM2-135M, for the farm; benchmarks take random weights")
    parser.add_argument("--data", type=Path, help=f"folder of the roles' files: {', '.join(ROLES)}.jsonl")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes: a dry run")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args(arguments)


def _wanted(found: dict[str, Any], again: bool) -> bool:
    return found.get("status") is None or (again and found["status"] != DONE)


def read(kit: Kit, name: str) -> dict[str, Any]:
    """The result of a piece; empty if there is none yet."""
    path = kit.results / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found


def run_piece(kit: Kit, name: str, until: float) -> str:
    """Run one piece, and write its result unless the time ended it; returns how it stands."""
    path, begun = kit.results / f"{name}.json", time.monotonic()
    whole = until - begun
    fresh = kit.results / f".{name}.part"
    fresh.unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__).with_name("pieces.py")), name, str(fresh), json.dumps(kit.to_dict())]
    code, output = _limited(command, whole, kit.out / "work")
    spent = time.monotonic() - begun
    if code is None:
        return f"interrupted after {spent:.0f} s: goes on with the next call"
    if code == 0 and fresh.is_file():
        found = json.loads(fresh.read_text("utf-8"))
    else:
        found = {"status": FAILED, "error": output[-1500:], "rows": []}
    fresh.unlink(missing_ok=True)
    written = path.with_suffix(".tmp")
    written.write_text(json.dumps({"piece": name, "seconds": round(spent, 1), **found}, indent=1), "utf-8")
    written.replace(path)
    reason = found.get("error") or found.get("reason") or ""
    return f"{found['status']}, {spent:.0f} s{': ' + reason.strip().splitlines()[-1] if reason else ''}"


def _limited(command: list[str], seconds: float, work: Path) -> tuple[int | None, str]:
    """Exit status and output of a command; None if the time was over, after it had ten seconds to stop by itself."""
    work.mkdir(parents=True, exist_ok=True)
    log = work / "log"
    with log.open("wb") as stream:
        child = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | None = child.wait(timeout=max(1.0, seconds - 10))
        except subprocess.TimeoutExpired:
            code = None
            for sign, patience in ((signal.SIGINT, PATIENCE), (signal.SIGKILL, 2)):
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(child.pid, sign)
                    child.wait(timeout=patience)
    return code, log.read_text("utf-8", errors="replace")


def report(kit: Kit) -> str:
    """All results as tables of Markdown."""
    lines = ["# GPU kit", ""]
    for name in names():
        found = read(kit, name)
        if not found:
            continue
        lines += [f"## {name}: {found['status']}, {found['seconds']:.0f} s", ""]
        if found.get("machine"):
            lines += [found["machine"], ""]
        lines += [found.get("reason") or found.get("error", "").strip().replace("\n", "\n    "), ""]
        keys = list(dict.fromkeys(key for row in found["rows"] for key in row))
        if keys:
            lines += ["| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
            lines += ["| " + " | ".join(_cell(row.get(key)) for key in keys) + " |" for row in found["rows"]] + [""]
    return "\n".join(lines)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(main())
