"""Methods of other packages: found, used by name, refused in one line."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pytest
from worlds.commands import Run, done, refused
from worlds.small_world import make_corpus

import airrep
from airrep.attributors.installed import installed_methods
from airrep.attributors.methods import METHODS, Method, Refused, make_attributor, methods_of_packages
from airrep.errors import ArtifactError, ConfigError
from airrep.runtime.engine import LocalProcesses
from airrep.scoring.groups import Groups

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own-methods.md").read_text().split("## In a package, by name")[1]
EXAMPLE, BEST, COPIED = (part.split("```")[0] for part in PAGE.split("```python\n")[1:])
"""The module of the documented package, and two more methods that may stand in it."""

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package: a module and its metadata, in a folder of its own on sys.path."""
    modules = []

    def install(source: str, points: str, name: str = "airrep-overlap", version: str = "0.1") -> Path:
        module = name.replace("-", "_")
        folder = tmp_path / f"site-{module}-{version}"
        about = folder / f"{module}-{version}.dist-info"
        about.mkdir(parents=True)
        (folder / f"{module}.py").write_text(source)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (about / "entry_points.txt").write_text(f"[airrep.attributors]\n{points}\n")
        monkeypatch.syspath_prepend(str(folder))
        modules.append(module)
        return folder

    yield install
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture
def overlap(install: Install) -> Path:
    """The documented package."""
    return install(EXAMPLE, "overlap = airrep_overlap:Overlap")


def test_the_documented_package_is_what_its_pyproject_says() -> None:
    declared = PAGE.split("```toml\n")[1].split("```")[0]
    assert 'overlap = "airrep_overlap:Overlap"' in declared
    assert '[project.entry-points."airrep.attributors"]' in declared
    assert len([line for line in EXAMPLE.splitlines() if line.strip()]) <= 26


def test_the_documented_method_conforms_by_name(overlap: Path) -> None:
    airrep.check_attributor(lambda: make_attributor("overlap", {"buckets": 32}))
    with pytest.raises(ConfigError, match=r"buckets=1: .*greater than or equal to 8"):
        make_attributor("overlap", {"buckets": 1})
    with pytest.raises(ConfigError, match="'bucket' is not a setting here; expected one of buckets"):
        make_attributor("overlap", {"bucket": 8})


def test_it_works_on_the_command_line(overlap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_text("".join(json.dumps(one.to_dict()) + "\n" for one in make_corpus(30)))
    ran = run("index", "train.jsonl", "--method", "overlap", "--set", "buckets=64", "--out", "i")
    assert (ran.status, "built: 30 examples, method overlap" in ran.err) == (0, True)
    asked = ("top", "i", "--prompt", "p", "--response", "answer 7", "-k", "1", "--json")
    ran = done(run(*asked))
    hit = json.loads(ran.out)["queries"][0]["hits"][0]
    assert (hit["score"], hit["example"]["response"]) == (2.0, "answer 7")
    refused(run(*asked, "--set", "buckets=32"), "was built with another model or other settings")
    assert re.search(r"method packages +airrep-overlap 0.1", run("show", "i").out)
    listed = run("show", "overlap").out
    assert "examples whose responses share words help each other" in listed
    assert re.search(r"package +airrep-overlap 0.1", listed)
    assert "Buckets that words are hashed into" in listed
    last = json.loads(run("show", "methods", "--json").out)[-1]
    assert last["package"] == {"name": "airrep-overlap", "version": "0.1"}
    assert last["settings"]["buckets"]["default"] == 256


def test_an_index_records_the_package_and_keeps_it_when_it_changes(overlap: Path, tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(20), tmp_path / "i", "overlap", settings={"buckets": 16})
    index.append(make_corpus(5, "more")).delete(["e3"]).compact()
    again = airrep.Index(tmp_path / "i")
    assert again.manifest["method_packages"] == {"overlap": {"name": "airrep-overlap", "version": "0.1"}}
    assert again.manifest["settings"] == {"buckets": 16}
    assert len(again.top(make_corpus(2, "q"), k=3)[0]) == 3


def test_an_index_without_its_package_names_it(overlap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    airrep.build_index(make_corpus(9), tmp_path / "i", "overlap")
    recipe = [{"method": "overlap", "settings": {"buckets": 8}}, {"method": "tfidf"}]
    airrep.build_index(make_corpus(9), tmp_path / "sum", "channels", settings={"channels": recipe})
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(overlap)])
    for name in ("i", "sum"):
        index = airrep.Index(tmp_path / name)
        with pytest.raises(ConfigError, match=r"by 'overlap' of the package airrep-overlap 0\.1, which is not install"):
            index.top("x", k=1)
        with pytest.raises(ConfigError, match="Install it"):
            index.made_with({"buckets": 8})
    with pytest.raises(ConfigError, match=r"method 'overlap': does not exist; expected one of .* and \d+ more"):
        make_attributor("overlap")


