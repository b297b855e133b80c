"""A command of the user's makes labels, whatever it is called and however it fails."""

import json
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.toy_farm import QUERIES, TRAIN, visible

from airrep.corpus.corpus import read_corpus
from airrep.errors import ConfigError, TrainingError
from airrep.labels.labels import Labels
from airrep.labels.outside import fill, label_by_command, parse_command
from airrep.labels.plan import SubsetPlan
from airrep.runtime.engine import LocalProcesses

TRAINER = """
import json, sys
train, queries, losses = sys.argv[1:4]
ids = [json.loads(line)["id"] for line in open(train)]
asked = [json.loads(line)["id"] for line in open(queries)]
with open(losses, "w") as out:
    for number, query in enumerate(asked):
        loss = sum(map(len, ids)) + number / 8
        out.write(json.dumps({"query": query, "loss": loss}) + "\\n")
"""


def script(folder: Path, code: str = TRAINER) -> str:
    """A trainer in a folder with a hostile name; returns the command."""
    path = folder / "it's $(touch hacked); `touch hacked`" / "train.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{shlex.quote(str(path))} {{train}} {{queries}} {{losses}}"


def labelled(plan: SubsetPlan, command: str, out: Path, **options: Any) -> Labels:
    return label_by_command(plan, TRAIN, QUERIES, command, out, **{"retries": 0, **options})


def expected(plan: SubsetPlan, i: int) -> np.ndarray:
    """Losses ``(q, m)`` that the trainer should give, worked out here."""
    sums = [sum(len(example.id) for example in TRAIN.take(plan.subset_rows(i, j))) for j in range(plan.subset_count)]
    return np.array(sums)[None] + np.arange(len(plan.query_rows(i)))[:, None] / 8


