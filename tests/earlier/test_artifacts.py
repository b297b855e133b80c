"""Artifacts that an earlier version wrote: they open, are whole, answer as they did, and can be resumed.

`artifacts.tar.xz` was made by `make.py` with the package as it was before its modules moved into sub-packages;
`expected.json` has what that package answered and ended with. Files are compared byte by byte where this machine rounds
as that one did and has the same packages; elsewhere by their names, and answers by their values.
"""

import contextlib
import hashlib
import io
import json
import re
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

import airrep
from airrep.__main__ import main
from airrep.encoder.load import load_encoder
from airrep.lm.warmup import open_warmup

ARCHIVE = Path(__file__).parent / "artifacts.tar.xz"
UNFINISHED = ".unfinished"
"""Ends the names of interrupted work in the archive."""
NEVER_THE_SAME = ("costs.jsonl", "times.jsonl")
PLACES = "places.arrow"
"""Where examples were read, which earlier versions did not keep."""
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pyarrow", "transformers", "safetensors", "tokenizers")
EVALUATIONS = ("lds", "loo", "classify", "select", "comparison", "plan")
RESULTS = ("top", "group", "what-if")


def arithmetic() -> str:
    """How this machine rounds, and by which packages: a digest."""
    numbers = torch.arange(1, 4097, dtype=torch.float32).reshape(64, 64).sin()
    made = torch.softmax(torch.nn.functional.gelu(numbers @ numbers.T / 8), -1) @ numbers
    rounded = torch.nn.functional.layer_norm(made, (64,)).numpy().tobytes()
    return hashlib.sha256(rounded + repr([version(name) for name in PACKAGES]).encode()).hexdigest()


def fetch(name: str, **_: object) -> str:
    """What the Hub would give: a folder beside the data."""
    owner, _, model = name.partition("/")
    assert owner == "example", name
    return str(Path("models") / model)


def run(*words: str) -> tuple[int, str, str]:
    """Run the command line in this process: its status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    argv = patch.object(sys, "argv", ["airrep", *words])
    with argv, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code
    return int(code or 0), out.getvalue(), err.getvalue()


def do(*words: str) -> str:
    """Run the command line, which must end well; returns its stdout."""
    status, out, err = run(*words)
    assert status == 0, f"{' '.join(words)}: {err}"
    return out


def last_line(told: str) -> str:
    """The last that was told on stderr, without how far the work was."""
    lines = [line.strip() for line in told.replace("\r", "\n").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def tree(path: str) -> dict[str, str]:
    """Digests of every file but for what is never the same; of manifests without versions of packages and cautions."""
    files = sorted(file for file in Path(path).rglob("*") if file.is_file()) if Path(path).is_dir() else [Path(path)]
    return {
        file.relative_to(path).as_posix(): _digest(file)
        for file in files
        if file.name not in (*NEVER_THE_SAME, PLACES) and not file.name.startswith(".")
    }


def _digest(file: Path) -> str:
    content = file.read_bytes()
    if file.name == "manifest.json":
        kept = {
            key: v for key, v in json.loads(content).items() if key not in ("packages", "manifest_sha256", "caution")
        }
        kept["files"] = {key: v for key, v in kept["files"].items() if not key.endswith(PLACES)}
        content = json.dumps(kept, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def work_done(path: str) -> int:
    """Shards that were encoded, fine-tunes or steps that were made, as files of costs and times have them."""
    files = [file for name in NEVER_THE_SAME for file in Path(path).glob(name)]
    lines = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    return sum(line.get("stage", "encode") == "encode" for line in lines)


def decided(value: Any) -> Any:
    """A result without what measured costs decide, and without the command that made it."""
    if isinstance(value, dict):
        return {key: decided(inner) for key, inner in value.items() if key not in ("command", "cost")}
    return [decided(inner) for inner in value] if isinstance(value, list) else value


def assert_alike(value: Any, expected: Any, where: str = "") -> None:
    """The same values, numbers but for rounding."""
    if isinstance(expected, dict):
        assert [key for key in value if key in expected] == list(expected), where  # newer results may tell more
        for key in expected:
            assert_alike(value[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(value) == len(expected), where
        for number, (one, other) in enumerate(zip(value, expected, strict=True)):
            assert_alike(one, other, f"{where}[{number}]")
    elif isinstance(expected, float):
        assert value == pytest.approx(expected, rel=1e-4, abs=1e-5), where  # processors round differently
    else:
        assert value == expected, where


def ask(index: str, questions: dict[str, list[str]], queries: str = "queries.jsonl") -> dict[str, Any]:
    """Answers of an index, as JSON, with a digest of each example for the example."""
    answers = {name: do(words[0], index, queries, *words[1:], "--json") for name, words in questions.items()}
    return {name: json.loads(answer, object_hook=_shortened) for name, answer in answers.items()}


def _shortened(value: dict[str, Any]) -> Any:
    if "response" not in value:
        return value
    told = sorted(part for part in value.items() if part[0] != "read_from")  # which earlier versions did not tell
    return hashlib.sha256(repr(told).encode()).hexdigest()[:8]


def _expected() -> dict[str, Any]:
    """What the earlier version answered; nothing while `make.py` makes it."""
    if not ARCHIVE.exists():
        return {}
    with tarfile.open(ARCHIVE) as archive:
        found: dict[str, Any] = json.load(archive.extractfile("expected.json"))
        return found


EXPECTED = _expected()
QUESTIONS: dict[str, list[str]] = EXPECTED.get("questions", {})


@pytest.fixture(scope="module")
def same_arithmetic(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> bool:
    """Whether bytes can be compared: an index and labels made anew have those of the archive."""
    if arithmetic() != EXPECTED["arithmetic"]:
        return False
    with working_in(copied(tmp_path_factory.mktemp("arithmetic") / "data"), cache):
        return all(_made_anew(name) == _numbers(name) for name in ("index", "labels"))


def _made_anew(name: str) -> list[str]:
    """Digests of the arrays of an artifact that is made once more."""
    words = EXPECTED["again"][name]["command"]
    do(*(f"{word}-anew" if before == "--out" else word for before, word in zip(["", *words], words, strict=False)))
    return _numbers(f"{name}-anew")


def _numbers(name: str) -> list[str]:
    return sorted(digest for file, digest in tree(name).items() if file.endswith(".npy"))


def copied(folder: Path) -> Path:
    """A copy of the data, with interrupted work as an interruption leaves it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    for left in folder.glob(f"*{UNFINISHED}"):
        place = folder / EXPECTED["begun"][left.name.removesuffix(UNFINISHED)]["left"]
        left.rename(place)
        (place / ".lock").touch()
    return folder


