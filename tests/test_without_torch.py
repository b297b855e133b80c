"""What reads texts runs without torch, transformers, sentence-transformers and scikit-learn, and answers the same."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
import typer
from typer.core import TyperGroup

import airrep
from airrep.cli import app

ROOT = Path(__file__).parents[1]
DATA = ROOT / "src" / "airrep" / "data"
LM = ROOT / "src" / "airrep" / "models" / "tiny-lm"
EXTRAS = ("torch", "transformers", "sentence_transformers", "sklearn")
JUDGING = ("evaluate", "compare")
"""Commands that need SciPy; they come last, so that one process runs them."""
TYPED = ("--prompt", "Can I eat zucchini raw?", "--response", "No, zucchini should be cooked before eating.")

MAKING = (
    "index train.jsonl --out index",
    "append index more.jsonl",
    "index train.jsonl --method ngram --out ngram",
    "index train.jsonl --method tfidf --out tfidf",
    "index train.jsonl --method bm25 --out bm25",
    "index train.jsonl --method dsir --out dsir",
    "index train.jsonl --encoder static --out static",
    "index train.jsonl --method precomputed --set train=rows.npy --out rows",
    "top index queries.jsonl -k 3 --out top",
    "group index queries.jsonl --by source --out group",
    "select index queries.jsonl --count 10 --out selected.jsonl",
    "export index --to csv --out rows.csv",
    "report top group --out page.html",
    "sample train.jsonl --instances 1 --query-count 5 --subsets 8 --size 20 --out subsets",
    "label subsets train.jsonl --import losses.npy --lm other --out labels",
    "evaluate index ngram --labels labels --data train.jsonl --out lds",
    "demo --out demo",
)
ASKING = (
    *(f"top {name} queries.jsonl -k 2 --json" for name in ("index", "ngram", "tfidf", "bm25", "dsir", "static")),
    "top index --prompt 'Is it safe?' --response No --better Yes -k 2 --json",
    *(f"top index queries.jsonl -k 9 --json --recipe {name}" for name in ("text", "kind")),
    "group index queries.jsonl --by source --json",
    """what-if index queries.jsonl --remove 'source == "gsm8k"' --json""",
    "select index queries.jsonl --count 5 --json",
    "clean index --json",
    "audit index queries.jsonl --json",
    "mix index queries.jsonl --json",
    "evaluate index ngram --labels labels --data train.jsonl --json",
    "evaluate tfidf ngram --queries queries.jsonl --json",
    "compare lds --json",
    "show --verify static",
    "show top",
)
"""Commands that print what is compared."""
LINES = sorted((*MAKING, *ASKING), key=lambda line: line.startswith(JUDGING))
"""Every command of the text path, in the order in which they run."""


class Ran(NamedTuple):
    """What a line of commands told."""

    results: list[tuple[int, str, str]]
    loaded: list[str]
    """Packages that were to be absent, and were loaded."""
    modules: int


def run(folder: Path, commands: Sequence[Sequence[str]], absent: Sequence[str] = EXTRAS, **more: str) -> Ran:
    """Run commands in a folder and in a process of their own, where some packages are absent."""
    asked = json.dumps({"absent": list(absent), "commands": [list(words) for words in commands]})
    environment = {**os.environ, "COLUMNS": "100", **more}
    program = [sys.executable, str(ROOT / "tests" / "worlds" / "text_commands.py")]
    ended = subprocess.run(program, input=asked, capture_output=True, text=True, cwd=folder, env=environment)
    assert ended.returncode == 0, ended.stderr
    return Ran(**json.loads(ended.stdout.splitlines()[-1]))


def run_all(folder: Path, absent: Sequence[str]) -> Ran:
    """Run the text path; where packages are absent, SciPy is too for all commands but those that judge."""
    parts = [
        run(folder, [shlex.split(line) for line in lines], (*absent, *(("scipy",) if absent and not judge else ())))
        for judge, group in itertools.groupby(LINES, lambda line: line.startswith(JUDGING))
        for lines in [list(group)]
    ]
    results = [result for part in parts for result in part.results]
    return Ran(results, sorted({name for part in parts for name in part.loaded}), parts[0].modules)


def write_data(folder: Path) -> None:
    """Every tenth bundled example, a few more, three queries, and rows of numbers for both."""
    folder.mkdir()
    lines = (DATA / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    queries = (DATA / "queries.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "train.jsonl").write_text("".join(lines[::10]), encoding="utf-8")
    (folder / "more.jsonl").write_text("".join(lines[1::200]), encoding="utf-8")
    (folder / "queries.jsonl").write_text("".join(queries[::20]), encoding="utf-8")
    numbers = np.random.default_rng(0)
    np.save(folder / "rows.npy", numbers.standard_normal((200, 8)).astype(np.float32))
    np.save(folder / "losses.npy", numbers.uniform(1, 2, (8, 5)).astype(np.float32))


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran, Path, Ran]:
    """The same commands without the packages, and with them."""
    made = []
    for name, absent in (("without", EXTRAS), ("with", ())):
        folder = tmp_path_factory.mktemp(name) / "here"
        write_data(folder)
        made += [folder, run_all(folder, absent)]
    return made[0], made[1], made[2], made[3]


def test_every_command_of_the_text_path_runs_without_torch(worlds: tuple[Path, Ran, Path, Ran]) -> None:
    _, without, _, _ = worlds
    assert {line: (status, told) for line, (status, _, told) in _lines(without) if status} == {}
    assert without.loaded == []


def test_it_answers_what_it_answers_with_torch(worlds: tuple[Path, Ran, Path, Ran]) -> None:
    here, without, there, known = worlds
    for (line, (_, found, _)), (_, (_, wanted, _)) in zip(_lines(without), _lines(known), strict=True):
        assert _lasting(found) == _lasting(wanted), line
        assert found.strip() or not line.startswith(ASKING), line
    for name in ("selected.jsonl", "rows.csv", "labels/losses.npy", "index/**/*.npy"):
        for one, other in zip(sorted(here.glob(name)), sorted(there.glob(name)), strict=True):
            assert one.read_bytes() == other.read_bytes(), name


def test_kind_and_effect_are_two_questions(worlds: tuple[Path, Ran, Path, Ran]) -> None:
    told = [out for line, (_, out, _) in _lines(worlds[1]) if "--recipe" in line]
    text, kind = (re.findall(r'"row": (\d+)', one) for one in told)
    assert len(text) == len(kind) > 9
    assert text != kind


def test_workers_and_shards_change_nothing(worlds: tuple[Path, Ran, Path, Ran], tmp_path: Path) -> None:
    """Workers are new processes, so torch is absent from all that start."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests' / 'worlds')!r})\n"
        f"from text_commands import Absent\nsys.meta_path.insert(0, Absent({EXTRAS!r}))\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    words = shlex.split(f"index train.jsonl --workers 2 --set shard_rows=64 --out {tmp_path / 'two'}")
    assert run(worlds[0], [words], PYTHONPATH=path).results[0][0] == 0
    one = airrep.build_index(worlds[0] / "train.jsonl", tmp_path / "one")
    hits = [list(index.top(TYPED[1], k=9).rows()) for index in (one, airrep.Index(tmp_path / "two"))]
    assert hits[0] == hits[1] != []


