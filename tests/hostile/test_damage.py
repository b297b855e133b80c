"""Damage to the files of every kind of artifact: a right answer or an error of one line, whatever the byte.

A few hundred seeded damages by default; 10,000 and more with AIRREP_HOSTILE=long, others with another
AIRREP_HOSTILE_SEED; a table at the end tells how many were tried.
"""

import json
import os
import random
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile.artifacts_to_damage import KINDS, Kind, whole_losses
from worlds.kills import children_seconds, in_child

from airrep.errors import AirRepError
from airrep.runtime.artifacts import MANIFEST, json_digest

LONG = os.environ.get("AIRREP_HOSTILE") == "long"
SEED = os.environ.get("AIRREP_HOSTILE_SEED", "0")
"""Draws other damages."""
PIECES = 5 if LONG else 1
"""Tests that share the damages of each kind, so that processes end at the same time."""
TRIALS = 200 if LONG else 40
"""Damages of a kind of artifact in each piece."""
FORGED = 60 if LONG else 12
"""Further manifests with fitting checksums, of each kind that has one."""
PATIENCE = 60
"""Seconds for one question."""
LONGEST = 8000
"""Characters of an error, which is one line and may name a long text that it found."""

Damage = Callable[[random.Random, bytes], bytes]


def flipped(chosen: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(chosen.choice((1, 1, 1, 8))):
        changed[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
    return bytes(changed)


def cut(chosen: random.Random, content: bytes) -> bytes:
    return content[: chosen.randrange(len(content))]


def _range(chosen: random.Random, content: bytes) -> slice:
    start = chosen.randrange(len(content))
    return slice(start, start + chosen.choice((1, 8, 64, 4096)))


def zeroed(chosen: random.Random, content: bytes) -> bytes:
    part = _range(chosen, content)
    return content[: part.start] + bytes(len(content[part])) + content[part.stop :]


def doubled(chosen: random.Random, content: bytes) -> bytes:
    """A range over what follows it: of the same length, as a block written twice."""
    part = _range(chosen, content)
    piece = content[part]
    return (content[: part.stop] + piece + content[part.stop + len(piece) :])[: len(content)]


def grown(chosen: random.Random, content: bytes) -> bytes:
    return content + content[_range(chosen, content)]


def drawn(chosen: random.Random, content: bytes) -> bytes:
    part = _range(chosen, content)
    return content[: part.start] + chosen.randbytes(len(content[part])) + content[part.stop :]


DAMAGES: tuple[Damage, ...] = (flipped, flipped, cut, zeroed, doubled, grown, drawn)
STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 70, 1e308, float("nan"), float("inf"), "", "x" * 5000, "../../etc/passwd", "/dev/zero"),
    *("\ud800", "\x00", "\x1b[31m\u202e", [], {}, [[]], {"a": None}, [None] * 3),
)


def _nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a JSON value, with each of its keys."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def other_json(chosen: random.Random, content: bytes, *, forged: bool = False) -> bytes:
    """A JSON file with one value replaced or left out; *forged*: with a checksum over itself that fits."""
    if chosen.random() < 0.1 and not forged:
        return _nested(chosen.choice((50, 990, 100_000))).encode()
    value = json.loads(content)
    container, key = chosen.choice([place for place in _places(value) if place[1] != "manifest_sha256"])
    if chosen.random() < 0.2:
        del container[key]
    else:
        container[key] = chosen.choice(STRANGE)
    if forged:
        value.pop("manifest_sha256", None)
        try:
            value["manifest_sha256"] = json_digest(value)
        except ValueError:  # of NaN and half of a surrogate pair
            value["manifest_sha256"] = "0" * 64
    return json.dumps(value).encode("utf-8", "surrogatepass")


def swapped(chosen: random.Random, files: list[Path]) -> dict[Path, bytes]:
    """Two files, each with the other's bytes."""
    one, other = chosen.sample(files, 2)
    return {one: other.read_bytes(), other: one.read_bytes()}


