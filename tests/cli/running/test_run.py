"""Whole runs: recorded by commands, shown as configs, replayed."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from worlds.commands import Ran, Run, runner
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.cli import app as cli
from airrep.cli.running.history import HISTORY, read_history
from airrep.errors import ArtifactError
from airrep.runtime.artifacts.making import new_artifact


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command line in this process, in a folder with data."""
    monkeypatch.chdir(tmp_path)
    write("train.jsonl", make_corpus(30))
    write("q.jsonl", make_corpus(4, "q"))

    return runner(capsys, monkeypatch)


def write(path: str, corpus: airrep.Corpus) -> None:
    Path(path).write_text("".join(json.dumps(example.to_dict()) + "\n" for example in corpus))


def do(run: Run, line: str) -> Ran:
    ran = run(*shlex.split(line))
    assert ran.status == 0, ran.err
    return ran


def config(run: Run, path: str, to: str = "config.yaml") -> dict:
    """The config of an artifact, written to a file."""
    text = do(run, f"show {path} --config").out
    Path(to).write_text(text)
    return yaml.safe_load(text)


def fingerprint(path: str) -> str:
    return airrep.open_index(path).fingerprint


def test_an_index_and_a_ranking_come_back_in_another_folder(run: Run) -> None:
    do(run, "index train.jsonl --out runs/index --method ngram --set orders=1,2 --set mix=0.25 --shard-rows 8")
    do(run, "top runs/index q.jsonl -k 3 --least --where 'label != \"label 1\"' --out runs/top")
    shown = config(run, "runs/top")
    settings = {"orders": "1,2", "mix": 0.25}
    index = {"data": "train.jsonl", "out": "runs/index", "method": "ngram", "shard-rows": 8, "set": settings}
    top = {"index": "runs/index", "queries": "q.jsonl", "k": 3, "least": True, "where": 'label != "label 1"'}
    assert shown == {"airrep": airrep.__version__, "steps": [{"index": index}, {"top": {**top, "out": "runs/top"}}]}
    Path("other").mkdir()
    for name in ("train.jsonl", "q.jsonl", "config.yaml"):
        shutil.copy(name, "other")
    ran = do(run, "run other/config.yaml")
    assert "step 1 (index) of 2: airrep index" in ran.err
    assert fingerprint("other/runs/index") == fingerprint("runs/index")
    assert airrep.read_result("other/runs/top").to_dict() == airrep.read_result("runs/top").to_dict()


def test_what_is_done_is_passed_over_and_what_changed_is_not(run: Run) -> None:
    do(run, "index train.jsonl --out index --method tfidf")
    do(run, "top index q.jsonl --out top")
    config(run, "top")
    before = Path("top/manifest.json").stat().st_mtime_ns
    ran = do(run, "run config.yaml")
    assert ran.err == "step 1 (index) of 2: was done already\nstep 2 (top) of 2: was done already\n"
    assert Path("top/manifest.json").stat().st_mtime_ns == before
    shutil.rmtree("top")
    ran = do(run, "run config.yaml")
    assert "step 2 (top) of 2: airrep top index q.jsonl --out top" in ran.err
    write("q.jsonl", make_corpus(3, "q"))
    ran = run("run", "config.yaml")
    assert ran.status == 1
    assert "airrep: error: config.yaml: step 2 (top): top: exists already; nothing is overwritten" in ran.err
    write("train.jsonl", make_corpus(29))
    assert "config.yaml: step 1 (index): index: holds an index made with another" in run("run", "config.yaml").err
    ran = do(run, "run config.yaml --set index.replace=true --set 2.replace=true --set top.k=2")
    assert [len(hits) for hits in airrep.read_result("top")] == [2, 2, 2]
    assert " --replace -k 2" in ran.err


def test_groups_and_what_ifs_come_back(run: Run) -> None:
    do(run, "index train.jsonl --out index --method tfidf")
    do(run, "group index q.jsonl --by label --pool attention:0.5 --out group")
    do(run, "what-if index q.jsonl --remove 'source == \"forum\"' --out change")
    for name in ("group", "change"):
        shown = config(run, name)
        assert [next(iter(step)) for step in shown["steps"]] == ["index", {"change": "what-if"}.get(name, name)]
        before = airrep.read_result(name).to_dict()
        shutil.rmtree(name)
        do(run, "run config.yaml")
        assert airrep.read_result(name).to_dict() == before