ODD = (
    {"prompt": "", "response": "an answer to nothing"},
    {"prompt": "x", "response": "中文 한국어 ไทย हिन्दी"},
    {"prompt": "\u0b85" * 40, "response": "\U0001f9ff\U0001f9ff"},
    {"prompt": "long", "response": "harbor granite " * 20_000},
    {"prompt": "word", "response": "q" * 5_000},
    {"prompt": "?", "response": "!"},
)


@pytest.mark.parametrize("method", ["channels", "ngram", "tfidf", "bm25", "dsir"])
def test_odd_texts_are_indexed_and_asked(method: str, tmp_path: Path) -> None:
    usual = [{"prompt": f"tell me of {number}", "response": f"the sum is {number * 9}"} for number in range(5)]
    index = airrep.build_index([*ODD, *usual], tmp_path / "index", method)
    assert len(index) == 11
    for query in ODD:
        assert np.isfinite([hit.score for hit in index.top(query, k=11)]).all()


@pytest.mark.parametrize("absent", [EXTRAS, ()])
def test_the_page_is_served(worlds: tuple[Path, Ran, Path, Ran], absent: tuple[str, ...]) -> None:
    folder = worlds[0]
    query = json.loads((folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()[0])
    asked = {"query": {name: query[name] for name in ("prompt", "response")}}
    command = [sys.executable, "-c", SERVING, str(ROOT / "tests" / "worlds"), *absent]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder) as served:
        try:
            assert served.stdout is not None
            address = next(line for line in served.stdout if "http://" in line).split("http://")[1].strip()
            posted = httpx.post(f"http://{address}api/v1/top", json=asked, timeout=60, trust_env=False)
        finally:
            served.kill()
    best = posted.json()["hits"][0]
    (hits,) = airrep.Index(folder / "index").top([query], k=1)
    assert best["id"] == hits[0].example.id
    assert best["score"] == pytest.approx(hits[0].score, abs=1e-4)