def test_another_version_is_told_where_the_features_are_others(
    overlap: Path, tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    airrep.build_index(make_corpus(9), tmp_path / "i", "overlap")
    sys.modules.pop("airrep_overlap")
    install(EXAMPLE.replace("overlap 1,", "overlap 2,"), "overlap = airrep_overlap:Overlap", version="0.2")
    with pytest.raises(ArtifactError, match=r"; package airrep-overlap 0\.1, now 0\.2\)\."):
        airrep.Index(tmp_path / "i").top("x", k=1)


def test_it_can_be_a_channel_that_gets_what_is_set_for_all(install: Install, tmp_path: Path) -> None:
    source = EXAMPLE.replace("    buckets: int", '    device: str = "auto"\n    buckets: int')
    install(source, "overlap = airrep_overlap:Overlap")
    recipe = [{"method": "overlap", "weight": 2}, {"method": "tfidf"}]
    made = make_attributor("channels", {"channels": recipe, "device": "cpu"})
    assert made.settings.channels[0].settings == {"device": "cpu"}
    index = airrep.build_index(make_corpus(9), tmp_path / "i", made)
    assert list(index.manifest["method_packages"]) == ["overlap"]
    assert len(airrep.Index(tmp_path / "i").top("answer 7", k=2)) == 2


def test_workers_make_it_anew(overlap: Path, tmp_path: Path) -> None:
    corpus = make_corpus(20)
    alone = airrep.build_index(corpus, tmp_path / "alone", "overlap", shard_rows=8)
    shared = airrep.build_index(corpus, tmp_path / "shared", "overlap", shard_rows=8, engine=LocalProcesses(2))
    assert shared.fingerprint == alone.fingerprint


FUNCTION = """
from airrep_base import Overlap, OverlapSettings


def make(settings: "OverlapSettings"):
    return Overlap(settings)


def plain():
    made = Overlap(OverlapSettings(buckets=8))
    return made


def nothing():
    return 3


def fails(settings: OverlapSettings):
    raise ValueError("bad\\nthing \\x1b[31m")


def others(settings: OverlapSettings):
    from airrep_base import Bare

    return Bare()


def two(settings: OverlapSettings, more):
    return None


def untyped(settings):
    return None


number = 3
"""
BARE = """

class Bare(Overlap):
    name = "others"

    def __init__(self):
        pass

    @property
    def settings(self):
        return Settings()
"""


@pytest.mark.parametrize(
    ("point", "problem"),
    [
        ("overlap = airrep_functions:make", ""),
        ("overlap = airrep_functions:plain", ""),
        ("overlap = airrep_functions:nothing", "makes a int, not an airrep.Attributor"),
        ("overlap = airrep_functions:fails", r"cannot be created: ValueError: bad thing \[31m\. Correct its settings"),
        ("others = airrep_functions:others", "settings are Settings, not those it was given"),
        ("other = airrep_functions:make", "makes an attributor with another name, 'overlap'"),
        ("overlap = airrep_functions:two", "one argument, the settings, but this one needs 2"),
        ("overlap = airrep_functions:untyped", "argument 'settings' of .* must be annotated with a subclass"),
        ("overlap = airrep_functions:number", "is a int, but must be a subclass of airrep.Attributor or a function"),
        ("overlap = airrep_functions:absent", "cannot be loaded from 'airrep_functions:absent': AttributeError"),
        ("overlap = airrep_nowhere:absent", "ModuleNotFoundError: No module named 'airrep_nowhere'"),
        ("overlap = not a module!", "cannot be loaded from 'not a module!'"),
        ("two-words = airrep_functions:make", "is not a Python identifier"),
    ],
)
def test_what_an_entry_point_may_name(point: str, problem: str, install: Install) -> None:
    install(EXAMPLE + BARE, "", name="airrep-base")
    install(FUNCTION, point, name="airrep-functions")
    name = point.partition(" = ")[0]
    if not problem:
        assert make_attributor(name).name == "overlap"
        return
    with pytest.raises(ConfigError, match=problem) as told:
        make_attributor(name)
    assert "of the package airrep-functions 0.1" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "source",
    ["raise RuntimeError('first\\nsecond')", "import sys; sys.exit(3)", "def (", "import no_such_module_anywhere"],
)
def test_a_broken_package_is_listed_and_disturbs_nothing(source: str, install: Install, run: Run) -> None:
    install(source, "broken = airrep_broken:Thing", name="airrep-broken")
    install(EXAMPLE, "overlap = airrep_overlap:Overlap")
    broken, whole = methods_of_packages()
    assert isinstance(broken, Refused)
    assert isinstance(whole, Method)
    assert "cannot be loaded from 'airrep_broken:Thing'" in broken.reason
    listed = run("show", "methods").out
    line = next(line for line in listed.splitlines() if "airrep-broken 0.1" in line)
    assert line.strip().startswith("error")
    assert "overlap" in listed
    told = [one for one in json.loads(run("show", "methods", "--json").out) if one["name"] == "broken"]
    assert told == [{"name": "broken", "package": {"name": "airrep-broken", "version": "0.1"}, "error": broken.reason}]
    assert make_attributor("tfidf").name == "tfidf"
    refused(run("show", "broken"))