def test_changes_of_an_index_are_steps(run: Run) -> None:
    write("more.jsonl", make_corpus(5, "more"))
    do(run, "index train.jsonl --out index --method tfidf --shard-rows 8")
    for line in ("append index more.jsonl", "append index more.jsonl", "delete index --id e3 --id e4", "compact index"):
        do(run, line)
    names = [line.step.command for line in read_history(Path("index"))]
    assert names == ["index", "append", "delete", "compact"], "an append that added nothing is no change"
    shown = config(run, "index")
    assert shown["steps"][2] == {"delete": {"index": "index", "id": ["e3", "e4"]}}
    assert do(run, "run config.yaml").err.count("was done already") == 4
    before = fingerprint("index")
    shutil.rmtree("index")
    do(run, "run config.yaml")
    assert fingerprint("index") == before
    airrep.open_index("index").delete(["e5"])
    assert "# index was changed 1 more times, from Python say" in do(run, "show index --config").out


RUN = """
airrep: 0.x
steps:
  - index: {data: train.jsonl, out: index, method: tfidf, replace: true}
  - delete: {index: index, id: [e3]}
  - append: {index: index, data: more.jsonl}
  - group: {index: index, queries: train.jsonl, by: source, out: group, replace: true}
"""


def run_fresh(run: Run, config: str) -> tuple[str, str]:
    """What the config makes in a folder of its own."""
    Path("fresh").mkdir()
    for name in ("train.jsonl", "more.jsonl"):
        shutil.copy(name, "fresh")
    Path("fresh/run.yaml").write_text(config)
    do(run, "run fresh/run.yaml")
    return made("fresh/")


def made(folder: str) -> tuple[str, str]:
    return fingerprint(f"{folder}index"), json.dumps(airrep.read_result(f"{folder}group").to_dict())


@pytest.mark.parametrize("change", ["another filter", "no delete", "no append", "other data", "by hand", "in Python"])
def test_an_index_with_other_changes_than_the_config_is_made_again(run: Run, change: str) -> None:
    write("more.jsonl", make_corpus(5, "more"))
    Path("run.yaml").write_text(RUN)
    do(run, "run run.yaml")
    assert do(run, "run run.yaml").err.count("was done already") == 4
    config = RUN
    if change == "another filter":
        config = RUN.replace("e3", "e4")
    elif change.startswith("no "):
        config = "\n".join(line for line in RUN.splitlines() if change[3:] not in line)
    elif change == "other data":
        write("more.jsonl", make_corpus(7, "more"))
    elif change == "by hand":
        do(run, "delete index --id e5")
    else:
        airrep.open_index("index").delete(["e5"])
    Path("run.yaml").write_text(config)
    do(run, "run run.yaml")
    assert made("") == run_fresh(run, config)
    Path("run.yaml").write_text(config.replace("tfidf, replace: true", "tfidf"))
    do(run, "delete index --id e6")
    ran = run("run", "run.yaml")
    assert ran.status == 1
    assert "changed after it was built" in ran.err


def test_an_index_that_was_moved_or_copied_is_made_by_its_name_of_now(run: Run) -> None:
    write("more.jsonl", make_corpus(5, "more"))
    do(run, "index train.jsonl --out index --method tfidf")
    shutil.copytree("index", "copy")
    do(run, "append copy more.jsonl")
    shown = config(run, "copy")
    assert [next(iter(step.values()))[name] for step, name in zip(shown["steps"], ("out", "index"), strict=True)] == [
        "copy",
        "copy",
    ]
    assert "# copy was index when this ran" in do(run, "show copy --config").out
    before = fingerprint("copy")
    shutil.rmtree("copy")
    do(run, "run config.yaml")
    assert fingerprint("copy") == before
    shutil.move("index", "moved")
    assert config(run, "moved")["steps"][0]["index"]["out"] == "moved"