def damage(chosen: random.Random, folder: Path) -> dict[Path, bytes]:
    """New bytes of one file or two."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and _counts(path))
    if len(files) > 1 and chosen.random() < 0.1:
        return swapped(chosen, files)
    path = chosen.choice(files)
    content = path.read_bytes()
    if path.suffix == ".json" and chosen.random() < 0.5:
        return {path: other_json(chosen, content)}
    return {path: chosen.choice(DAMAGES)(chosen, content)} if content else {path: b"x"}


def _counts(path: Path) -> bool:
    """Whether a file is part of an artifact, not a lock or a record of times."""
    return not path.name.startswith(".") and path.name not in ("costs.jsonl",) and not path.name.startswith("times")


def told(kind: Kind, folder: Path) -> str:
    """What a question ends in: ``answer DIGEST``, ``error TEXT`` or ``FAULT TEXT``."""
    try:
        return f"answer {kind.ask(folder)}"
    except AirRepError as error:
        text = str(error)
        whole = len(text.splitlines()) == 1 and len(text) < LONGEST
        return f"error {text}" if whole else f"FAULT error of {len(text)} characters: {text[:200]!r}"
    except BaseException:
        return "FAULT " + " | ".join(traceback.format_exc().strip().splitlines()[-5:])


class Campaign:
    """Damages one artifact again and again; questions are asked in forked processes."""

    def __init__(self, kind: Kind, whole: Path, scratch: Path) -> None:
        self.kind, self.whole, self.folder, self.log = kind, whole, scratch / whole.name, scratch / "log"
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        shutil.copytree(whole, self.folder)
        self.right = self._asked([{}])[0]
        assert self.right.startswith("answer "), self.right

    def run(self, changes: list[dict[Path, bytes]], *, forged: bool = False) -> None:
        """Ask after each of the damages, and count what came of it."""
        for change, found in zip(changes, self._asked(changes), strict=True):
            what = found.split()[0]
            if what == "answer" and found != self.right and self.kind.trusted and not forged:
                what, found = "WRONG", "WRONG answer, and silently"
            self.outcomes[what] += 1
            if what in ("FAULT", "WRONG"):
                names = ", ".join(path.relative_to(self.folder).as_posix() for path in change)
                self.faults.append(f"{names}: {found}")

    def _asked(self, changes: list[dict[Path, bytes]]) -> list[str]:
        found: list[str] = []
        while len(found) < len(changes):
            self.log.write_bytes(b"")
            rest = changes[len(found) :]
            child = in_child(lambda rest=rest: self._work(rest))
            status = os.waitpid(child, 0)[1]
            found += [line for line in self.log.read_text(encoding="utf-8").split("\n") if line]
            if len(found) < len(changes):
                reason = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {status}"
                found.append(f"FAULT the process ended by {reason}")
            shutil.rmtree(self.folder)
            shutil.copytree(self.whole, self.folder)
        return found

    def _work(self, changes: list[dict[Path, bytes]]) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with self.log.open("a", encoding="utf-8", errors="backslashreplace") as log:
            for change in changes:
                before = {path: path.read_bytes() for path in change}
                for path, content in change.items():
                    path.write_bytes(content)
                signal.alarm(PATIENCE)
                line = told(self.kind, self.folder)
                signal.alarm(0)
                log.write(line.replace("\n", " ") + "\n")
                log.flush()
                for path, content in before.items():
                    path.write_bytes(content)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """One artifact of each kind, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("artifacts")
    whole_losses(folder)

    def make(name: str) -> Path:
        path = folder / name.replace(" ", "-") / "artifact"
        if not path.exists():
            path.parent.mkdir()
            KINDS[name].make(path)
        return path

    return make


@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("name", KINDS)
def test_damage_is_told_or_does_no_harm(
    name: str, piece: int, made: Callable[[str], Path], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    begun = children_seconds()
    chosen = random.Random(f"damage {name} {piece} {SEED}")
    campaign = Campaign(KINDS[name], made(name), tmp_path)
    campaign.run([damage(chosen, campaign.folder) for _ in range(TRIALS)])
    manifests = sorted(campaign.folder.rglob(MANIFEST))
    if manifests:
        forged = []
        for _ in range(FORGED):
            path = chosen.choice(manifests)
            forged.append({path: other_json(chosen, path.read_bytes(), forged=True)})
        campaign.run(forged, forged=True)
    tried = sum(campaign.outcomes.values())
    told = {"name": name, "tried": tried, "failed": len(campaign.faults), "seconds": children_seconds() - begun}
    record_property("damage", told)
    faults = "".join(f"  {fault}\n" for fault in campaign.faults[:20])
    assert not campaign.faults, f"{name}: tried {tried:,}, failed {len(campaign.faults)}\n{faults}"
