"""The GPU kit, dry-run on the CPU: every piece runs, failures are noted, interruptions are resumed."""

import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import pytest
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.cli.app import make_app

FOLDER = Path(__file__).parents[2] / "experiments" / "gpu"
sys.path.insert(0, str(FOLDER))
import pieces  # noqa: E402
import run  # noqa: E402

NAMES = pieces.names()
ROLES = [name for name in NAMES if name.startswith("farm-")]
ALIKE = {f"bench-{name}" for name in ("train-bfloat16", "logra-float32", "tracin-float32")} | {"profile-float32"}
"""Pieces that run the code of another one in the other precision; bfloat16 has a processor train for 18 seconds."""
SLOW = {"smoke-train", "smoke-gradients"}


@lru_cache
def short_examples(count: int, name: str = "train") -> airrep.Corpus:
    """The shortest examples of the demo's."""
    corpus = airrep.read_corpus(Path(airrep.__file__).parent / "data" / f"{name}.jsonl")
    sizes = [len(one.prompt) + len(one.response) for one in corpus]
    return corpus.take(sorted(range(len(corpus)), key=sizes.__getitem__)[:count])


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pieces.Kit]:
    """A kit of the smallest sizes, whose commands run in this process, with an LM of random weights."""
    made = pieces.Kit(tmp_path_factory.mktemp("kit"), "cpu", True)
    made.results.mkdir()
    lm = tiny_lm(made.work / "tiny-lm", max_position_embeddings=512)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "small_lm", lambda: lm)
        patch.setattr(pieces, "examples", short_examples)
        patch.setattr(pieces, "_airrep", lambda *words: make_app(words[0])(list(words), standalone_mode=False))
        yield made


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n
        for n in NAMES
        if n not in ALIKE and n not in ROLES[1:]
    ],
)
def test_a_piece_runs_without_a_card(kit: pieces.Kit, name: str) -> None:
    found = pieces.run(name, kit)
    assert found["status"] == ("left out" if name == "smoke-ray" else "done")
    for row in found["rows"]:
        assert row.get("seconds", 1) > 0
        assert row.get("distance", 0) <= row.get("limit", 0)


def test_a_smoke_test_fails_where_the_card_is_off() -> None:
    with pytest.raises(AssertionError, match=r"scores: is 1\.00e\+00 of its length from the CPU's; expected at most"):
        pieces._near("scores", [2.0, 0.0], [1.0, 0.0], 0.1)
    with pytest.raises(AssertionError, match="is nan of its length"):
        pieces._near("scores", [float("nan")], [1.0], 0.1)


def test_a_finished_piece_is_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["--out", str(tmp_path), "--device", "cpu", "--tiny", "--only", "machine"]
    assert run.main(call) == 0
    assert "machine                         done," in capsys.readouterr().out
    assert run.main(call) == 0
    assert capsys.readouterr().out.startswith("1 done, 0 left out, 0 failed, 0 to do")
    assert "| torch |" in (tmp_path / "report.md").read_text()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The driver with pieces that are a script: one sleeps the first time, one fails."""
    script = tmp_path / "pieces.py"
    script.write_text(
        "import json, pathlib, sys, time\n"
        "name, out, _ = sys.argv[1:]\n"
        "mark = pathlib.Path(__file__).with_name('mark')\n"
        "if name == 'long' and not mark.exists():\n"
        "    mark.touch()\n"
        "    time.sleep(60)\n"
        "if name == 'bad':\n"
        "    sys.exit('it broke')\n"
        "pathlib.Path(out).write_text(json.dumps({'status': 'done', 'rows': []}))\n"
    )
    monkeypatch.setattr(run, "__file__", str(tmp_path / "run.py"))
    monkeypatch.setattr(run, "names", lambda: ["bad", "long", "last"])
    monkeypatch.setattr(run, "ENOUGH", 1.0)
    monkeypatch.setattr(run, "PATIENCE", 1.0)
    return run


def test_the_time_ends_a_piece_and_the_next_call_goes_on(
    scripted: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["--out", str(tmp_path / "out"), "--device", "cpu"]
    assert scripted.main([*call, "--minutes", "0.19"]) == 3
    told = capsys.readouterr().out
    assert "failed, " in told
    assert "it broke" in told
    assert "interrupted after" in told
    assert scripted.main(call) == 1
    told = capsys.readouterr().out
    assert "bad" not in told.splitlines()[0]
    assert "2 done, 0 left out, 1 failed, 0 to do" in told