def test_labels_come_back_with_the_subsets_that_they_are_of(run: Run) -> None:
    tiny_lm(Path("lm"))
    do(run, "sample train.jsonl --out subsets --instances 1 --train-count 8 --query-count 2 --subsets 2 --size 3")
    tuning = "--set epochs=1 --set learning_rate=1e-2 --set precision=float32"
    do(run, f"label subsets train.jsonl --lm lm --out labels --seeds 1 {tuning}")
    do(run, f"label subsets train.jsonl --lm lm --out labels --seeds 2 {tuning}")
    shown = config(run, "labels")
    assert [next(iter(step)) for step in shown["steps"]] == ["sample", "label", "label"]
    assert [step["label"]["seeds"] for step in shown["steps"][1:]] == [1, 2]
    before = Path("labels/manifest.json").read_bytes()
    assert do(run, "run config.yaml").err.count("was done already") == 3
    shutil.rmtree("labels")
    shutil.rmtree("subsets")
    do(run, "run config.yaml")
    assert Path("labels/manifest.json").read_bytes() == before


@pytest.mark.parametrize("asked", ["--removals 3", "--removals-by label"])
def test_a_plan_of_removals_comes_back(run: Run, asked: str) -> None:
    do(run, f"sample train.jsonl --out left --instances 1 --train-count 20 --query-count 2 {asked}")
    before = airrep.open_plan("left").fingerprint
    config(run, "left")
    shutil.rmtree("left")
    do(run, "run config.yaml")
    assert airrep.open_plan("left").fingerprint == before


@pytest.mark.parametrize(
    "asked", ["mix runs/index q.jsonl --yaml made.yaml", "clean runs/index --kind duplicate --lists made"]
)
def test_steps_that_make_files_beside_an_artifact_are_done_once(run: Run, asked: str) -> None:
    do(run, "index train.jsonl --out runs/index --method tfidf")
    do(run, f"{asked} --out runs/made")
    config(run, "runs/made")
    assert do(run, "run config.yaml").err.count("was done already") == 2
    shutil.rmtree("runs")
    made = Path("made.yaml") if Path("made.yaml").exists() else Path("made")
    (shutil.rmtree if made.is_dir() else Path.unlink)(made)
    do(run, "run config.yaml")
    assert do(run, "run config.yaml").err.count("was done already") == 2
    assert made.exists()


def test_a_folder_that_is_called_like_a_value_undoes_no_step(run: Run) -> None:
    do(run, "index train.jsonl --out runs/index --method tfidf")
    do(run, "group runs/index q.jsonl --by source --out runs/groups")
    config(run, "runs/groups")
    Path("source").mkdir()
    assert do(run, "run config.yaml").err.count("was done already") == 2
    steps = [{"select": {"index": "runs/index", "queries": "q.jsonl", "count": 3, "out": "picked.jsonl"}}]
    Path("select.yaml").write_text(yaml.safe_dump({"steps": steps}))
    do(run, "run select.yaml")
    Path("3").mkdir()
    assert do(run, "run select.yaml").err.count("was done already") == 1
    write("q.jsonl", make_corpus(5, "other"))
    assert "was done already" not in run("run", "select.yaml").err


def test_an_evaluation_comes_with_what_it_judges(run: Run) -> None:
    do(run, "index train.jsonl --out index --method tfidf")
    do(run, "index train.jsonl --out words --method bm25")
    do(run, "evaluate classify Words=words index --queries q.jsonl --vote 3 --tag role=test --out judged")
    shown = config(run, "judged")
    assert [next(iter(step)) for step in shown["steps"]] == ["index", "index", "evaluate classify"]
    assert shown["steps"][2]["evaluate classify"]["index"] == ["Words=words", "index"]
    before = airrep.read_evaluation("judged")
    shutil.rmtree("judged")
    do(run, "run config.yaml")
    again = airrep.read_evaluation("judged")
    assert again.request == before.request
    assert sorted(shlex.split(again.command)) == sorted(shlex.split(before.command)), "what was typed"