def test_python_runs_without_torch(tmp_path: Path) -> None:
    write_data(tmp_path / "here")
    command = [sys.executable, "-c", PYTHON, str(ROOT / "tests" / "worlds"), *EXTRAS, "scipy"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path / "here")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["torch-free", "MissingExtraError", "MissingExtraError"]


NEEDY = {
    f"index train.jsonl --lm {LM} --out OUT": "lm",
    "index train.jsonl --lm nowhere --out OUT": "lm",
    "index train.jsonl --lm owner/nowhere --out OUT": "lm",
    "index train.jsonl --recipe papers/logra --lm ./nowhere --out OUT": "lm",
    f"index train.jsonl --method rds --lm {LM} --out OUT": "lm",
    f"index train.jsonl --method tracin --lm {LM} --out OUT": "lm",
    "index train.jsonl --encoder default --out OUT": "encoders",
    "index train.jsonl --method gte --encoder untrained --out OUT": "encoders",
    f"label subsets train.jsonl --lm {LM} --out OUT": "lm",
    "train labels --data train.jsonl --out OUT": "lm",
    f"adapt train.jsonl --lm {LM} --out OUT": "lm",
    f"prove index queries.jsonl --lm {LM} --budget 30m --out OUT": "lm",
    f"prove index queries.jsonl --rows 0 --lm {LM} --out OUT": "lm",
    f"warmup train.jsonl --lm {LM} --out OUT": "lm",
    "demo --learn --out OUT": "lm",
}


JUDGED = {
    "evaluate index ngram --labels labels --data train.jsonl --out OUT": "evaluation",
    "evaluate tfidf ngram --queries queries.jsonl --out OUT": "evaluation",
    "compare lds --json": "evaluation",
    "train labels --method datamodels --data train.jsonl --out OUT": "evaluation",
    f"index train.jsonl --method logra --lm {LM} --out OUT": "lm",
}


@pytest.mark.parametrize(
    ("lines", "absent"), [(NEEDY, EXTRAS), (JUDGED, ["scipy"]), ({"serve index": "explorer"}, ["fastapi"])]
)
def test_what_needs_an_extra_says_so_in_a_line_and_leaves_nothing(
    worlds: tuple[Path, Ran, Path, Ran], lines: dict[str, str], absent: Sequence[str]
) -> None:
    ran = run(worlds[0], [shlex.split(line) for line in lines], absent)
    for (line, extra), (status, told, warned) in zip(lines.items(), ran.results, strict=True):
        assert (status, told) == (1, ""), line
        assert warned.count("\n") == 1, warned
        assert warned.strip().endswith(f"pip install 'airrep[{extra}]'"), warned
        assert re.search(r"optional dependency: \w+ is not installed\. ", warned), warned
    assert not list(worlds[0].glob("OUT*"))


