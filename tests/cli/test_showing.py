"""What hits, sums, pairs and single examples look like on the terminal."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from worlds.commands import Run, refused

import airrep

SYSTEM = "You are a careful assistant of a shop for tools, and answer each question in full sentences."
ANSWER = "the left screw is turned with a long wrench of steel until it is firm, then checked once more by hand"


def record(number: int) -> dict[str, object]:
    """A chat; every third refuses."""
    response = "I cannot help with screws." if number % 3 == 0 else f"In step {number} {ANSWER}, at {number} degrees."
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"How is screw {number} of engine {number % 7} fixed when its head is worn off?"},
        {"role": "assistant", "content": response},
    ]
    source = "forum" if number % 3 == 0 else "book"
    return {"id": f"e{number}", "source": source, "label": f"kind {number % 2}", "page": number, "messages": messages}


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command line on an index of 40 chats, whose file has a blank line behind the tenth."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    lines = [json.dumps(record(number)) for number in range(40)]
    Path("chats.jsonl").write_text("\n".join([*lines[:10], "", *lines[10:]]) + "\n")
    assert run("index", "chats.jsonl", "--out", "index", "--method", "tfidf").status == 0
    return run


REFUSED = ("--prompt", "Screw 6?", "--response", "I cannot help with screws.")


def heads(printed: str) -> list[str]:
    """The first lines of hits."""
    return [line for line in printed.splitlines() if line.startswith("#")]


def test_a_hit_tells_its_line_source_label_and_deviations(run: Run) -> None:
    printed = run("top", "index", "--prompt", "Screw 13?", "--response", "In step 13 the left", "-k", "1").out
    (head,) = heads(printed)
    for part in ("#1 of 40 · ", "chats.jsonl:15", "book", "kind 1", "deviations", "e13"):  # behind a blank line
        assert part in head
    assert "score" not in head
    wide = run("top", "index", "--prompt", "Screw 13?", "--response", "In step 13 the left", "-k", "1", "--wide").out
    for part in ("score +", "row 13"):
        assert part in " ".join(wide.split())


@pytest.mark.parametrize("command", [("top",), ("top", "--aggregate")])
def test_a_rank_is_among_the_rows_of_the_filter(run: Run, command: tuple[str, ...]) -> None:
    name, *flags = command
    asked = (name, "index", "--prompt", "Screw 13?", "--response", "In step 13 the left", *flags, "-k", "2")
    printed = run(*asked, "--where", 'source == "book"').out
    assert [head.partition(" ·")[0] for head in heads(printed)] == ["#1 of 26", "#2 of 26"]
    assert json.loads(run(*asked, "--json").out)["provenance"]["rows"] == 40


@pytest.mark.parametrize("columns", [80, 120])
def test_texts_have_most_of_the_width(run: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    printed = run("top", "index", "--prompt", "Screw 13?", "--response", "In step 13 the left screw", "-k", "1").out
    lines = printed.splitlines()
    assert max(map(len, lines)) <= columns
    assert max(len(line.strip()) for line in lines if line.startswith("   ")) >= 0.6 * columns
    assert "\x1b" not in printed


def test_a_shared_system_prompt_is_folded(run: Run) -> None:
    printed = run("top", "index", *REFUSED, "-k", "2").out
    assert "[system …] How is screw" in printed
    assert "careful assistant" not in printed


def test_several_answers_print_one_sum(run: Run) -> None:
    prompts = [f"How is screw {number} of engine 2 fixed?" for number in range(20)]
    queries = [{"id": f"q{n}", "prompt": p, "response": "I cannot help with screws."} for n, p in enumerate(prompts)]
    Path("bad.jsonl").write_text("".join(json.dumps(one) + "\n" for one in queries))
    for command in ("top",):
        printed = run(command, "index", "bad.jsonl").out
        assert "20 queries" in printed
        assert re.search(r"top \d+ over all queries, by source: forum", printed)
        assert "“I cannot help”" in printed
        assert len(heads(printed)) == 5
        assert "q7" not in printed
        assert "q7" in run(command, "index", "bad.jsonl", "--wide").out
        told = json.loads(run(command, "index", "bad.jsonl", "--json").out)["in_common"]
        assert told["sources"][0]["name"] == "forum"
        assert told["first"][0]["queries"] <= told["queries"] == 20


def test_show_has_one_example_whole_with_its_neighbours(run: Run) -> None:
    for name in ("e13", "chats.jsonl:15", "row 13"):
        printed = run("show", "index", name, "-k", "2").out
        assert SYSTEM.split(",")[0] in printed
        assert "page: 13" in printed
        assert len(heads(printed)) == 2
        assert not any("e13" in head for head in heads(printed))
    told = json.loads(run("show", "index", "e13", "--json").out)
    assert (told["row"], told["example"]["read_from"], len(told["neighbours"])) == (13, "chats.jsonl:15", 3)


@pytest.mark.parametrize("name", ["e99", "row 40", "chats.jsonl:11", "other.jsonl:3"])
def test_an_example_that_is_not_there_is_one_line(run: Run, name: str) -> None:
    ran = run("show", "index", name)
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert name in ran.err
    assert ("Similar ids: e" in ran.err) == (name == "e99")


def test_clean_shows_both_texts_and_acts_on_some_kinds(run: Run) -> None:
    rows = [record(number) for number in range(40)] + [{**record(5), "id": "copy"}]
    Path("twice.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("index", "twice.jsonl", "--out", "twice", "--method", "tfidf").status == 0
    ran = run("clean", "twice", "--kind", "duplicate,outlier", "--lists", "lists", "--set", "drop=duplicate")
    assert "100%" in ran.out
    assert "twice.jsonl:41" in ran.out
    assert "repeats: twice.jsonl:6" in ran.out
    assert ran.out.count("How is screw 5 of engine 5") == 2
    dropped = [json.loads(line) for line in Path("lists/drop.jsonl").read_text().splitlines()]
    assert "copy" in [one["id"] for one in dropped]
    assert {reason["kind"] for one in dropped for reason in one["dropped_for"]} == {"duplicate"}
    assert len(Path("lists/keep.jsonl").read_text().splitlines()) + len(dropped) == 41
    refused(run("clean", "twice", "--kind", "duplicate", "--lists", "others", "--set", "drop=label"))
    assert run("clean", "twice", "--kind", "duplicate", "--set", "drop=duplicate").status == 1
    ran = run("clean", "twice", "--lists", "others", "--set", "drop=harmful")  # all would count as examples to keep
    assert (ran.status, ran.err.count("\n"), "there are no queries" in ran.err) == (1, 1, True)
    assert not Path("others").exists()


def test_a_field_that_better_names_is_read(run: Run) -> None:
    row = {"prompt": REFUSED[1], "response": REFUSED[3], "chosen": "Turn it with a wrench.", "context": "Step 6."}
    Path("q.jsonl").write_text(json.dumps(row))
    assert "(chosen, context: not read)" in run("top", "index", "q.jsonl").err
    assert "(context: not read)" in run("top", "index", "q.jsonl", "--better", "chosen").err


def test_the_source_to_drop_is_named(run: Run) -> None:
    better = ("--better", "In step 6 the left screw is turned with a long wrench of steel.")
    printed = run("group", "index", *REFUSED, *better, "--by", "source").out
    assert "Drop this first: forum" in printed
    printed = run("what-if", "index", *REFUSED, *better, "--remove", 'source == "forum"').out
    assert "in place of the better one" in " ".join(printed.split())


def test_a_place_is_no_part_of_an_example(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps({"prompt": "a", "response": "b"}) + "\n")
    read = airrep.read_corpus(path)
    assert read[0].place == "one.jsonl:1"
    assert read[0] == airrep.Example("a", "b")
    assert read == airrep.Corpus.from_examples([replace(read[0], place=None)])