def test_a_config_is_shown_from_another_folder_and_moves_with_its_project(run: Run, monkeypatch) -> None:
    Path("project").mkdir()
    shutil.copy("train.jsonl", "project")
    monkeypatch.chdir("project")
    do(run, "index train.jsonl --out runs/index --method tfidf")
    monkeypatch.chdir("..")
    shutil.move("project", "moved")
    shown = config(run, "moved/runs/index")
    assert shown["folder"] == "moved"
    before = fingerprint("moved/runs/index")
    shutil.rmtree("moved/runs")
    do(run, "run config.yaml")
    assert fingerprint("moved/runs/index") == before
    assert str(Path.cwd()) not in Path("moved/runs/index", HISTORY).read_text(), "no path of the machine"


def test_what_is_without_history_tells_what_its_manifest_has(run: Run) -> None:
    recipe = {"tokenizer": "words", "orders": [2], "view": "response"}
    airrep.build_index(make_corpus(30), "index", "ngram", settings=recipe, shard_rows=16)
    text = do(run, "show index --config").out
    assert "data: FILL-IN  # 30 examples, fingerprint" in text
    Path("config.yaml").write_text(text)
    step = yaml.safe_load(text)["steps"][0]["index"]
    assert step == {"data": "FILL-IN", "method": "ngram", "set": {"orders": [2]}, "shard-rows": 16, "out": "index"}
    ran = run("run", "config.yaml")
    assert (ran.status, "step 1 (index): data is still FILL-IN" in ran.err) == (1, True)
    ran = do(run, "run config.yaml --set index.data=train.jsonl")
    assert "was finished already" in ran.err, "the settings are those that it was made with"
    assert read_history(Path("index"))[0].step.options["data"] == "train.jsonl", "recorded from now on"