@pytest.mark.parametrize(
    ("content", "version", "reason"),
    [
        ("raise OSError('libc10.so: cannot open shared object file')", "99", "cannot be imported (OSError: libc10.so"),
        ("from absent_part import anything", "99", "cannot be imported (ModuleNotFoundError: No module"),
        ("", "1.13.1", "torch 1.13.1 is installed, but airrep needs >="),
    ],
)
def test_a_broken_or_old_torch_is_a_line(
    worlds: tuple[Path, Ran, Path, Ran], tmp_path: Path, content: str, version: str, reason: str
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(content)
    (tmp_path / f"torch-{version}.dist-info").mkdir()
    about = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
    (tmp_path / f"torch-{version}.dist-info" / "METADATA").write_text(about)
    lines = ("top index queries.jsonl -k 1 --json", f"warmup train.jsonl --lm {LM} --out OUT")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    asked, warmed = run(worlds[0], [shlex.split(line) for line in lines], (), PYTHONPATH=path).results
    assert asked[0] == 0, asked[2]
    assert warmed[0] == 1
    assert warmed[2].count("\n") == 1
    assert reason in warmed[2]
    assert warmed[2].strip().endswith("pip install 'airrep[lm]'")
    assert not list(worlds[0].glob("OUT*"))


COLD = 620
"""Modules that a cold question may load; each thousand costs about a second."""
NOT_COLD = {
    *("torch", "transformers", "sentence_transformers", "sklearn", "pandas", "matplotlib", "jinja2", "yaml", "asyncio"),
    *("jaxtyping", "huggingface_hub", "scipy", "pyarrow.parquet", "fastapi", "numpy.random", "rich.table"),
    *("packaging", "filelock", "pyarrow.dataset", "datasets", "ray", "airrep.cli.train_commands", "airrep.lm.model"),
}


def test_a_cold_question_loads_little_and_a_build_no_pandas(worlds: tuple[Path, Ran, Path, Ran]) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules));"
        "sys.argv[0] = 'airrep'; from airrep.cli.app import main; main()"
    )
    loaded = []
    typed, file = ["top", "index", *TYPED, "-k", "3", "--json"], ["top", "index", "queries.jsonl", "--json"]
    for command in (typed, file, ["index", "train.jsonl", "--out", "cold"]):
        run = [sys.executable, "-c", code, *command]
        printed = subprocess.run(run, stdout=subprocess.PIPE, text=True, cwd=worlds[0], check=True).stdout
        loaded.append(set(printed.splitlines()[-1].split()))
    assert [NOT_COLD & loaded[0], *({"pandas"} & some for some in loaded[1:])] == [set()] * 3
    assert len(loaded[0]) <= COLD


def test_the_program_has_the_command_that_is_asked_for_alone() -> None:
    names = {name for names in app.MODULES.values() for name in names}
    for word, expected in {**{name: {name} for name in names}, "nonsense": names}.items():
        made = typer.main.get_command(app.make_app(word))
        assert isinstance(made, TyperGroup)
        assert set(made.commands) == expected


SERVING = """
import sys
sys.path.insert(0, sys.argv[1])
from text_commands import Absent
sys.meta_path.insert(0, Absent(sys.argv[2:]))
sys.argv = ["airrep", "serve", "index", "--set", "token=none", "--port", "0"]
from airrep.cli.app import main
main()
"""
PYTHON = """
import sys
sys.path.insert(0, sys.argv[1])
from text_commands import Absent
sys.meta_path.insert(0, Absent(sys.argv[2:]))
import airrep

train, queries = airrep.read_corpus("train.jsonl"), airrep.read_corpus("queries.jsonl")
index = airrep.build_index(train, "made")
assert len(list(index.top(queries, k=2))) == 3
assert index.group_scores(queries, by="source").scores.shape == (3, 5)
assert index.what_if(queries, remove='source == "gsm8k"').change.shape == (3,)
airrep.select(index, queries, 5).save("picked.jsonl")
airrep.top(index, queries[0])
airrep.clean(index)
airrep.audit(index, queries)
airrep.mix(index, queries)
airrep.write_report([index.top(queries, k=2)], "page.html")
index.append(airrep.read_corpus("more.jsonl"))
print("torch-free" if not set(sys.argv[2:]) & set(sys.modules) else "loaded torch")
for ask in (lambda: airrep.load_lm("X"), lambda: airrep.warm_up(train, "OUT", "X")):
    try:
        ask()
    except airrep.AirRepError as error:
        print(type(error).__name__)
"""


def _lines(ran: Ran) -> list[tuple[str, tuple[int, str, str]]]:
    return list(zip(LINES, ran.results, strict=True))


def _lasting(told: str) -> Any:
    """What a command told, without the command line and the times that were measured."""
    try:
        return _untimed(json.loads(told))
    except ValueError:
        return " ".join(re.sub(r"[\d.]+ (?:µs|ms|s)\b|[─-╿]", " ", told).split())


def _untimed(value: Any) -> Any:
    if isinstance(value, list):
        return [_untimed(part) for part in value]
    if isinstance(value, dict):
        return {name: _untimed(part) for name, part in value.items() if name not in ("command", "cost")}
    return value