@contextlib.contextmanager
def working_in(folder: Path, cache: Path) -> Iterator[Path]:
    """Work from within a folder, with its models for those of the Hub."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("AIRREP_CACHE", str(cache))
        patched.setenv("COLUMNS", "100")
        patched.setattr("huggingface_hub.snapshot_download", fetch)
        yield folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gradients that all tests share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the data that no test changes."""
    folder = copied(tmp_path_factory.mktemp("world") / "data")
    before = tree(str(folder))
    yield folder
    assert tree(str(folder)) == before


@pytest.fixture
def kept(whole: Path, cache: Path) -> Iterator[Path]:
    """The current folder is a copy of the data, which stays as it is."""
    with working_in(whole, cache):
        yield whole


@pytest.fixture
def own(tmp_path: Path, cache: Path) -> Iterator[Path]:
    """The current folder is a copy of the data for one test."""
    with working_in(copied(tmp_path / "data"), cache) as folder:
        yield folder


def test_the_data_holds_no_path_of_the_machine_that_made_it(whole: Path) -> None:
    for file in sorted(whole.rglob("*")):
        if file.is_file():
            found = re.search(rb"/(tmp|work|root|home|usr|var|opt|mnt|private|Users)/", file.read_bytes())
            assert found is None, f"{file.relative_to(whole)}: {found}"


@pytest.mark.parametrize("name", EXPECTED.get("kinds", {}))
def test_every_byte_has_its_checksum(kept: Path, name: str) -> None:
    status, shown, told = run("show", name, "--verify")
    assert status == 0, told
    assert "whole" in told
    assert name.rpartition("/")[2] in shown


def test_python_opens_each_kind(kept: Path) -> None:
    assert len(airrep.open_index("index")) == 30
    assert len(airrep.open_index("changed")) == 35
    assert len(airrep.open_plan("subsets").instances) == 3
    assert airrep.open_plan("removals").settings.kind == "removals"
    assert airrep.open_labels("labels").seeds == 2
    assert open_warmup("warm").checkpoints
    assert load_encoder("encoder").dimension == 8
    assert [airrep.read_evaluation(name).measure for name in EVALUATIONS[:4]] == list(EVALUATIONS[:4])
    assert [airrep.read_result(name).kind for name in RESULTS] == list(RESULTS)


MEANT = {"index": ("--method", "airrep"), **dict.fromkeys(("logra", "of-warm"), ("--set", "preset=paper"))}
"""What commands did not have to say, before their defaults changed."""


@pytest.mark.parametrize("name", sorted({*EXPECTED.get("again", {})} - {"stack", "adapted", "logra"}))
def test_a_command_run_again_finds_what_it_made(kept: Path, name: str) -> None:
    before, again = tree(name), EXPECTED["again"][name]
    status, _, told = run(*again["command"], *MEANT.get(name, ()))
    told_twice = (last_line(told), again["told"])
    before_next = [re.split("; next: | instances?", line)[0] for line in told_twice]  # what follows is told anew
    assert (status, before_next[0]) == (again["status"], before_next[1])
    assert tree(name) == before


