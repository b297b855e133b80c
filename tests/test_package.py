"""The package: light to import, complete, and as its documents say."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import airrep
from airrep import errors
from airrep.cli import app as cli

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").rglob("*.md")])
PACKAGE = ROOT / "src" / "airrep"
ROOMS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)
SOURCES = sorted((ROOT / "src" / "airrep").rglob("*.py"))


def test_every_public_name_is_there() -> None:
    assert len(airrep.__all__) == len(set(airrep.__all__))
    for name in airrep.__all__:
        assert getattr(airrep, name) is not None
    assert set(airrep.__all__) == set(airrep._HOMES) | {"errors", "metrics"}
    assert len(dir(airrep)) <= 30
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        airrep.__getattr__("nothing")


def test_a_name_that_is_not_public_is_told_with_its_import() -> None:
    for name, module in (("LmSettings", "lm.settings"), ("DataError", "errors"), ("METHODS", "attributors.methods")):
        with pytest.raises(AttributeError, match=rf"Write: from airrep\.{module} import {name}$"):
            airrep.__getattr__(name)


def test_a_module_is_not_looked_for_in_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("read a source file"))
    for name in ("dropped", "scoring"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):  # then Python imports it
            airrep.__getattr__(name)


def test_the_stub_has_the_names_of_the_table_from_the_same_modules() -> None:
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom) and node.module != "airrep._version"]
    assert {name.asname: str(node.module) for node in imports for name in node.names} == {
        name: f"airrep.{home}" for name, home in airrep._HOMES.items()
    } | {"errors": "airrep", "metrics": "airrep"}


def test_importing_loads_nothing_heavy() -> None:
    code = "import airrep, airrep.cli.app, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "numpy", "pyarrow", "transformers", "sentence_transformers", "sklearn", "scipy"}.isdisjoint(loaded)


def test_indexing_and_asking_load_no_slow_library(tmp_path: Path) -> None:
    """The packed encoder needs neither transformers nor sentence_transformers, which take seconds to import."""
    code = (
        "import sys, airrep; corpus = airrep.read_corpus(sys.argv[1])[:3];"
        "airrep.build_index(corpus, sys.argv[2]).top(corpus, k=1); print(*sys.modules)"
    )
    data = ROOT / "src" / "airrep" / "data" / "queries.jsonl"
    command = [sys.executable, "-c", code, str(data), str(tmp_path / "index")]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert {"transformers", "sentence_transformers", "datasets"}.isdisjoint(loaded)


def test_every_error_of_ours_is_an_airrep_error_and_documented() -> None:
    found = vars(errors).values()
    own = [value for value in found if isinstance(value, type) and value.__module__ == errors.__name__]
    assert all(issubclass(kind, errors.AirRepError) for kind in own)
    assert errors.__doc__ is not None
    assert all(kind.__name__ in errors.__doc__ for kind in own)
    assert str(errors.MissingExtraError("x", "datasets")).endswith("pip install 'airrep[datasets]'")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_modules_say_their_purpose_in_ten_words(path: Path) -> None:
    first = path.read_text().split('"""')[1].split("\n")[0]
    assert 2 <= len(first.split()) <= 14, first
    assert first.endswith(".")


def test_maps_of_rooms_are_made_of_the_modules_own_lines() -> None:
    """`make docs` writes them; here the files that are there decide, not the script's idea of them."""
    for room in ROOMS:
        shown = (room / "__init__.py").read_text()
        listed = [line.split()[0] for line in shown.strip().strip('"').strip().split("\n")[2:]]
        inside = [path.stem for path in room.glob("*.py") if path.name != "__init__.py"]
        assert sorted(listed) == sorted([*inside, *(f"{path.name}/" for path in ROOMS if path.parent == room)])
        for path in room.glob("*.py"):
            assert path.read_text().split('"""')[1].split("\n")[0] in shown, path
    shown_map = (
        (ROOT / "docs" / "architecture.md").read_text().split("<!-- rooms -->")[1].split("<!-- end of rooms -->")[0]
    )
    for room in ROOMS:
        if room.parent == PACKAGE:
            purpose = (room / "__init__.py").read_text().split('"""')[1].split("\n")[0]
            assert re.search(rf"^{room.name}/ +{re.escape(purpose)}$", shown_map, re.MULTILINE), room