def test_names_that_are_taken_are_refused(install: Install) -> None:
    install(EXAMPLE, "ngram = airrep_overlap:Overlap\ntwice = airrep_overlap:Overlap")
    install(EXAMPLE, "twice = airrep_second:Overlap", name="airrep-second")
    told = {(one.name, one.package.name): one.reason for one in methods_of_packages() if isinstance(one, Refused)}
    assert "a method of airrep has the same name. Rename" in told["ngram", "airrep-overlap"]
    assert "airrep-second 0.1 and airrep-overlap 0.1. Uninstall all but one" in told["twice", "airrep-second"]
    assert told["twice", "airrep-second"] == told["twice", "airrep-overlap"]
    assert type(make_attributor("ngram")).__module__ == METHODS["ngram"].place.partition(":")[0]
    with pytest.raises(ConfigError, match="method 'twice': several packages declare it"):
        make_attributor("twice")


def test_a_package_that_an_earlier_place_hides_declares_nothing(install: Install) -> None:
    install(EXAMPLE, "overlap = airrep_overlap:Overlap")
    assert "overlap" in installed_methods()
    (install(EXAMPLE, "", version="0.2") / "airrep_overlap-0.2.dist-info" / "entry_points.txt").unlink()
    assert "overlap" not in installed_methods()


@pytest.mark.parametrize(
    ("folder", "points"),
    [("odd-1.dist-info", b"\xff"), ("odd-2.dist-info", b"[other]\nno equals sign"), ("-dd-3.dist-info", b"")],
)
def test_damaged_metadata_of_a_package_are_told(
    install: Install, folder: str, points: bytes, caplog: pytest.LogCaptureFixture, run: Run
) -> None:
    odd = install(EXAMPLE, "overlap = airrep_overlap:Overlap") / folder
    odd.mkdir()
    (odd / "entry_points.txt").write_bytes(points)
    assert "tfidf" in done(run("show", "methods")).out
    refused(run("show", "nothing"), "does not exist")
    assert "the metadata of a package are damaged" in caplog.text


def test_nothing_of_theirs_is_imported_before_it_is_needed(tmp_path: Path, install: Install) -> None:
    folder = install("open('imported', 'w').close()", "eager = airrep_eager:Thing", name="airrep-eager")
    (folder / "queries.jsonl").write_text('{"prompt": "some words", "response": "more words"}\n')
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); sys.argv = ['airrep', *sys.argv[1:]];"
        "from airrep.cli.app import main; main()"
    )
    for arguments in (["--help"], ["index", "--help"], ["index", "queries.jsonl", "--method", "tfidf", "--out", "i"]):
        command = [sys.executable, "-c", code, *arguments]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    assert not (folder / "imported").exists()
    listed = subprocess.run([sys.executable, "-c", code, "show", "methods"], cwd=folder, capture_output=True, text=True)
    assert (listed.returncode, "AttributeError" in listed.stdout) == (0, True)
    assert (folder / "imported").exists()


def test_a_group_score_and_scores_without_features_are_a_class_each(install: Install, tmp_path: Path) -> None:
    names = {"overlap": "Overlap", "best": "Best", "copied": "Copied"}
    points = "\n".join(f"{name} = airrep_overlap:{own}" for name, own in names.items())
    install("\n".join((EXAMPLE, BEST, COPIED)), points)
    for name in names:
        airrep.check_attributor(lambda name=name: make_attributor(name))
    corpus, queries = make_corpus(30), make_corpus(3, "q")
    weights = {"overlap": 2.0, "best": 0.5, "copied": 3.0}
    channels = [{"method": name, "weight": weight} for name, weight in weights.items()]
    index = airrep.build_index(corpus, tmp_path / "i", "channels", settings={"channels": channels})
    words = [set(one.response.split()) for one in corpus]
    asked = [set(one.response.split()) for one in queries]
    shared = np.array([[len(own & theirs) for theirs in words] for own in asked], float)
    copied = [[SequenceMatcher(None, one.response, own.response).ratio() for one in corpus] for own in queries]
    rows = index.scores(queries)
    np.testing.assert_allclose(rows, 2.5 * shared + 3 * np.array(copied), rtol=1e-6)
    members = {"a": [0, 4, 9], "b": [7, 8]}
    found = airrep.open(tmp_path / "i").group_scores(queries, Groups.from_lists(members)).scores
    expected = [
        2 * shared[:, some].sum(1) + 0.5 * shared[:, some].max(1) + 3 * np.array(copied)[:, some].sum(1)
        for some in members.values()
    ]
    np.testing.assert_allclose(found, np.stack(expected, 1), rtol=1e-6)