def test_an_adaptation_learns_channels_from_the_labels_that_it_has(own: Path) -> None:
    before = tree("adapted")
    do(*EXPECTED["again"]["adapted"]["command"])
    after = tree("adapted")
    assert {name: after[name] for name in before} == before
    assert {name.split("/")[0] for name in {*after} - {*before}} == {"channels", "response-encoder", "channels-trained"}


@pytest.mark.parametrize("name", ["stack", "logra", "begun-logra"])
def test_what_was_learnt_in_an_earlier_way_is_kept(kept: Path, name: str) -> None:
    kept_there = EXPECTED["begun" if name.startswith("begun") else "again"][name]
    place = kept_there.get("left", name)
    before = tree(place)
    status, _, told = run(*kept_there["command"], *MEANT.get(name.removeprefix("begun-"), ()))
    assert status == 1
    assert re.search("holds an? (stack|index) made with another|holds an unfinished index of other", last_line(told))
    assert tree(place) == before


@pytest.mark.parametrize("name", EXPECTED.get("answers", {}))
def test_an_index_answers_as_it_did(kept: Path, name: str) -> None:
    assert_alike(ask(name, QUESTIONS), EXPECTED["answers"][name])


@pytest.mark.parametrize("name", sorted({*EXPECTED.get("begun", {})} - {"begun-logra"}))
def test_interrupted_work_ends_as_undisturbed_work_does(own: Path, name: str, same_arithmetic: bool) -> None:
    begun = EXPECTED["begun"][name]
    left = Path(begun["left"])
    assert left.exists()
    do(*begun["command"], *MEANT.get(name.removeprefix("begun-"), ()))
    assert left.name == name or not left.exists()
    made = tree(name)
    assert work_done(name) == begun["work"], "finished parts were made again"
    if begun["result"] is not None:
        assert_alike(decided(json.loads((own / name / "result.json").read_bytes())), begun["result"])
        made = {file: digest for file, digest in made.items() if file not in ("manifest.json", "result.json")}
    if same_arithmetic:
        assert made == begun["ends"]
    assert _undigested(made) == _undigested(begun["ends"])


def _undigested(files: dict[str, str]) -> list[str]:
    """Names without the digests of numbers in them."""
    return sorted(re.sub(r"(losses|base)-(\d+)-[0-9a-f]{12}", r"\1-\2", name) for name in files)


@pytest.mark.parametrize("name", EXPECTED.get("changes", {}))
def test_an_index_is_appended_to_deleted_from_and_compacted_as_before(
    own: Path, name: str, same_arithmetic: bool
) -> None:
    expected = EXPECTED["changes"][name]
    for step in expected["steps"]:
        do(*step["command"])
        made = tree(name)
        assert made == step["made"] if same_arithmetic else len(made) == len(step["made"])
        do("show", name, "--verify")
    answers = ask(name, {"top": QUESTIONS["top"]})
    if not same_arithmetic:
        forget_fingerprint(answers, expected["answers"])
    assert_alike(answers, expected["answers"])


def forget_fingerprint(answers: Any, expected: Any) -> None:
    """Take the index's fingerprint, which is that of its numbers, from what is expected."""
    answers["top"]["provenance"]["index"] = expected["top"]["provenance"]["index"]


@pytest.mark.parametrize("name", EXPECTED.get("built", {}))
def test_what_was_learnt_serves_new_indexes(own: Path, name: str, same_arithmetic: bool) -> None:
    built = EXPECTED["built"][name]
    do(*built["command"], *MEANT.get(name, ()))
    answers = ask(name, {"top": QUESTIONS["top"]}, built["queries"])
    if not same_arithmetic:
        forget_fingerprint(answers, built["answers"])
    assert_alike(answers, built["answers"])


@pytest.mark.parametrize("name", EXPECTED.get("judged", {}))
def test_old_artifacts_are_judged_as_they_were(own: Path, name: str, same_arithmetic: bool) -> None:
    do(*EXPECTED["again"][name]["command"], "--replace")
    result = decided(json.loads((own / name / "result.json").read_bytes()))
    if same_arithmetic:
        assert_alike(result, EXPECTED["judged"][name])
    assert result.keys() == EXPECTED["judged"][name].keys()


@pytest.mark.parametrize("runs", [EVALUATIONS, RESULTS], ids=["evaluations", "results"])
def test_a_report_is_written_of_them(own: Path, runs: tuple[str, ...]) -> None:
    plain = ["--no-figures"] if runs == EVALUATIONS else []
    do("report", *runs, "--out", "report.html", *plain)
    page = Path("report.html").read_text("utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