@pytest.mark.parametrize("workers", [1, 2])
def test_losses_are_those_that_the_command_wrote(
    workers: int, tmp_path: Path, plan: SubsetPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = LocalProcesses(2) if workers == 2 else None
    labels = labelled(plan, script(tmp_path), tmp_path / "labels", engine=engine, lm="models/mine")
    for i in range(len(plan)):
        np.testing.assert_array_equal(labels.losses(i)[0], expected(plan, i))
        assert labels.base_losses(i) is None
    assert labels.complete
    assert labels.state["lm"]["name"] == "mine"
    assert labels.state["fine_tune"]["trainer"] == "command"
    assert not (tmp_path / "hacked").exists()
    before = visible(tmp_path / "labels")
    labelled(plan, script(tmp_path), tmp_path / "labels", lm="models/mine")
    assert visible(tmp_path / "labels") == before


def test_what_failed_is_resumed(tmp_path: Path, plan: SubsetPlan) -> None:
    code = TRAINER + f"open({str(tmp_path / 'log')!r}, 'a').write('x')\n"
    gate = tmp_path / "gate"
    blocked = f"import os, sys\nif not os.path.exists({str(gate)!r}) and '1' in open(sys.argv[1]).read()[:12]:\n"
    blocked += "    sys.exit('no room')\n"
    first = script(tmp_path, blocked + code)
    labels = labelled(plan, first, tmp_path / "labels")
    failed = len(labels.quarantined)
    assert 0 < failed < 10
    assert labels.quarantined[0].reason.endswith("the command failed with exit status 1: no room.")
    done = len((tmp_path / "log").read_text())
    assert done == 10 - failed
    gate.touch()
    labels = labelled(plan, first, tmp_path / "labels", retry_quarantined=True)
    assert labels.complete
    assert len((tmp_path / "log").read_text()) == 10


FAILURES = {
    "import sys; sys.stderr.write('a\\n' * 9 + 'why\\x1b[31m\\n\\n'); sys.exit(3)": "status 3: a | a | why [31m.",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "ended by SIGKILL: nothing on stderr.",
    "import sys; sys.stderr.write('y' * 3_000_000); sys.exit(1)": "exit status 1: yyy",
    "pass": "the command ran, but its losses cannot be used: {losses}: cannot be read (No such file or directory)",
    "import sys; open(sys.argv[3], 'w').write('1\\nNaN\\n')": "cannot be used: {losses}:2: loss is NaN",
    "import sys; open(sys.argv[3], 'w').write('1\\n')": "the first is that of query 1.",
    "import sys; open(sys.argv[3], 'w').write('1\\n' * 99)": "is one loss too many for",
    "import sys; open(sys.argv[3], 'w').write('{\"query\": 0, \"loss\": 1}\\n' * 2)": "of this subset a second time",
}


@pytest.mark.parametrize("code", FAILURES)
def test_a_failure_is_told_with_its_last_words(code: str, tmp_path: Path, plan: SubsetPlan) -> None:
    with pytest.raises(TrainingError) as caught:
        labelled(plan, script(tmp_path, code), tmp_path / "labels", part="2/12")
    message = str(caught.value)
    assert FAILURES[code] in message
    assert "\n" not in message
    assert "\x1b" not in message
    assert len(message) < 1000


@pytest.mark.parametrize("form", ["numbers", "npy"])
def test_plain_numbers_and_arrays_are_taken_too(form: str, tmp_path: Path, plan: SubsetPlan) -> None:
    write = {
        "numbers": "open(losses, 'w').write(''.join(f'{n / 2}\\n' for n in range(len(asked))))",
        "npy": "import numpy; numpy.save(open(losses, 'wb'), numpy.arange(len(asked)) / 2)",
    }[form]
    code = TRAINER.partition("with open")[0] + write
    labels = labelled(plan, script(tmp_path, code), tmp_path / "labels", part="2/12")
    place = labels.tasks[1].place
    found = labels.read(labels.tasks[1].key)
    assert place.subset == 0
    np.testing.assert_array_equal(found, np.arange(len(plan.query_rows(0))) / 2)


def test_each_run_gets_its_subset_seed_and_name(tmp_path: Path, plan: SubsetPlan) -> None:
    keep = f"""
import shutil, sys
shutil.copyfile(sys.argv[1], {str(tmp_path)!r} + "/" + sys.argv[4] + "-" + sys.argv[5] + ".jsonl")
open(sys.argv[6] + "/own", "w").write("x")
"""
    command = script(tmp_path, TRAINER + keep) + " {subset} {seed} {folder}"
    labelled(plan, command, tmp_path / "labels", seeds=2)
    found = sorted(tmp_path.glob("*-*-*.jsonl"))
    assert len(found) == 20
    for path in found:
        i, j, _ = map(int, path.stem.split("-"))
        assert list(read_corpus(path)) == list(TRAIN.take(plan.subset_rows(i, j)))
    assert len({path.stem.rpartition("-")[2] for path in found}) == 20


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("", "does not contain {train}, which airrep replaces"),
        ("cp {train}", "does not contain {losses}, which airrep replaces"),
        ("cp '{train} {losses}", "cannot be split into words (No closing quotation)"),
        ("there-is-none {train} {losses}", "there is no program 'there-is-none' that can be run"),
        ("/tmp {train} {losses}", "there is no program '/tmp' that can be run"),
    ],
)
def test_a_command_that_cannot_run_is_refused(command: str, reason: str, tmp_path: Path, plan: SubsetPlan) -> None:
    with pytest.raises(ConfigError) as caught:
        labelled(plan, command, tmp_path / "labels")
    assert reason in str(caught.value)
    assert not (tmp_path / "labels").exists()


def test_a_script_without_an_interpreter_ends_the_run(tmp_path: Path, plan: SubsetPlan) -> None:
    path = tmp_path / "plain"
    path.write_bytes(b"\x00\x01 no program")
    path.chmod(0o755)
    with pytest.raises(ConfigError, match=r"cannot be started \(Exec format error\)"):
        labelled(plan, f"{path} {{train}} {{losses}}", tmp_path / "labels")


def test_what_is_put_in_is_not_replaced_again() -> None:
    assert fill("a{train}b{losses}{x}", {"train": "{losses}", "losses": "L"}) == "a{losses}bL{x}"
    assert parse_command("sh -c 'echo {train} {losses}'") == ("sh", "-c", "echo {train} {losses}")
    assert json.dumps(fill("{seed}", {"seed": 3})) == '"3"'
