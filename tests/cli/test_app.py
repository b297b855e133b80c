"""Command line: each command, its exit status, where its words go."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from worlds.commands import Run, done, refused
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld, make_plan

import airrep
from airrep.attributors.methods import METHODS
from airrep.cli import demo
from airrep.errors import ConfigError
from airrep.index.results.result import order_in_words
from airrep.labels.farm import label as toy_label


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return run


def write(path: str, corpus: airrep.Corpus) -> str:
    Path(path).write_text("".join(json.dumps(example.to_dict()) + "\n" for example in corpus))
    return path


@pytest.fixture
def world(run: Run) -> Run:
    """A TF-IDF index of thirty examples, and four queries."""
    write("queries.jsonl", make_corpus(4, "q"))
    ran = done(run("index", write("train.jsonl", make_corpus(30)), "--out", "runs/index", "--method", "tfidf"))
    assert ran.out == ""
    assert "built: 30 examples, method tfidf; next: airrep top runs/index QUERIES" in ran.err
    return run


def test_index_twice_is_told(world: Run) -> None:
    ran = done(world("index", "train.jsonl", "--out", "runs/index", "--method", "tfidf"))
    assert "was finished already: 30 examples" in ran.err
    ran = world("index", "train.jsonl", "--out", "runs/index", "--method", "tfidf", "--set", "ngrams=2")
    assert ran.status == 1
    assert ran.err.startswith("airrep: error: runs/index: holds an index made with another attributor")
    assert ran.err.count("\n") == 1
    write("train.jsonl", make_corpus(31))  # the words that the attributor learnt differ too
    ran = world("index", "train.jsonl", "--out", "runs/index", "--method", "tfidf")
    assert ran.status == 1
    assert ran.err.startswith("airrep: error: runs/index: holds an index made with another corpus")


def test_top_as_json_and_as_table(world: Run) -> None:
    ran = world("top", "runs/index", "queries.jsonl", "-k", "3", "--json")
    result = json.loads(ran.out)
    assert ran.err == ""
    assert [len(query["hits"]) for query in result["queries"]] == [3] * 4
    assert result["provenance"]["method"] == "tfidf"
    assert result["order"] == "most helpful first"
    index = airrep.Index("runs/index")
    assert result["provenance"]["index"] == index.fingerprint
    assert result == airrep.top(index, airrep.read_corpus("queries.jsonl"), k=3).to_dict()
    table = world("top", "runs/index", "queries.jsonl", "-k", "3", "--least", "--wide").out
    assert "least helpful for q0" in table  # words in common harm nobody
    assert "higher = more helpful" in table


def test_the_end_of_a_ranking_in_words() -> None:
    assert order_in_words(False, [-1.0]) == "most helpful"
    assert order_in_words(True, [0.0, 0.5]) == "least helpful"
    assert order_in_words(True, [0.5, -0.1]) == "most harmful"


def test_the_record_of_a_training_is_shown(world: Run, tmp_path: Path) -> None:
    folder = tmp_path / "record"
    folder.mkdir()
    (folder / "record.json").write_text('{"format": 1, "examples": 64, "batch_size": 4, "ended_at": 12}')
    losses = [2.0, 2.1, 1.9, 2.0, 2.05, 1.95, 9.0, 2.0]
    rows = [{"first": n, "last": n, "learning_rate": 0.1, "rows": [n, n + 50]} for n in range(1, 9)]
    steps = [row | {"loss": loss} for row, loss in zip(rows, losses, strict=True)]
    (folder / "steps-0.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    shown = world("show", str(folder)).out
    assert re.search(r"state +finished", shown)
    assert re.search(r"7 .* 9 .* 2 .* 7, 57", shown)
    told = json.loads(world("show", str(folder), "--json").out)
    assert [jump["last"] for jump in told["jumps"]] == [7]
    assert len(told["steps"]) == 8
    (folder / "record.json").write_text("[1]")
    told = "cannot be read (TypeError). Restore the folder, or record the training again.\n"
    assert world("show", str(folder)).err.endswith(told)


def test_top_tells_why(world: Run) -> None:
    asked = ("top", "runs/index", "queries.jsonl", "-k", "2")
    told = json.loads(world(*asked, "--why", "--json").out)
    hit = told["queries"][0]["hits"][0]
    assert hit["why"]["channels"] == {"tfidf": hit["score"]}
    same = hit["why"]["same_words"][0]
    span = same["example"][0]
    assert hit["example"][span["field"]][span["start"] : span["stop"]].lower() == same["text"].lower()
    shown = world(*asked, "--why", "--out", "runs/why").out
    assert "same words: " in shown
    assert "tfidf +" in shown
    assert shown.count("need not be its cause") == 1
    assert "need not be its cause" not in world(*asked).out
    assert world("report", "runs/why", "--out", "why.html").status == 0
    assert "<mark>" in Path("why.html").read_text()


def test_top_tells_pairs_of_words(world: Run) -> None:
    asked = ("top", "runs/index", "queries.jsonl", "-k", "2", "--tokens")
    told = json.loads(world(*asked, "--json").out)
    for hit in (hit for query in told["queries"] for hit in query["hits"]):
        tokens = hit["why"]["tokens"]
        assert len(tokens["scores"]) == len(tokens["query"]) + 1
        assert sum(map(sum, tokens["scores"])) + sum(tokens["rest"].values()) == pytest.approx(hit["score"], abs=1e-6)
    shown = world(*asked, "--out", "runs/tokens").out
    assert " ← " in shown
    assert "an eighth or more" in shown
    assert world("report", "runs/tokens", "--out", "tokens.html").status == 0
    assert '<mark class="t4" title="+' in Path("tokens.html").read_text()
    assert "--tokens explains the hits of one query" in world(*asked, "--aggregate").err


def test_groups_and_what_ifs_tell_why(world: Run) -> None:
    group = world("group", "runs/index", "queries.jsonl", "--by", "source", "--why").out
    assert "score" in group.split("tfidf")[0]
    change = world("what-if", "runs/index", "queries.jsonl", "--remove", 'source == "forum"', "--why", "--json").out
    entry = json.loads(change)["queries"][0]
    assert entry["channels"] == {"tfidf": entry["change"]}
    assert "tfidf" in world("what-if", "runs/index", "queries.jsonl", "--remove", 'source == "forum"', "--why").out


def test_marks_cannot_steer_the_terminal(run: Run) -> None:
    evil = "[red]cat[/red] \x1b[31m \u202e sat [/] " + "far away " * 40
    corpus = airrep.Corpus.from_examples([airrep.Example(evil, evil + "dog", id="t"), airrep.Example("b", "c", id="u")])
    assert run("index", write("train.jsonl", corpus), "--out", "runs/index", "--method", "ngram").status == 0
    ran = done(run("top", "runs/index", "--prompt", evil, "--response", evil + "dog", "-k", "2", "--why"))
    assert "[red]cat[/red]" in ran.out
    assert not set("\x1b\u202e") & set(ran.out)


def test_the_caution_about_a_method_is_told_once(run: Run) -> None:
    train, queries = write("train.jsonl", make_corpus(4)), write("queries.jsonl", make_corpus(1, "q"))
    told = "a general sentence encoder, not yet trained for attribution"
    ran = run("index", train, "--out", "runs/index", "--encoder", "untrained")
    assert told in ran.err
    assert told in run("show", "runs/index").out
    for command in (("top", "-k", "1"), ("group", "--by", "source"), ("what-if", "--remove", 'source == "forum"')):
        name, *rest = command
        assert told not in run(name, "runs/index", queries, *rest).out
        assert told in json.loads(run(name, "runs/index", queries, *rest, "--json").out)["provenance"]["caution"]
    ran = run("group", "runs/index", queries, "--by", "source", "--pool", "order-1")
    assert "in units of the loss only if features" in " ".join(ran.out.split())
    run("append", "runs/index", write("more.jsonl", make_corpus(2, "m")))
    assert told in run("show", "runs/index").out


def test_a_field_that_no_example_has_and_a_filter_that_drops_none_are_told(run: Run) -> None:
    rows = [{"prompt": f"ask {row}", "response": f"say {row}", "origin": "forum"} for row in range(4)]
    Path("train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert run("index", "train.jsonl", "--out", "runs/index", "--method", "tfidf").status == 0
    export = ("export", "runs/index", "--to", "csv", "--out", "kept.csv", "--where")
    ran = run(*export, 'source != "forum"')
    assert (ran.status, "no example has a source" in ran.err, Path("kept.csv").exists()) == (1, True, False)
    ran = run(*export, 'origin != "forrum"')
    assert (ran.status, "4 examples" in ran.err) == (0, True)
    assert 'no example fails the filter origin != "forrum"' in ran.err
    assert "no example fails" not in run(*export, 'prompt != "ask 0"', "--replace").err
    limit = ("--by", "source", "--most", "1")
    ran = run("select", "runs/index", "train.jsonl", "--count", "2", *limit, "--out", "s.jsonl")
    assert (ran.status, "no example has a source" in ran.err, Path("s.jsonl").exists()) == (1, True, False)
    ran = run("group", "runs/index", "--prompt", "ask", "--response", "say 1", "--by", "source")
    assert (ran.status, "no example has a source. Name another field, such as origin" in ran.err) == (1, True)


def test_typed_query(world: Run) -> None:
    ran = world("top", "runs/index", "--prompt", "question e 7", "--response", "answer 18", "-k", "1", "--json")
    assert json.loads(ran.out)["queries"][0]["hits"][0]["example"]["id"] == "e7"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "queries: give either a file of queries, or --prompt and --response"),
        (("queries.jsonl", "--prompt", "a"), "queries: give either a file of queries, or --prompt and --response"),
        (("--prompt", "a"), "--prompt needs --response"),
        (("--prompt", "a", "--response", " "), "queries: --response is blank"),
        (("--response", "a", "--better", " "), "--better is blank"),
        (("nowhere.jsonl",), "nowhere.jsonl"),
        (("queries.jsonl", "-k", "0"), "k is 0"),
        (("queries.jsonl", "--where", "flavour == 1"), "flavour"),
        (("queries.jsonl", "--where", "__import__('os')"), "where"),
    ],
)
def test_bad_questions_end_in_one_line(world: Run, arguments: tuple[str, ...], message: str) -> None:
    refused(world("top", "runs/index", *arguments), message)


def test_a_file_of_another_form_is_told_as_what_it_was_read(world: Run) -> None:
    turns = [("human", "Hi"), ("gpt", "Hello."), ("human", "Why?"), ("gpt", "So.")]
    talk = {"conversations": [{"from": role, "value": value} for role, value in turns]}
    Path("talk.jsonl").write_text(json.dumps(talk) + "\n" + '{"text": "Once."}\n')
    told = world("top", "runs/index", "talk.jsonl", "--json").err
    assert told.splitlines()[0] == (
        "talk.jsonl: 2 examples; records read: 1 as conversations (only the last assistant turn; --turns all uses "
        "every one), 1 as text alone (no prompt: all of it is the response)"
    )
    every = world("top", "runs/index", "talk.jsonl", "--turns", "all", "--json")
    assert len(json.loads(every.out)["queries"]) == 3
    Path("open.jsonl").write_text('{"messages": [{"role": "user", "content": "Hi"}]}')
    assert "Set --turns all to use every assistant turn" in world("top", "runs/index", "open.jsonl").err
    assert "turns 'some': must be last or all" in world("top", "runs/index", "talk.jsonl", "--turns", "some").err


def test_a_response_alone_is_a_query(world: Run) -> None:
    (query,) = json.loads(world("top", "runs/index", "--response", "so it is", "--json").out)["queries"]
    assert query["query"]["prompt"] == ""


def test_group_by_field_and_by_file(world: Run) -> None:
    by_field = json.loads(world("group", "runs/index", "queries.jsonl", "--by", "label", "--json").out)
    assert [group["name"] for group in by_field["groups"]] == ["label 0", "label 1", "label 2"]
    groups = {f"label {label}": [f"e{row}" for row in range(label, 30, 3)] for label in range(3)}
    Path("groups.json").write_text(json.dumps(groups))
    by_file = json.loads(world("group", "runs/index", "queries.jsonl", "--by", "groups.json", "--json").out)
    assert by_file == by_field
    asked = ("group", "runs/index", "queries.jsonl", "--by", "source", "--pool", "mean", "--wide")
    assert "groups for q0" in world(*asked).out
    ran = world("group", "runs/index", "queries.jsonl")
    assert (ran.status, "--by" in ran.err) == (2, True)


@pytest.mark.parametrize("pool", ["order-2-paper", "mean"])
def test_groups_are_scored_by_the_pool_that_is_typed_in(world: Run, pool: str) -> None:
    ask = ("group", "runs/index", "queries.jsonl", "--by", "label", "--pool", pool)
    result = json.loads(world(*ask, "--json").out)
    assert (result["provenance"]["pool"], result["provenance"]["temperature"]) == (pool, None)
    index = airrep.Index("runs/index")
    expected = index.group_scores(airrep.read_corpus("queries.jsonl"), "label", pool).scores
    assert [query["scores"] for query in result["queries"]] == expected.tolist()
    assert f", {pool} pooling; method tfidf" in " ".join(world(*ask).out.split())


def test_temperature_is_a_flag_of_attention(world: Run) -> None:
    ask = ("group", "runs/index", "queries.jsonl", "--by", "label", "--pool", "attention:0.2")
    result = json.loads(world(*ask, "--json").out)
    assert (result["provenance"]["pool"], result["provenance"]["temperature"]) == ("attention", 0.2)
    warm = json.loads(world(*ask[:-1], "attention", "--json").out)
    assert warm["provenance"]["temperature"] == 1.0
    assert result["queries"] != warm["queries"]
    assert "attention at temperature 0.2 pooling" in " ".join(world(*ask).out.split())
    removal = ("what-if", "runs/index", "queries.jsonl", "--remove", 'source == "forum"')
    assert json.loads(world(*removal, *ask[5:], "--json").out)["provenance"]["temperature"] == 0.2
    assert json.loads(world(*removal, "--pool", "order-inf", "--json").out)["queries"][0]["before"] == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--pool", "max"), "--pool max: this way to score a group does not exist; expected one of sum, mean, "),
        (("--pool", "order-3-paper"), "pool 'order-3-paper' (a way to score a group): the ending -paper"),
        (("--pool", "mean:0.2"), "temperature 0.2: pool mean (a way to score a group) has no temperature"),
        (("--pool", "attention:warm"), "--pool attention:warm: the temperature 'warm' is not a number"),
    ],
)
@pytest.mark.parametrize("command", [("group", "--by", "label"), ("what-if", "--remove", 'source == "forum"')])
def test_bad_pools_end_in_one_line(world: Run, command: tuple[str, ...], flags: tuple[str, ...], message: str) -> None:
    ran = world(command[0], "runs/index", "queries.jsonl", *command[1:], *flags)
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert ran.err.startswith(f"airrep: error: {message}")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{}", "groups"),
        ("[]", "groups"),
        ("{", "JSON"),
        ('{"b": [1], "a": []}', "group 'a'"),
        ('{"a": "e1"}', "group 'a'"),
        ('{"a": [1, "e1"]}', "group 'a'"),
        ("[[1], [true]]", "group '1'"),
        ('{"a": [1], "b": [2], "a": [3]}', "'a' occurs twice"),  # the last one was used, and the first one lost
    ],
)
def test_bad_group_files_are_told(world: Run, content: str, named: str) -> None:
    Path("groups.json").write_text(content)
    ran = world("group", "runs/index", "queries.jsonl", "--by", "groups.json")
    assert ran.status == 1
    assert ran.err.startswith("airrep: error: groups.json: ")
    assert named in ran.err
    assert 'Write {"name": [ids or rows], …}' in ran.err


def test_what_if(world: Run) -> None:
    removed = json.loads(world("what-if", "runs/index", "queries.jsonl", "--remove", 'source == "forum"', "--json").out)
    kept = json.loads(world("what-if", "runs/index", "queries.jsonl", "--keep", 'source != "forum"', "--json").out)
    assert (removed.pop("removal"), kept.pop("removal")) == ('without source == "forum"', 'only source != "forum"')
    assert removed == kept
    assert (removed["removed"], removed["kept"]) == (10, 20)
    shown = world("what-if", "runs/index", "queries.jsonl", "--remove", 'source == "forum"').out
    assert 'without source == "forum": 10 examples left out, 20 kept' in shown
    assert world("what-if", "runs/index", "queries.jsonl").status == 1


def test_many_queries_are_summed_up_not_listed(world: Run) -> None:
    write("many.jsonl", make_corpus(25, "q"))
    scores = airrep.Index("runs/index").group_scores(Path("many.jsonl"), by="source")
    shown = world("group", "runs/index", "many.jsonl", "--by", "source").out
    assert "To see each of the 25 queries, add --wide" in shown
    assert shown.count("groups for") == 0
    for name, mean, spread in zip(scores.names, scores.scores.mean(axis=0), scores.scores.std(axis=0), strict=True):
        line = next(line for line in shown.splitlines() if f" {name} " in line)
        cells = [cell.strip() for cell in line.split("│")]
        assert [float(cells[place]) for place in (3, 4)] == pytest.approx([mean, spread], abs=2e-3)
    shown = world("what-if", "runs/index", "many.jsonl", "--remove", 'source == "forum"').out
    change = airrep.Index("runs/index").what_if(Path("many.jsonl"), remove='source == "forum"').change
    told = r"over 25 queries: (\S+)\. The score falls for (\d+) .* rises for (\d+)\."
    found = re.search(told, " ".join(shown.split()))
    assert found
    assert float(found[1].replace("−", "-")) == pytest.approx(change.mean(), abs=1e-3)
    assert (int(found[2]), int(found[3])) == ((change < 0).sum(), (change > 0).sum())
    assert len(shown.splitlines()) < 10
    shown = world("top", "runs/index", "many.jsonl", "-k", "3").out
    top = airrep.Index("runs/index").top(Path("many.jsonl"), k=3)
    found = [hit.example.id for hits in top for hit in hits]
    assert f"25 queries; {len(set(found))} different examples are among the most helpful" in shown
    assert f"for {max(map(found.count, found))} of 25 queries" in shown
    assert world("group", "runs/index", "queries.jsonl", "--by", "source", "--wide").out.count("groups for") == 4


def test_select_writes_a_training_file_with_reasons(world: Run) -> None:
    done(world("select", "runs/index", "queries.jsonl", "--count", "5", "--out", "picked.jsonl"))
    picked = airrep.read_corpus("picked.jsonl")
    assert len(picked) == 5
    reasons = [example.metadata["selected_by"] for example in picked]
    places = [(reason["rank"], reason["query"]) for reason in reasons]
    assert places == sorted(places)
    ran = world("select", "runs/index", "queries.jsonl", "--count", "5", "--out", "picked.jsonl")
    assert (ran.status, "picked.jsonl: exists already; nothing is overwritten" in ran.err) == (1, True)
    ran = world("select", "runs/index", "queries.jsonl", "--count", "31", "--out", "more.jsonl")
    assert (ran.status, "only 30 examples can be chosen" in ran.err) == (1, True)
    assert not Path("more.jsonl").exists()


def test_report_from_runs(world: Run) -> None:
    world("top", "runs/index", "queries.jsonl", "-k", "3", "--out", "runs/top")
    ran = world("group", "runs/index", "queries.jsonl", "--by", "source", "--out", "runs/group")
    assert "written to runs/group; next: airrep report runs/group --out report.html" in ran.err
    done(world("report", "runs/top", "runs/group", "--out", "page.html"))
    page = Path("page.html").read_text()
    assert "question q 0" in page
    assert "forum" in page
    refused(world("report", "runs/index", "--out", "other.html"), "is of kind 'index'")


def test_show_names_the_recipe_and_answers_are_sums_of_channels(run: Run) -> None:
    write("train.jsonl", make_corpus(12))
    write("q.jsonl", make_corpus(2, "q"))
    Path("mine.yaml").write_text("- method: tfidf\n- method: bm25\n")
    for recipe, told in (("text", "recipe text"), ("mine.yaml", "recipe of its own (tfidf, bm25)")):
        assert run("index", "train.jsonl", "--recipe", recipe, "--out", "i", "--replace").status == 0
        answers = [run("top", "i", "q.jsonl"), run("group", "i", "q.jsonl", "--by", "label")]
        for ran in (*answers, run("what-if", "i", "q.jsonl", "--remove", "id == 'e1'")):
            assert "sum over the recipe's methods, index " in " ".join(ran.out.split()), ran.out + ran.err
        assert told in " ".join(run("show", "i").out.split())


def test_append_delete_compact_show(world: Run) -> None:
    assert "9 examples added, 39 in all" in world("append", "runs/index", write("m.jsonl", make_corpus(9, "m"))).err
    assert "0 examples added (9 were there already), 39 in all" in world("append", "runs/index", "m.jsonl").err
    assert "13 examples deleted, 26 left" in world("delete", "runs/index", "--where", 'label == "label 0"').err
    ran = world("delete", "runs/index", "--where", 'label == "label O"')
    told = 'runs/index: 0 examples deleted, 26 left; filter label == "label O": no example matches. '
    assert (ran.status, ran.err.startswith(told), ran.err.count("\n")) == (0, True, 1), ran.err
    assert "1 example deleted, 25 left" in world("delete", "runs/index", "--id", "e1").err
    assert "25 examples in 1 shard" in world("delete", "runs/index", "--compact").err
    shown = world("show", "runs/index", "--verify")
    assert re.search(r"rows +25\n", shown.out)
    assert "files are as the checksums in the manifest say" in shown.err
    assert json.loads(world("show", "runs/index", "--json").out)["generation"] == 4
    assert world("delete", "runs/index").status == 1
    refused(world("show", "nowhere"), "nowhere: does not exist; expected a directory that airrep wrote")


def test_one_worker_on_ray_is_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    engines: list[Any] = []

    def build(*_: object, engine: object, **__: object) -> None:
        engines.append(engine)
        raise ConfigError("enough")

    monkeypatch.setattr("airrep.index.building.build_index", build)
    write("train.jsonl", make_corpus(3))
    for workers in (("--workers", "1"), ("--workers", "3"), ()):
        run("index", "train.jsonl", "--out", "i", "--set", "engine=ray", *workers)
    assert [engine.workers for engine in engines] == [1, 3, None]
    run("index", "train.jsonl", "--out", "i")
    run("index", "train.jsonl", "--out", "i", "--workers", "1")
    assert engines[3:] == [None, None]


def test_settings_from_a_file(run: Run) -> None:
    write("train.jsonl", make_corpus(6))
    Path("tfidf.yaml").write_text("ngrams: 2\n")
    done(run("index", "train.jsonl", "--out", "i", "--method", "tfidf", "--set", "tfidf.yaml", "--set", "min_count=2"))
    assert airrep.Index("i").manifest["settings"] == {"ngrams": 2, "min_count": 2}
    ran = run("index", "train.jsonl", "--out", "j", "--set", "vew=response")
    assert (ran.status, "Did you mean 'view'?" in ran.err, "expected one of view, " in ran.err) == (1, True, True), (
        ran.err
    )
    for arguments, message in (
        (("--set", "none.yaml"), "none.yaml: cannot be read"),
        (("--set", "ngrams"), "is neither key=value nor a YAML file"),
        (("--set", "words=2"), "'words' is not a setting here; expected one of "),
        (("--encoder", "default"), "'encoder' is not a setting here"),
    ):
        refused(run("index", "train.jsonl", "--out", "j", "--method", "tfidf", *arguments), message)


def test_records_left_out_are_counted(run: Run) -> None:
    write("train.jsonl", make_corpus(6))
    with Path("train.jsonl").open("a") as stream:
        stream.write('{"prompt": "no response"}\n')
    ran = run("index", "train.jsonl", "--out", "i", "--method", "tfidf")
    assert (ran.status, "train.jsonl:7" in ran.err, "add --skip-invalid" in ran.err) == (1, True, True)
    assert "Leave out --split." in run("index", "train.jsonl", "--out", "i", "--split", "test").err
    ran = done(run("index", "train.jsonl", "--out", "i", "--method", "tfidf", "--skip-invalid"))
    assert "1 record left out, the first: train.jsonl:7" in ran.err
    Path("turns.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
        '{"messages": [{"role": "assistant", "content": "b"}, {"role": "user", "content": "a"}]}\n'
    )
    ran = run("index", "turns.jsonl", "--out", "j", "--method", "tfidf", "--skip-invalid")
    assert "Set --turns all to use every assistant turn" in ran.err


@pytest.fixture
def labelling(run: Run, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, list[dict[str, Any]]]:
    """The command line over a plan, data and labels without a language model; and what the farm was asked for."""
    asked: list[dict[str, Any]] = []
    make_plan(Path("plan"))
    write("train.jsonl", TRAIN)
    write("queries.jsonl", QUERIES)

    def label(plan: Any, train: Any, queries: Any, lm: Any, tuning: Any, out: Path, **rest: Any) -> Any:
        asked.append({"lm": lm, "tuning": tuning, **rest})
        world = ToyWorld(poison=int(plan.subset_rows(0, 0)[0]))
        wanted = {name: rest[name] for name in ("part", "partial")}
        return toy_label(plan, TRAIN, QUERIES, world, FINE_TUNE, out, retries=0, **wanted)

    monkeypatch.setattr("airrep.labels.farm.label", label)
    return run, asked


LABEL = ("label", "plan", "train.jsonl", "--queries", "queries.jsonl", "--lm", "lm", "--out", "labels")


def test_label_takes_settings_of_the_lm_and_of_the_fine_tuning(labelling: tuple[Run, list[dict[str, Any]]]) -> None:
    run, asked = labelling
    Path("both.yaml").write_text("epochs: 3\ncheckpointing: true\ntemplate: '{prompt} {response}'\nmax_tokens: 64\n")
    done(run(*LABEL, "--set", "both.yaml", "--set", "batch_tokens=99", "--set", "clip=2", "--set", "max_tokens=32"))
    lm, tuning = asked[0]["lm"], asked[0]["tuning"]
    assert (lm.lm, lm.checkpointing, lm.template, lm.batch_tokens) == ("lm", True, "{prompt} {response}", 99)
    assert lm.max_tokens == 32
    assert (tuning.epochs, tuning.clip) == (3, 2.0)
    ran = run(*LABEL, "--set", "lm=other")
    refused(ran, "'lm' is not a setting here; expected one of ", "clip, ", " more. ")


def test_losses_of_another_trainer_become_labels(labelling: tuple[Run, list[dict[str, Any]]]) -> None:
    run, asked = labelling
    start = ("label", "plan", "train.jsonl", "--queries", "queries.jsonl", "--out", "labels")
    rows = [{"subset": f"{i}-{j}", "query": q, "loss": j + q} for i in range(2) for j in range(5) for q in range(4)]
    Path("losses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reasons = {
        (): "no model to fine-tune is given. Add --lm MODEL",
        ("--import", "losses.jsonl", "--command", "x {train} {losses}"): "--import and --command both give the losses",
        ("--import", "losses.jsonl", "--set", "epochs=3"): "epochs: these settings have no effect with --import",
        ("--import", "losses.jsonl", "--part", "1/2"): "--part divides the fine-tunes, but --import runs none",
        ("--import", "none.jsonl"): "none.jsonl: cannot be read (No such file or directory)",
    }
    for more, reason in reasons.items():
        refused(run(*start, *more), reason)
    ran = done(run(*start, "--import", "losses.jsonl", "--lm", "any/name"))
    assert "12 of 12 finished); next: airrep train labels" in ran.err
    assert not asked
    shown = run("show", "labels")
    assert "trainer=imported" in shown.out
    assert "state        finished" in shown.out


def test_sample_writes_files_for_another_trainer(run: Run) -> None:
    write("train.jsonl", TRAIN)
    drawn = ("--instances", "1", "--train-count", "8", "--query-count", "2", "--subsets", "3", "--size", "4")
    ran = done(run("sample", "train.jsonl", "--out", "plan", *drawn, "--write", "files"))
    assert "files: wrote the subsets and queries as JSONL; subsets.jsonl lists the files" in ran.err
    assert "train on each subset, then: airrep label plan train.jsonl --import LOSSES --out LABELS" in ran.err
    assert len(Path("files/subsets.jsonl").read_text().splitlines()) == 3


def test_more_workers_than_cores_are_told_and_reckon_no_less_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def adapt(*_: Any, **named: Any) -> Any:
        asked.update(named)
        raise ConfigError("enough")

    write("train.jsonl", make_corpus(3))
    monkeypatch.setattr("airrep.runtime.metering.cores", lambda: 2)
    monkeypatch.setattr("airrep.planning.adapt.Adaptation", adapt)
    told = "--workers 5: this machine has 2 cores. On the CPU, use --workers 2, which is as fast\n"
    err = run("adapt", "train.jsonl", "--lm", "lm", "--out", "o", "--workers", "5").err
    assert told in err
    assert (asked["workers"], asked["engine"].workers) == (2, 5)
    assert "this machine" not in run("adapt", "train.jsonl", "--lm", "lm", "--out", "o", "--workers", "2").err
    assert asked["workers"] == 2
    ran = run("index", "train.jsonl", "--out", "i", "--method", "tfidf", "--workers", "3")
    assert (ran.status, "--workers 3: this machine has 2 cores" in ran.err) == (0, True)


def test_adapt_takes_settings_of_the_lm_and_of_the_fine_tuning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def adapt(*given: Any, **named: Any) -> Any:
        asked.append((given[1], given[2], named["workers"], named["engine"]))
        raise ConfigError("enough")

    monkeypatch.setattr("airrep.planning.adapt.Adaptation", adapt)
    write("train.jsonl", TRAIN)
    chosen = ("--set", "batch_tokens=99", "--set", "epochs=3")
    assert "enough" in run("adapt", "train.jsonl", "--lm", "lm", "--out", "o", *chosen).err
    lm, tuning, workers, engine = asked[0]
    assert (lm.batch_tokens, tuning.epochs, workers, engine) == (99, 3, 1, None)


def test_label_names_the_training_only_when_all_is_there(labelling: tuple[Run, list[dict[str, Any]]]) -> None:
    run, _ = labelling
    last = run(*LABEL, "--part", "1/2").err.splitlines()[-1]
    assert "missing, " in last
    assert "run the other parts, or the same command without --part" in last
    assert "airrep train" not in last
    last = run(*LABEL).err.splitlines()[-1]
    assert "; 0 missing, " in last
    again = "run the same command with --set retry_quarantined=true to try those again, or with --partial"
    assert f"given up; {again}" in last
    last = run(*LABEL, "--partial").err.splitlines()[-1]
    assert last.endswith("; next: airrep train labels --data train.jsonl --data queries.jsonl --out ENCODER")


def test_unfinished_labels_are_shown(labelling: tuple[Run, list[dict[str, Any]]]) -> None:
    run, _ = labelling
    run(*LABEL, "--part", "2/2")
    shown = done(run("show", "labels"))
    lines = dict(line.split(None, 1) for line in shown.out.splitlines())
    found = json.loads(run("show", "labels", "--json").out)
    given_up = len(found["quarantined"])
    assert (found["kind"], found["tasks"], found["finished"], found["missing"]) == ("labels", 12, 6 - given_up, 6)
    assert lines["state"].startswith(f"unfinished, {6 - given_up} of 12 fine-tunes and evaluations: 6 missing, ")
    assert lines["state"].count("; run the ") == 2
    assert lines["quarantined"].startswith(f"{given_up}; instance 0, subset 0, seed 0: fine-tune: the loss is not fin")
    checked = run("show", "labels", "--verify")
    assert (checked.status, "of 12 fine-tunes and evaluations, 6 did not run" in checked.err) == (1, True)


def test_finished_labels_are_shown(labelling: tuple[Run, list[dict[str, Any]]]) -> None:
    run, _ = labelling
    run(*LABEL, "--partial")
    shown = done(run("show", "labels", "--verify"))
    assert "files are as the checksums in the manifest say" in shown.err
    lines = dict(line.split(None, 1) for line in shown.out.splitlines())
    assert lines["lm"] == "toy"
    assert "epochs=2, " in lines["fine-tuning"]
    assert lines["instances"] == "2, of 5 subsets and 4 queries each"
    assert (lines["seeds"], lines["state"]) == ("1", "finished")
    assert "subset 0, seed 0: fine-tune: the loss is not finite. Lower learning_rate." in lines["quarantined"]
    assert json.loads(run("show", "labels", "--json").out)["tasks"] == 12


def test_usage_errors_end_with_2_and_version_with_0(run: Run) -> None:
    assert run("index").status == 2
    assert run("no-such-command") == (2, "", "airrep: error: No such command 'no-such-command'. See: airrep --help\n")
    for line in ("top a b -k many", "--nope", "evaluate --nope", "report --out", "top --x"):
        status, shown, told = run(*line.split())
        assert (status, shown) == (2, "")
        assert told.startswith("airrep: error: ")
        assert told.endswith(" --help\n")
        assert told.count("\n") == 1
    assert "evaluate: no index is given" in run("evaluate").err
    assert run("--version") == (0, f"airrep {airrep.__version__}\n", "")
    assert "Index" in run("--help").out or "index" in run("--help").out


def test_an_index_is_asked_with_settings_of_today(run: Run, tmp_path: Path) -> None:
    lm, out = tiny_lm(tmp_path / "lm"), str(tmp_path / "index")
    train = write("train.jsonl", make_corpus(8))
    run("index", train, "--method", "tracin", "--lm", lm, "--set", "rank=2", "--out", out)
    asked = ("top", out, "--prompt", "p1", "--response", "r1", "-k", "1", "--json")
    first = json.loads(run(*asked).out)
    Path(lm).rename(tmp_path / "moved")
    assert "moved" in (told := run(*asked).err)
    assert "--set lm=FOLDER" in told
    told = run("index", train, "--method", "tracin", "--lm", lm, "--out", "other").err
    assert "no such folder" in told
    assert "moved" not in told  # since it is being built
    found = run(*asked, "--set", f"lm={tmp_path / 'moved'}", "--set", "store=none")
    assert json.loads(found.out)["queries"] == first["queries"]
    assert "Pass --lm MODEL" in run("index", train, "--method", "logra", "--out", "x").err


def test_an_index_says_why_it_reads_an_lm_for_counts(run: Run, tmp_path: Path) -> None:
    train, lm = write("train.jsonl", make_corpus(8)), tiny_lm(tmp_path / "lm")
    counting = ("index", train, "--method", "ngram", "--out", "i")
    assert "give a low weight" in run(*counting, "--lm", lm).err
    ran = run(*counting, "--lm", lm)
    assert (ran.status, "give a low weight" in ran.err) == (0, False)  # finished already, so nothing is read
    ran = run(*counting, "--set", f"tokenizer={lm}", "--replace")
    assert (ran.status, "give a low weight" in ran.err) == (0, False)
    assert "give a low weight" in run("index", train, "--recipe", "text", "--out", "text", "--lm", lm).err
    ran = run("index", train, "--recipe", "papers/logra", "--out", "logra", "--lm", lm, "--set", "rank=2")
    assert (ran.status, "give a low weight" in ran.err) == (0, False)
    ran = run("index", train, "--method", "channels", "--lm", "gone/lm", "--out", "sum")
    assert (ran.status, ran.err.count("\n"), "gone/lm" in ran.err) == (1, 1, True)


def test_methods_are_listed(run: Run) -> None:
    listed = run("show", "methods").out
    assert "trained to rank subsets" in listed
    assert [method["name"] for method in json.loads(run("show", "methods", "--json").out)] == list(METHODS)
    assert run("show", "methods", "tfidf").out == run("show", "tfidf").out
    refused(run("show", "methods", "tfidff"), "method 'tfidff': does not exist")


def test_interruption_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("airrep.corpus.corpus.open_source", interrupt)
    ran = run("index", "train.jsonl", "--out", "i")
    assert ran.status == 130
    assert "airrep: interrupted. Run the same command again: it goes on" in ran.err


def test_parts_of_objects_filter_and_group_and_unlike_values_stay_apart(run: Run) -> None:
    metas = [{"lang": "en", "n": 1}, {"lang": "de", "n": "1"}, {"lang": "en", "n": 1}, {"n": "2"}]
    records = [{"prompt": f"p {n}", "response": f"word {n}", "id": str(n), "meta": m} for n, m in enumerate(metas)]
    Path("train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    write("queries.jsonl", make_corpus(2, "q"))
    assert run("index", "train.jsonl", "--out", "i", "--method", "tfidf", "--set", "shard_rows=1").status == 0

    def ids(expression: str) -> set[str]:
        ran = run("top", "i", "queries.jsonl", "--where", expression, "--json")
        return {hit["example"]["id"] for hit in json.loads(ran.out)["queries"][0]["hits"]}

    assert (ids('meta.lang == "en"'), ids("meta.lang is None"), ids("meta.n == 1")) == ({"0", "2"}, {"3"}, {"0", "2"})
    ran = run("top", "i", "queries.jsonl", "--where", "meta.long == 1")
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert "where 'meta.long == 1', column 1: there is no field \"meta.long\"" in ran.err

    def names(field: str) -> list[str]:
        ran = done(run("group", "i", "queries.jsonl", "--by", field, "--json"))
        return [group["name"] for group in json.loads(ran.out)["groups"]]

    assert names("meta.lang") == ["en", "de", "(none)"]
    assert names("meta.n") == ["1", '"1"', "2"]  # only those that look alike are in quotes
    assert run("group", "i", "queries.jsonl", "--by", "meta.long").err.startswith("airrep: error: field: there is no")
    done(run("select", "i", "queries.jsonl", "--count", "1", "--by", "meta.lang", "--most", "en=0", "--json"))


def _chats(first: int, count: int, **more: Any) -> str:
    """Conversations of two turns, as JSON lines."""
    lines = []
    for number in range(first, first + count):
        said = [("user", f"q {number}"), ("assistant", f"a {number}"), ("user", f"again {number}"), ("assistant", "b")]
        messages = [{"role": role, "content": text} for role, text in said]
        lines.append(json.dumps({"chat": messages, "id": str(number), **more}) + "\n")
    return "".join(lines)


def test_append_reads_as_the_index_was_read(run: Run) -> None:
    Path("train.jsonl").write_text(_chats(0, 4))
    Path("more.jsonl").write_text(_chats(4, 2))
    Path("others.jsonl").write_text(_chats(6, 1))
    options = ("--response-field", "chat", "--turns", "all")
    assert run("index", "train.jsonl", "--out", "i", "--method", "tfidf", *options).status == 0
    ran = done(run("append", "i", "more.jsonl"))
    assert "i: your data are read with the options that the index was built with: --response-field chat" in ran.err
    assert "4 examples added, 12 in all" in ran.err
    ran = run("append", "i", "others.jsonl", "--turns", "last", "--response-field", "chat")
    assert "1 example added, 13 in all" in ran.err
    assert "your data are read with" not in ran.err
    write("queries.jsonl", make_corpus(1, "q"))
    picked = run("select", "i", "queries.jsonl", "--count", "2", "--out", "s.jsonl").err
    assert "airrep export i --to records --data YOUR-DATA --only s.jsonl" in picked
    assert run("delete", "i", "--id", "0/1", "--compact").status == 0
    Path("last.jsonl").write_text(_chats(7, 1))
    assert "2 examples added, 14 in all" in run("append", "i", "last.jsonl").err


def test_a_field_that_is_given_replaces_all_fields_of_the_index(run: Run) -> None:
    Path("train.jsonl").write_text('{"ask": "one word", "say": "two words", "kind": "c"}\n')
    fields = ("--prompt-field", "ask", "--response-field", "say", "--label-field", "kind")
    assert run("index", "train.jsonl", "--out", "i", "--method", "tfidf", *fields).status == 0
    write("more.jsonl", make_corpus(3))
    assert "i: your data are read with" in run("append", "i", "more.jsonl").err
    ran = run("append", "i", "more.jsonl", "--prompt-field", "prompt")
    assert (ran.status, "your data are read with" in ran.err) == (0, False)
    assert "3 examples added, 4 in all" in ran.err


def test_append_to_an_index_of_before_reads_as_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("train.jsonl").write_text(_chats(0, 4))
    with monkeypatch.context() as before:
        before.setattr("airrep.index.building.reading_entry", lambda reading: {})
        assert run("index", "train.jsonl", "--out", "i", "--method", "tfidf", "--response-field", "chat").status == 0
    assert "reading" not in json.loads(Path("i/manifest.json").read_text())
    Path("more.jsonl").write_text(_chats(4, 1))
    assert "no prompt and response" in run("append", "i", "more.jsonl").err
    assert "1 example added" in run("append", "i", "more.jsonl", "--response-field", "chat").err
    write("plain.jsonl", make_corpus(3))
    assert run("index", "plain.jsonl", "--out", "plain", "--method", "tfidf").status == 0
    assert "reading" not in json.loads(Path("plain/manifest.json").read_text())


def test_parts_that_are_joined_know_how_they_were_read(run: Run) -> None:
    Path("train.jsonl").write_text(_chats(0, 4))
    options = ("--method", "tfidf", "--response-field", "chat", "--set", "shard_rows=2")
    for part in "12":
        assert run("index", "train.jsonl", "--out", part, *options, "--part", f"{part}/2").status == 0
    assert run("append", "i", "1", "2").status == 0
    Path("more.jsonl").write_text(_chats(4, 1))
    assert "built with: --response-field chat." in run("append", "i", "more.jsonl").err


def test_select_tells_how_to_get_preference_pairs_and_conversations(run: Run) -> None:
    pairs = [{"prompt": f"p {n}", "chosen": f"good {n}", "rejected": f"bad {n}", "id": str(n)} for n in range(6)]
    Path("pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    write("queries.jsonl", make_corpus(2, "q"))
    for flags in ((), ("--preferences", "both")):
        assert run("index", "pairs.jsonl", "--out", "i", "--method", "tfidf", *flags, "--replace").status == 0
        err = run("select", "i", "queries.jsonl", "--count", "2", "--out", "s.jsonl", "--replace").err
        export = "export i --to records --data {} --only s.jsonl --out records.jsonl"
        assert "s.jsonl: an example holds one answer of its preference pair. To write" in err
        assert err.endswith(f": airrep {export.format('YOUR-DATA')}\n")
        assert run(*export.format("pairs.jsonl").split(), "--replace").status == 0
        assert all("rejected" in json.loads(line) for line in Path("records.jsonl").read_text().splitlines())
    Path("chats.jsonl").write_text(_chats(0, 4).replace("chat", "messages"))
    assert run("index", "chats.jsonl", "--out", "c", "--method", "tfidf", "--turns", "all").status == 0
    told = "To write your data's own records for training"
    first = run("select", "c", "queries.jsonl", "--count", "1", "--where", "turn == 1", "--out", "f.jsonl").err
    assert f"f.jsonl: an example holds one turn of its conversation. {told}:" in first
    write("plain.jsonl", make_corpus(6))
    assert run("index", "plain.jsonl", "--out", "p", "--method", "tfidf").status == 0
    assert "export" not in run("select", "p", "queries.jsonl", "--count", "2", "--out", "plain-picks.jsonl").err
    assert run("append", "p", "pairs.jsonl").status == 0
    assert f"preference pair. {told}" in run("select", "p", "queries.jsonl", "--count", "9", "--out", "n.jsonl").err


def test_out_is_checked_before_the_work(world: Run) -> None:
    before = airrep.Index("runs/index").fingerprint
    ran = world("top", "runs/index", "queries.jsonl", "--out", "runs/index", "--replace")
    assert (ran.status, ran.out) == (1, "")
    assert "is of kind 'index', not 'top', so it is not replaced" in ran.err
    assert airrep.Index("runs/index").fingerprint == before
    ran = world("what-if", "runs/index", "queries.jsonl", "--remove", 'id == "none"')
    assert (ran.status, 'filter id == "none": no example matches' in ran.err) == (1, True)


def test_a_reader_that_stops_early_ends_the_command_quietly(world: Run) -> None:
    write("many.jsonl", make_corpus(60, "q"))  # more output than a pipe holds, so that the command meets its closed end
    asked = f"{sys.executable} -m airrep.cli.app top runs/index many.jsonl -k 30 --wide"
    for more, reader in (("", "head -1"), ("", "true"), ("--json", "true")):
        command = f"{asked} {more} | {reader}; echo ${{PIPESTATUS[0]}} >&2"
        ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert ended.stderr == "1\n", ended
        assert ("60 queries" in ended.stdout) == (reader == "head -1")


def test_a_lost_worker_s_pipe_does_not_end_the_command() -> None:
    """What is written to it is an error that is dealt with, and no signal."""
    code = (
        "import os, sys; sys.argv = ['airrep', 'methods', '--json']; from airrep.cli.app import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "reader, writer = os.pipe(); os.close(reader)\n"
        "try: os.write(writer, b'task')\nexcept BrokenPipeError: print('goes on')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "goes on")


@pytest.mark.slow
def test_demo_runs_whole(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On every tenth example of its data: .ci/run has the whole of it, from the wheel."""
    for name, step in (("train.jsonl", 10), ("queries.jsonl", 1)):
        lines = (demo.DATA / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[::step]))
    monkeypatch.setattr(demo, "DATA", tmp_path)
    ran = done(run("demo", "--out", "demo"))
    assert "in place of Yes, zucchini can be eaten raw." in " ".join(ran.out.split())
    assert "alpaca_libre" in ran.out
    assert "airrep index YOUR.jsonl" in ran.out
    assert len(airrep.read_corpus("demo/selected.jsonl")) == 100
    page = Path("demo/report.html").read_text()
    assert "The static encoder learnt from" in page
    done(run("demo", "--out", "demo"))


def test_completion_is_offered() -> None:
    environment = {**os.environ, "_AIRREP_COMPLETE": "complete_bash", "COMP_WORDS": "airrep ex", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "from airrep.cli.app import main; main()"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "export" in ended.stdout


def test_an_encoder_alone_beside_an_lm_is_refused_with_what_sums_both(run: Run) -> None:
    data = write("t.jsonl", make_corpus(3))
    for more in (["--lm", "m"], ["--warmed", "w"]):
        ran = run("index", data, "--out", "i", "--encoder", "default", *more)
        assert ran.status == 1
        assert "Remove --lm and --warmed" in ran.err