def test_rooms_can_be_taken_in_at_a_glance() -> None:
    for room in [PACKAGE, *ROOMS]:
        modules = [path for path in room.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= (9 if room == PACKAGE else 12), room
        assert room.name not in ("utils", "common", "helpers", "core")


def test_tests_mirror_the_rooms() -> None:
    tests = ROOT / "tests"
    beside = {tests, tests / "worlds", tests / "reference", tests / "experiments", tests / "earlier", tests / "hostile"}
    rooms = {tests / room.relative_to(PACKAGE) for room in ROOMS}
    assert {path.parent for path in tests.rglob("*.py")} - beside <= rooms
    assert rooms - {tests / "cli" / "show"} <= {path.parent for path in tests.rglob("test_*.py")}


def test_rooms_hold_their_docstring_alone() -> None:
    """A name imported there would be loaded with every file of the room: torch with `scoring.pooling`, say."""
    for room in ROOMS:
        assert len(ast.parse((room / "__init__.py").read_text()).body) == 1


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


def test_every_command_and_option_is_documented() -> None:
    import typer.main

    reference = "\n".join(path.read_text() for path in sorted((ROOT / "docs" / "cli").glob("*.md")))
    for name, command in typer.main.get_command(cli.app).commands.items():
        assert f"`airrep {name}`" in reference, name
        section = reference.split(f"## `airrep {name}`")[1].split("\n## ")[0]
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                assert f"`{parameter.opts[0]}" in section, f"{name} {parameter.opts[0]}"


def test_readme_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    data = ROOT / "src" / "airrep" / "data"
    lines = (data / "train.jsonl").read_text().splitlines()[::40]
    lines += ['{"prompt": "Who won?", "response": "Nobody yet.", "source": "forum"}']
    here = Path("src/airrep/data")  # as in a clone
    here.mkdir(parents=True)
    (here / "train.jsonl").write_text("\n".join(lines))
    (here / "queries.jsonl").write_text((data / "queries.jsonl").read_text())
    code = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    exec(compile(code.replace("count=1000", "count=10"), "README.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) >= 10
    assert len(airrep.read_corpus("selected.jsonl")) == 10


def test_the_documented_method_of_ones_own_conforms() -> None:
    code = (ROOT / "docs" / "own-methods.md").read_text().split("```python\n")[1].split("```")[0]
    exec(compile(code, "docs/own-methods.md", "exec"), {})


def test_version_is_in_the_changelog() -> None:
    assert f"## {airrep.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_shipped_files_are_small_and_licensed() -> None:
    package = ROOT / "src" / "airrep"
    data = sum(path.stat().st_size for path in (package / "data").iterdir())
    assert data < 1_500_000
    models = [package / "models" / name / file for name in ("default", "untrained") for file in ("LICENSE", "NOTICE")]
    for path in (*models, ROOT / "LICENSE"):
        assert path.stat().st_size > 500
    for source in ("CC0", "MIT", "Apache"):
        assert source in (package / "data" / "LICENSES.md").read_text()


def test_extras_named_in_errors_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set()
    for path in SOURCES:
        for extra in re.findall(r'\bneed\((?:f?"[^"]*"|[\w.()]+), "(\w+)"', path.read_text()):
            assert extra in extras
            named.add(extra)
    assert {"lm", "encoders", "peft", "explorer"} <= named


def test_every_page_is_on_the_site() -> None:
    listed = re.findall(r"^ +- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= set(listed)
    assert all((ROOT / "docs" / page).exists() or (ROOT / page).exists() for page in listed)
    llms = (ROOT / "docs" / "llms.txt").read_text()
    assert all(f"({page})" in llms for page in listed)
    assert all(f"## airrep.{name}\n" in (ROOT / "docs" / "reference.md").read_text() for name in airrep._HOMES)