def test_an_index_without_history_tells_how_it_was_read(run: Run) -> None:
    records = [{"q": f"question {number}", "a": f"answer {number}"} for number in range(3)]
    Path("qa.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    airrep.build_index(airrep.read_corpus("qa.jsonl", prompt_field="q", response_field="a"), "index", "tfidf")
    text = do(run, "show index --config").out.replace("FILL-IN", "qa.jsonl")
    step = {"data": "qa.jsonl", "method": "tfidf", "prompt-field": "q", "response-field": "a", "out": "index"}
    assert yaml.safe_load(text)["steps"][0]["index"] == step
    Path("config.yaml").write_text(text)
    assert "was finished already" in do(run, "run config.yaml").err


def test_channels_and_results_without_history(run: Run) -> None:
    index = airrep.build_index(make_corpus(30), "sum", settings={"channels": [{"method": "tfidf"}, {"method": "bm25"}]})
    queries = make_corpus(3, "q")
    index.top(queries, k=2, least=True).save("top")
    index.group_scores(queries, by="label").save("group")
    index.what_if(queries, remove='label == "label 1"').save("change")
    text = do(run, "show sum --config").out.replace("FILL-IN", "train.jsonl")
    Path("config.yaml").write_text(text)
    assert "was finished already" in do(run, "run config.yaml").err
    top = yaml.safe_load(do(run, "show top --config").out)["steps"][0]["top"]
    assert top == {"index": "FILL-IN", "queries": "FILL-IN", "k": 2, "least": True, "out": "top"}
    assert "by: FILL-IN  # 3 groups; a field, or groups: FILE" in do(run, "show group --config").out
    assert 'remove: FILL-IN  # without label == "label 1", 10 examples' in do(run, "show change --config").out


def test_what_was_learnt_tells_its_settings_and_what_to_fill_in(run: Run) -> None:
    settings = {"penalty": "lasso", "folds": 5}
    fitted = {"request": {"instance": "d" * 64, "settings": settings}, "provenance": {"instance": "labels#0"}}
    with new_artifact(Path("fitted"), "datamodels", fitted):
        pass
    fit = config(run, "fitted", "fitted.yaml")["steps"][0]["datamodels"]
    assert fit == {"labels": "FILL-IN", "set": {"penalty": "lasso"}, "out": "fitted"}
    assert "labels is still FILL-IN" in run("run", "fitted.yaml").err


def test_files_that_a_step_made_are_passed_over(run: Run) -> None:
    do(run, "index train.jsonl --out index --method tfidf")
    steps = [
        {"top": {"index": "index", "queries": "q.jsonl", "out": "top"}},
        {"select": {"index": "index", "queries": "q.jsonl", "count": 3, "out": "chosen.jsonl"}},
        {"report": {"run": ["top"], "out": "page.html"}},
        {"export": {"index": "index", "to": "csv", "out": "table.csv"}},
    ]
    Path("all.yaml").write_text(yaml.safe_dump({"steps": steps}))
    do(run, "run all.yaml")
    made = {name: Path(name).stat().st_mtime_ns for name in ("chosen.jsonl", "page.html", "table.csv")}
    assert do(run, "run all.yaml").err.count("was done already") == 4
    assert made == {name: Path(name).stat().st_mtime_ns for name in made}
    Path("page.html").unlink()
    ran = do(run, "run all.yaml")
    assert ran.err.count("was done already") == 3
    assert Path("page.html").exists()
    write("q.jsonl", make_corpus(3, "q"))  # what was chosen is of other queries now
    ran = run("run", "all.yaml", "--set", "top.replace=true")
    assert "step 2 (select): chosen.jsonl: exists already" in ran.err
    assert ran.err.endswith("In a config: replace: true\n")
    record = Path(".all.yaml.done.jsonl")
    with record.open("a") as stream:
        stream.write('{"step": {"sel')  # as a kill leaves it
    Path("page.html").unlink()
    assert do(run, "run all.yaml --set select.replace=true").err.count("was done already") == 2
    Path("chosen.jsonl").unlink()
    do(run, "run all.yaml")
    assert do(run, "run all.yaml").err.count("was done already") == 4
    write("q.jsonl", make_corpus(2, "q"))
    record.write_text("{nonsense")
    assert "step 2 (select): chosen.jsonl: exists already" in run("run", "all.yaml", "--set", "top.replace=true").err


def test_nothing_says_how_a_custom_index_was_made(run: Run, index: airrep.Index) -> None:
    ran = run("show", str(index.path), "--config")
    assert ran.status == 1
    assert "was made from Python by 'hash', which airrep does not know" in ran.err
    assert "does not exist; expected a directory that airrep wrote" in run("show", "nowhere", "--config").err


def test_list_prints_commands_that_a_shell_runs(run: Run) -> None:
    Path("c.yaml").write_text(
        """
steps:
  - index: {data: train.jsonl, out: "an index", method: tfidf, set: {ngrams: 2, view: response}}
  - name: ask
    top: {index: an index, prompt: "it's $HOME", response: "-5", k: 2, why: false, json: true}
  - select: {index: an index, queries: q.jsonl, count: 3, by: label, most: {label 1: 1, label 2: 2}, out: s.jsonl}
"""
    )
    lines = do(run, "run c.yaml --list").out.splitlines()
    assert lines[1] == "airrep top 'an index' --prompt 'it'\"'\"'s $HOME' --response -5 --json -k 2"
    program = f'airrep() {{ {shlex.quote(sys.executable)} -m airrep "$@"; }}\n'
    ended = subprocess.run(["bash", "-ec", program + "\n".join(lines)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["kind"] == "top"
    assert len(Path("s.jsonl").read_text().splitlines()) == 3
    assert "step 2 (ask) of 3" in do(run, "run c.yaml --set 3.replace=true").err


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ("- indx: {}", "step 1 (indx): 'indx' is no command. Did you mean 'index'?\n"),
        ("- index: {daat: t}", "replace. Did you mean 'data'?\n"),
        ("- index: {data: train.jsonl}", "step 1 (index): Missing option '--out'. See: airrep index --help"),
        ("- top: {index: i, k: ten}", "step 1 (top): Invalid value for '-k'"),
        ("- top: {index: i, k: [1]}", "k: is a list; expected one value. Correct it."),
        ("- top: {index: i, least: 1}", "least: is 1; expected true or false"),
        ("- top: {index: true}", "index: is True; expected a text or a number"),
        ("- top: {index: i, set: [[a]]}", "set: is ['a']; expected a text or a number"),
        ("- top: {index: i, help: true}", "'help' is no option here"),
        ("- run: {config: c.yaml}", "'run' cannot be a step"),
        ("- serve: {index: i}", "'serve' cannot be a step"),
        ("- evaluate: {index: i}", "'evaluate' is no command"),
        ("- index", "step 1: is not one command with its options"),
        ("- {index: {}, top: {}}", "step 1: is not one command with its options"),
        ("- index: 3", "step 1 (index): expected options by name, not 3"),
        ("- index: {data: 2020-13-45, out: i}", "airrep: error: c.yaml"),
        ("- index: {data: &a [*a], out: i}", "data: is a list; expected one value"),
        ("- index: {data: d, out: i, set: {a: &a [*a]}}", "set: has a value that cannot be written"),
        ("- index: {data: d, out: i, set: {a: 2020-01-01}}", "set: has a value that cannot be written"),
        (" {index: {}}", "c.yaml: has no steps"),
        (" []", "c.yaml: has no steps"),
        ("- [", "is not YAML"),
    ],
)
def test_a_bad_config_is_refused_in_one_line_before_anything_runs(run: Run, steps: str, problem: str) -> None:
    first = "- index: {data: train.jsonl, out: made, method: tfidf}\n" if steps.startswith("- ") else ""
    Path("c.yaml").write_text(f"steps:{chr(10) if steps[0] == '-' else ''}{first}{steps}\n")
    ran = run("run", "c.yaml")
    assert ran.status == 1
    assert re.match(r"airrep: error: c\.yaml(:\d+)?: ", ran.err)
    assert ran.err.count("\n") == 1
    assert problem.replace("step 1", "step 2" if first else "step 1") in ran.err
    assert not Path("made").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("airrep: 99.1\nsteps: [{methods: {}}]", "is of airrep 99.1; this is"),
        ("stps: []\nsteps: [{methods: {}}]", "'stps' is unknown; expected airrep, folder, steps"),
        ("folder: nowhere\nsteps: [{methods: {}}]", "folder nowhere does not exist"),
        ("folder: 3\nsteps: [{methods: {}}]", "folder is 3; expected a path"),
        ("", "has no steps"),
        ('steps: [{methods: {name: "\\0"}}]', "method"),
    ],
)
def test_a_config_must_be_of_this_airrep_and_of_known_keys(run: Run, text: str, problem: str) -> None:
    Path("c.yaml").write_text(text)
    ran = run("run", "c.yaml")
    assert (ran.status, problem in ran.err, "Traceback" in ran.err) == (1, True, False), ran.err


def test_a_config_of_any_0_runs_and_odd_files_do_not(run: Run) -> None:
    Path("c.yaml").write_text("airrep: 0.x\nsteps: [{methods: {name: tfidf}}]\n")
    assert "unit TF-IDF rows" in do(run, "run c.yaml").out
    Path("c.yaml").write_bytes(b"\xff\xfe\x00")
    assert "c.yaml: cannot be read" in run("run", "c.yaml").err
    Path("c.yaml").write_bytes(b"#" * 2**21)
    assert "expected a list of steps" in run("run", "c.yaml").err
    assert "cannot be read" in run("run", "nowhere.yaml").err


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("top", "is not of the form STEP.OPTION=VALUE"),
        ("rank.k=3", "there is no step 'rank'; expected one of 1 (index), 2 (top), 3 (top)"),
        ("top.k=3", "several steps are called 'top'"),
        ("2.k=[", "the value is not YAML"),
        ("2.kk=3", "step 2 (top): 'kk' is no option here"),
    ],
)
def test_other_values_must_be_of_a_step(run: Run, value: str, problem: str) -> None:
    Path("c.yaml").write_text("steps: [{index: {data: d, out: i}}, {top: {index: i}}, {top: {index: i}}]")
    ran = run("run", "c.yaml", "--set", value)
    assert (ran.status, problem in ran.err) == (1, True), ran.err


def test_one_key_of_a_setting_can_be_another(run: Run) -> None:
    Path("c.yaml").write_text(
        "steps: [{index: {data: train.jsonl, out: i, method: ngram, set: {mix: 0.3, length: 0}}}]"
    )
    assert "--set mix=0.5 --set length=0" in do(run, "run c.yaml --list --set index.set.mix=0.5").out


def test_arguments_that_begin_with_a_dash_stay_arguments(run: Run) -> None:
    Path("c.yaml").write_text("steps: [{index: {data: -data.jsonl, out: -out, method: tfidf}}]")
    shutil.copy("train.jsonl", "-data.jsonl")
    assert do(run, "run c.yaml --list").out == "airrep index --out -out --method tfidf -- -data.jsonl\n"
    do(run, "run c.yaml")
    assert len(airrep.open_index("-out")) == 30


def test_a_failing_step_ends_the_run_with_its_number_and_name(run: Run) -> None:
    Path("c.yaml").write_text(
        "steps:\n- index: {data: train.jsonl, out: i, method: tfidf}\n"
        "- {name: first question, top: {index: i, queries: nowhere.jsonl}}\n- compact: {index: i}\n"
    )
    ran = run("run", "c.yaml")
    assert ran.status == 1
    assert ran.err.splitlines()[-1].startswith("airrep: error: c.yaml: step 2 (first question): nowhere.jsonl: ")
    assert "step 3" not in ran.err
    assert Path("i/manifest.json").is_file()


def test_a_line_of_history_that_a_kill_cut_is_left_out(run: Run) -> None:
    do(run, "index train.jsonl --out i --method tfidf")
    with Path("i", HISTORY).open("a") as stream:
        stream.write('{"airrep": "0.1", "st')
    assert len(read_history(Path("i"))) == 1
    do(run, "delete i --id e1")
    assert [line.step.command for line in read_history(Path("i"))] == ["index", "delete"]


def test_a_history_that_was_altered_is_refused_when_shown_and_not_believed_when_run(run: Run) -> None:
    do(run, "index train.jsonl --out i --method tfidf")
    config(run, "i")
    for bad in ("[1]\n", "{}\n", '{"step": {"a": 1, "b": 2}}\n', '{"step": 3}\n', "\xff\n", '{"step": {"top": [1]}}\n'):
        Path("i", HISTORY).write_text(bad, encoding="latin-1")
        ran = run("show", "i", "--config")
        assert (ran.status, "cannot be read as commands of airrep" in ran.err) == (1, True), bad
        with pytest.raises(ArtifactError, match="Delete it"):
            read_history(Path("i"))
        assert "was finished already" in do(run, "run config.yaml").err


def test_artifacts_that_may_not_be_written_are_found_as_before(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    airrep.build_index(make_corpus(30), "i", "tfidf")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr("airrep.cli.running.history.record", refuse)
    assert "was finished already" in do(run, "index train.jsonl --out i --method tfidf").err


def test_the_documented_config_runs(run: Run) -> None:
    page = (Path(__file__).parents[3] / "docs" / "runs.md").read_text()
    Path("top.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    Path("q.jsonl").rename("queries.jsonl")
    do(run, "run top.yaml --set top.k=5 --set 1.set.mix=0.3")
    assert airrep.open_index("runs/index").manifest["settings"]["mix"] == 0.3
    assert len(airrep.read_result("runs/top")[0]) == 5
    assert do(run, "run top.yaml --set top.k=5 --set 1.set.mix=0.3").err.count("was done already") == 3


def test_every_command_can_be_a_step_with_names_of_its_own() -> None:
    import typer.main

    from airrep.cli.running.steps import Commands, fields

    commands = Commands(typer.main.get_command(cli.app))
    for name in ("index", "top", "evaluate lds", "label", "adapt", "run", "show"):
        command = commands.named(name)
        shown = [parameter for parameter in command.params if parameter.name != "help"]
        assert len(fields(command)) == len(shown)
    assert {"index", "labels"} < {*fields(commands.named("evaluate lds"))}
    for name, command in commands._commands.items():
        assert len(fields(command)) == len([one for one in command.params if one.name != "help"]), name
