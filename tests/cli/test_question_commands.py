"""Commands that answer questions about training data."""

import json
from pathlib import Path

import pytest
from worlds.commands import Run, done, refused
from worlds.small_world import make_corpus, tree
from worlds.tiny_bert import tiny_folder

import airrep
from airrep.answers.audit import AuditResult
from airrep.answers.together import SetResult, top_of_set


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command line in this process, in a folder with a TF-IDF index of thirty examples."""
    monkeypatch.chdir(tmp_path)
    for name, corpus in (("train", make_corpus(30)), ("queries", make_corpus(4, "q"))):
        write(f"{name}.jsonl", corpus)
    assert run("index", "train.jsonl", "--out", "index", "--method", "tfidf").status == 0
    return run


RECORDS = ("export", "index", "--to", "records", "--data")


def write(path: str, examples: airrep.Corpus | list[airrep.Example]) -> None:
    Path(path).write_text("".join(json.dumps(example.to_dict()) + "\n" for example in examples))


def test_top_tells_what_taught_an_answer(run: Run) -> None:
    typed = ("--prompt", "question e 3", "--response", "answer 21")
    ran = done(run("top", "index", *typed, "--better", "answer 7", "-k", "3", "--json"))
    told = json.loads(ran.out)
    asked = airrep.Example("question e 3", "answer 21", "query")
    assert told == airrep.top(airrep.Index("index"), [asked], 3, better="answer 7").to_dict()
    write("answer 7", [])
    again = run("top", "index", *typed, "--better", "answer 7", "-k", "3", "--json")
    assert "is read as the text of an answer" in again.err
    table = run("top", "index", *typed, "--better", "answer 7", "--why").out
    assert "in place of answer 7" in table
    assert "same words:" in table
    assert "deviations" in run("top", "index", *typed).out


def test_top_reads_files_of_answers(run: Run) -> None:
    queries = airrep.read_corpus("queries.jsonl")
    write("better.jsonl", [airrep.Example(one.prompt, "another", f"b{one.id}") for one in queries])
    ran = run("top", "index", "queries.jsonl", "--better", "better.jsonl", "--out", "run", "--json")
    assert ran.err == "written to run; next: airrep report run --out report.html\n"
    assert json.loads(ran.out) == airrep.open("run").to_dict()
    assert len(json.loads(ran.out)["queries"]) == 4
    refused(run("top", "index", "queries.jsonl", "--better", "queries.jsonl"), "its better answer is the same text")
    assert "exists already" in run("top", "index", "queries.jsonl", "--out", "run").err


def test_top_beside_the_spread(run: Run) -> None:
    index, queries = airrep.Index("index"), airrep.read_corpus("queries.jsonl")
    ran = run("top", "index", "queries.jsonl", "--aggregate", "--least", "-k", "3", "--json", "--out", "set")
    assert json.loads(ran.out) == top_of_set(index, queries, k=3, least=True).to_dict()
    assert SetResult.read("set").least
    assert "for all 4 queries together" in run("top", "index", "queries.jsonl", "--aggregate").out
    Path("one.jsonl").write_text('{"prompt": "question 3", "response": "answer 3"}\n')
    assert "for the query" in run("top", "index", "one.jsonl", "--aggregate").out
    refused(run("top", "index", "queries.jsonl", "--aggregate", "--why"))


def test_answers_become_a_page(run: Run) -> None:
    script, image = "<script>alert(1)</script>\x1b[31m", "</td><img src=x onerror=alert(2)>"
    evil = airrep.Example(script, image, "<b>e</b>", source="<i>")
    write("train.jsonl", [evil, *make_corpus(30)])
    assert run("index", "train.jsonl", "--out", "evil", "--method", "tfidf").status == 0
    made = {
        "clean": ["clean", "evil", "--kind", "duplicate", "--kind", "label"],
        "audit": ["audit", "evil", "train.jsonl"],
        "mix": ["mix", "evil", "train.jsonl"],
        "set": ["top", "evil", "train.jsonl", "--aggregate", "-k", "2"],
    }
    for name, command in made.items():
        ran = done(run(*command, "--out", name))
        assert f"airrep report {name} --out" in ran.err
    assert run("report", *made, "--out", "all.html", "--set", "title=<h1>").status == 0
    page = Path("all.html").read_text()
    for part in ("Weights of sources", "31 items"):
        assert part in page
    for bad in ("<script", "<img", "<b>e", "<u>", "<h1>", "\x1b"):
        assert bad not in page.replace('<h1 dir="auto">', "")
    assert "exists" in run("report", "mix", "--out", "all.html").err
    assert run("report", "mix", "--out", "all.html", "--replace").status == 0
    assert run("top", "evil", "train.jsonl", "--out", "top").status == 0
    assert "top is given twice" in run("report", "./top", "top", "--out", "both.html").err
    refused(run("report", "top", "mix", "--out", "both.html"), "`airrep what-if` cannot share a page")


def test_clean_writes_lists(run: Run) -> None:
    write("train.jsonl", [*make_corpus(30), airrep.Example("question e 3", "ANSWER 21.", "again")])
    assert run("index", "train.jsonl", "--out", "twice", "--method", "tfidf").status == 0
    ran = run("clean", "twice", "--kind", "duplicate", "--kind", "harmful", "--lists", "lists", "--json")
    assert ran.err == "lists: 30 examples to keep, 1 to drop\n"
    told = json.loads(ran.out)
    assert [(one["kind"], one["example"]["id"]) for one in told["findings"]] == [("duplicate", "again")]
    assert told["skipped"] == {"harmful": "there are no queries"}
    assert [one.id for one in airrep.read_corpus("lists/drop.jsonl")] == ["again"]
    assert "exists already" in run("clean", "twice", "--lists", "lists").err
    before = tree(Path("lists"))
    Path("lists/keep.jsonl").write_text("old")
    done(run("clean", "twice", "--kind", "duplicate", "--kind", "harmful", "--lists", "lists", "--replace"))
    assert tree(Path("lists")) == before
    Path("lists/thesis.txt").write_text("years of work")
    spared = run("clean", "twice", "--lists", "lists", "--replace")
    assert (spared.status, spared.out) == (1, "")
    assert "lists: holds 'thesis.txt', which airrep did not write there; nothing is replaced" in spared.err
    assert Path("lists/thesis.txt").read_text() == "years of work"
    table = run("clean", "twice", "queries.jsonl", "--kind", "duplicate", "--kind", "harmful").out
    assert "Duplicate: repeats an earlier example. 1 of 31 examples." in table
    assert "Harmful: for many queries. 0 of 31 examples." in table
    assert "ngrams" in run("clean", "twice", "--set", "ngrams=x").err
    assert (run("clean", "twice", "--kind", "typo").status, run("clean", "nowhere").status) == (1, 1)


def test_clean_and_audit_show_what_was_taken_for_templates(run: Run) -> None:
    system = "you are polite and brief and never say what you do not know"
    write("long.jsonl", [airrep.Example(f"{system} {n} a{n} b{n}", f"r{n} s{n} t{n}", f"e{n}") for n in range(12)])
    write("eval.jsonl", [airrep.Example(f"{system} x y z", "w", "q")])
    assert run("index", "long.jsonl", "--out", "long", "--method", "tfidf").status == 0
    told = "6 stretches of 8 words, in {}. The most frequent one, in 12 examples, is: "
    table = run("clean", "long", "--kind", "duplicate").out
    assert told.format("12 examples") + "you are polite and brief and never say." in " ".join(table.split())
    table = run("audit", "long", "eval.jsonl").out
    assert told.format("1 item") + "you are polite and brief and never say." in " ".join(table.split())


def test_audit_shows_what_leaks(run: Run) -> None:
    write("eval.jsonl", [airrep.Example("question e 3", "answer 21", "leak"), airrep.Example("a b", "c d", "clean")])
    ran = run("audit", "index", "eval.jsonl", "--json", "--out", "audit")
    told = json.loads(ran.out)
    assert told == AuditResult.read("audit").to_dict()
    assert [one["verdict"] for one in told["items"]] == ["contained", "clean"]
    table = run("audit", "index", "eval.jsonl").out
    assert "question e 3 answer 21" in table
    assert "2 items: 1 contained, 1 clean" in table
    assert "meaning was not compared" in table
    refused(run("audit", "index", "eval.jsonl", "--set", "nearly=2"))


def test_mix_writes_configurations(run: Run) -> None:
    written = ("--write", "yaml=a/mix.yaml", "--write", "llama-factory=lf.yaml")
    ran = run("mix", "index", "queries.jsonl", *written, "--json")
    assert ran.err == "a/mix.yaml: written\nlf.yaml: written\n"
    assert {one["name"] for one in json.loads(ran.out)["sources"]} == {"forum", "books"}
    assert Path("a/mix.yaml").read_text().startswith("by: source\nweights:\n")
    assert "interleave_probs" in Path("lf.yaml").read_text()
    assert "exists already" in run("mix", "index", "queries.jsonl", "--write", "yaml=a/mix.yaml").err
    assert "95 % interval" in run("mix", "index", "queries.jsonl", "--by", "label").out
    told = "Left out: 10 examples without the field 'source'."
    assert told in " ".join(run("mix", "index", "queries.jsonl").out.split())
    only = ("--where", "source == 'forum' or source == 'books'")
    assert "left out" not in run("mix", "index", "queries.jsonl", *only).out
    assert run("mix", "index", "queries.jsonl", "--by", "tag").status == 1


def test_select_takes_quotas_budgets_and_json(run: Run) -> None:
    ran = run("select", "index", "queries.jsonl", "--count", "6", "--by", "source", "--most", "2", "--json")
    index, queries = airrep.Index("index"), airrep.read_corpus("queries.jsonl")
    assert json.loads(ran.out) == airrep.select(index, queries, 6, by="source", most=2).to_dict()
    assert ran.err == ""
    named = (
        "--most", "forum=0", "--most", "books=3", "--set", "diversity=0.3",
        "--tokens", "40", "--set", "tokenizer=words",
    )  # fmt: skip
    ran = done(run("select", "index", "queries.jsonl", "--by", "source", *named, "--out", "picked.jsonl"))
    picked = airrep.read_corpus("picked.jsonl")
    told = sum(one.metadata["selected_by"]["tokens"] for one in picked)
    assert f"picked.jsonl: {len(picked)} examples, {told} tokens in all, the last at rank" in ran.err
    assert "forum" not in {one.source for one in picked}
    for flags in (["--count", "3"], ["--count", "3", "--json", "--by", "source", "--most", "a"], ["--json"]):
        refused(run("select", "index", "queries.jsonl", *flags))
    ran = run("select", "index", "queries.jsonl", "--json", "--set", "resample=true", "--tokens", "5")
    assert "resample=true needs --count" in ran.err


@pytest.mark.parametrize("queries", [3, 4])
def test_many_queries_are_summed_up(run: Run, queries: int) -> None:
    write("many.jsonl", make_corpus(queries, "m"))
    for command in (
        ("top", "index", "many.jsonl", "-k", "3"),
        ("group", "index", "many.jsonl", "--by", "source"),
        ("what-if", "index", "many.jsonl", "--remove", 'source == "forum"'),
    ):
        ran = done(run(*command))
        each = queries == 3
        assert ("m2" in ran.out) == each, command
        assert ("--wide" in ran.out) != each, command
        assert "m2" in run(*command, "--wide").out


def test_many_groups_and_leaks_are_cut_short(run: Run) -> None:
    nine = [airrep.Example(one.prompt, f"{one.response} " * 9, f"c{n}") for n, one in enumerate(make_corpus(30))]
    write("copies.jsonl", nine)
    assert run("index", "copies.jsonl", "--out", "copied", "--method", "tfidf").status == 0
    ran = run("audit", "copied", "copies.jsonl")
    assert "… 10 more" in ran.out
    names = json.dumps({f"group {number}": [number % 30] for number in range(1000)})
    Path("groups.json").write_text(names)
    ran = run("group", "index", "queries.jsonl", "--by", "groups.json", "--wide")
    assert ran.out.count("more groups in between") == 5  # of each of four queries, and of their mean
    assert len(ran.out.splitlines()) < 250


STEERING = "a\x1b[31m b\x9b31m c\u202ed e\u2066f g\x7f h\U000e0001i \u3042 j"


def steers(text: str) -> bool:
    return any(sign in text for sign in "\x07\x1b\x9b\u202e\u2066\x7f\U000e0001")


def test_nothing_that_is_printed_steers_the_terminal(run: Run) -> None:
    long = airrep.Example("\x1b[31m[bold]red[/bold]\x07" + "x" * 1_000_000, "\x1b]0;title\x07 [/] ", "e\x1bvil")
    write("odd.jsonl", [airrep.Example(STEERING, STEERING, STEERING), long])
    name = STEERING.replace("\x7f", "")
    assert run("index", "odd.jsonl", "--out", name, "--method", "tfidf").status == 0
    for command in (
        ("show", name),
        ("show", name, "--json"),
        ("show", name, "--verify"),
        ("top", name, "odd.jsonl", "-k", "2"),
        ("top", name, "odd.jsonl", "-k", "2", "--aggregate"),
        ("top", name, "odd.jsonl", "-k", "1", "--json"),
        ("group", name, "odd.jsonl", "--by", "id"),
        ("what-if", name, "odd.jsonl", "--remove", "'\u3042' in id", "--wide"),
        ("select", name, "odd.jsonl", "--count", "1", "--json"),
        ("top", f"no {name}", "odd.jsonl"),
        ("show", f"no {name}"),
    ):
        ran = run(*command)
        assert not steers(ran.out + ran.err), command
        assert ran.out or ran.err
        if command[-1] == "--json" and command[0] == "top":
            assert json.loads(ran.out)["queries"][0]["query"]["prompt"] == STEERING


ZERO = "every score is 0: the query shares nothing with any example"


def test_queries_that_share_nothing_with_the_data_are_told(run: Run) -> None:
    typed = ("index", "--prompt", "zzzz", "--response", "zzz qqq")
    asked = {"top": typed, "group": (*typed, "--by", "source"), "what-if": (*typed, "--remove", "source == 'forum'")}
    for command, more in asked.items():
        ran = done(run(command, *more))
        assert ZERO in " ".join(ran.out.split()), command
        assert "none stands out" not in ran.out
        assert ZERO not in run(command, "index", "queries.jsonl", *more[5:]).out
    assert ZERO in run("select", *typed, "--count", "2", "--out", "picked.jsonl").err
    refused = run("mix", *typed)
    assert (refused.status, refused.out) == (1, "")
    assert f"mix: {ZERO}. Give other queries" in refused.err


def test_examples_that_share_nothing_with_others_are_told(run: Run) -> None:
    Path("odd.jsonl").write_text('{"prompt": "zzz", "response": "yyy"}\n')
    assert "for 1 example, all features" in run("append", "index", "odd.jsonl").err


def test_files_for_axolotl_are_replaced_where_asked(run: Run) -> None:
    made = ("mix", "index", "queries.jsonl", "--write", "axolotl=axolotl")
    assert run(*made).status == 0
    before = tree(Path("axolotl"))
    (Path("axolotl") / "source-9.jsonl").write_text("of another time")
    assert "exists already" in run(*made).err
    assert run(*made, "--replace").status == 0
    assert tree(Path("axolotl")) == before


def test_conversations_that_became_one_text_are_told_and_found_again(run: Run) -> None:
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "answer"}]
    record = {"messages": [*turns, {"role": "assistant", "content": "answer 21"}], "source": "chat", "id": "chat 1"}
    Path("chat.jsonl").write_text(json.dumps(record) + "\n")
    assert run("append", "index", "chat.jsonl").status == 0
    Path("data.jsonl").write_text(Path("train.jsonl").read_text() + Path("chat.jsonl").read_text())
    asked = ("index", "--prompt", "answer", "--response", "answer 21")
    told = "1 prompt joins several messages into one text"
    for listed, command in (
        ("picked.jsonl", ("select", *asked, "--count", "31", "--out", "picked.jsonl")),
        ("lists/keep.jsonl", ("clean", "index", "--kind", "duplicate", "--lists", "lists")),
        ("axolotl", ("mix", *asked, "--write", "axolotl=axolotl")),
    ):
        said = run(*command).err
        assert (told in said) == (listed != "axolotl")  # whose files hold messages
        assert (f"--to records --data YOUR-DATA --only {listed} --out" in said) == (listed != "axolotl")
        ran = run(*RECORDS, "data.jsonl", "--only", listed, "--out", "records.jsonl", "--replace")
        assert ran.err.endswith("copied unchanged\n")
        assert json.loads(Path("records.jsonl").read_text().splitlines()[-1]) == record
    where = ("--where", 'id != "chat 1"')
    assert "one text here" not in run("select", *asked, *where, "--count", "30", "--out", "plain.jsonl").err


def test_only_conversations_that_were_written_are_told(run: Run) -> None:
    """The notes counted those of the whole index: dropped ones, deleted ones, and ones that a filter left out."""
    turns = "System: s\nUser: {} is a question of seven words, or of eight\nAssistant: a\nUser: b"
    chats = [airrep.Example(turns.format(n), "c", f"chat {n}", source=f"chat {n // 4}") for n in (0, 0, 1, 2, 3, 4, 5)]
    chats[1] = airrep.Example(turns.format(0) + ".", "c", "again", source="chat 0")
    write("chats.jsonl", chats)
    assert run("index", "chats.jsonl", "--out", "chats", "--method", "tfidf").status == 0
    said = run("clean", "chats", "--kind", "duplicate", "--lists", "lists", "--where", "source == 'chat 0'").err
    kept = len(Path("lists/keep.jsonl").read_text().splitlines())
    assert kept < 5
    assert f"lists: {kept} prompts join several messages" in said
    assert "several messages" not in run("mix", "chats", "chats.jsonl", "--top", "1", "--write", "axolotl=axolotl").err
    for file in Path("axolotl").glob("*.jsonl"):
        for line in map(json.loads, file.read_text().splitlines()):
            assert [one["role"] for one in line["messages"]] == ["system", "user", "assistant", "user", "assistant"]


def test_records_that_cannot_be_taken_leave_no_file(run: Run) -> None:
    Path("other.jsonl").write_text('{"id": "e1", "prompt": "another", "response": "thing"}\n')
    for data, listed, said in (
        ("other.jsonl", "train.jsonl", 'other.jsonl:1: the prompt or response of example "e1" differs'),
        ("train.jsonl", "queries.jsonl", "train.jsonl: lacks 4 of the 4 ids in queries.jsonl"),
        ("lost.jsonl", "train.jsonl", "lost.jsonl: no such file"),
        ("train.jsonl", "index", "index: is a directory that airrep wrote"),
    ):
        refused(run(*RECORDS, data, "--only", listed, "--out", "records.jsonl"), said)
        assert not Path("records.jsonl").exists()
    assert run(*RECORDS, "train.jsonl", "--only", "train.jsonl", "--out", "records.jsonl").status == 0
    assert Path("records.jsonl").read_bytes() == Path("train.jsonl").read_bytes()
    assert "exists already" in run(*RECORDS, "train.jsonl", "--only", "train.jsonl", "--out", "records.jsonl").err
    again = run(*RECORDS, "train.jsonl", "--only", "train.jsonl", "--out", "./train.jsonl", "--replace")
    assert again.err == "airrep: error: export: --out train.jsonl is also an input file. Give another file.\n"
    assert "a name such as" in run(*RECORDS, "train.jsonl", "--only", "train.jsonl", "--out", "r.parquet").err


def test_export_without_a_list_copies_the_records_of_all_kept_examples(run: Run) -> None:
    out = ("--out", "records.jsonl", "--replace")
    lines = Path("train.jsonl").read_text().splitlines()
    assert run(*RECORDS, "train.jsonl", *out).err.endswith("30 records of train.jsonl, copied unchanged\n")
    assert Path("records.jsonl").read_text().splitlines() == lines
    assert run("delete", "index", "--id", "e3").status == 0
    where = ("--where", 'source == "forum"')
    assert run(*RECORDS, "train.jsonl", *out, *where).status == 0
    records = list(map(json.loads, Path("records.jsonl").read_text().splitlines()))
    assert records == [one for one in map(json.loads, lines) if one.get("source") == "forum" and one["id"] != "e3"]
    for typed, told in (
        (("export", "index", "--to", "records"), "Add --data"),
        ((*RECORDS, "train.jsonl", "--only", "train.jsonl", *where), "--only and --where cannot be combined"),
        ((*RECORDS, "train.jsonl", "--where", 'source == "forun"'), "Did you mean 'forum'?"),
    ):
        refused(run(*typed, *out), told)


def test_prompts_that_the_encoder_does_not_read_to_their_end_are_told_once(run: Run) -> None:
    tiny_folder(Path("encoder"))
    words = [airrep.Example("word " * count, "answer", str(count)) for count in (255, 256, 257, 400)]
    write("long.jsonl", words)
    told = "long: 2 prompts are too long for the encoder, which reads only the first 256 words"
    build = ("index", "long.jsonl", "--out", "long", "--method", "airrep", "--encoder", "encoder")
    assert told in run(*build).err
    assert told not in run(*build).err
    assert "the first" not in run(*build[:3], "--out", "views", *build[-4:], "--set", "view=response").err
    assert "the first" not in run("index", "long.jsonl", "--out", "tfidf", "--method", "tfidf").err


def test_tables_show_the_question_of_a_conversation(run: Run) -> None:
    """A system prompt and tools, alike in all rows, do not hide it: in the terminal and on the page."""
    said = "\n".join(f"answer {n}" for n in range(3))
    for name in ("train", "queries"):
        records = [
            {
                "tools": [{"type": "function", "function": {"name": "search", "description": "of parcels " * 20}}],
                "messages": [
                    {"role": "system", "content": "You are a polite agent. " * 80},
                    {"role": "user", "content": f"Where is parcel {number} of mine? {'I wait. ' * 300}"},
                    {"role": "assistant", "content": f"{said} of {number}"},
                ],
                "source": f"shop {number % 2}",
            }
            for number in range(4)
        ]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    assert run("index", "train.jsonl", "--out", "chats", "--method", "tfidf").status == 0
    asked = "Where is parcel 3 of mine?"
    for command in (
        ("top", "chats", "queries.jsonl", "--out", "run"),
        ("top", "chats", "queries.jsonl", "--why"),
        ("what-if", "chats", "queries.jsonl", "--remove", "source == 'shop 1'", "--out", "removed"),
        ("clean", "chats", "--kind", "duplicate"),
        ("audit", "chats", "queries.jsonl", "--out", "audited"),
    ):
        ran = done(run(*command, "--wide"))
        assert asked in " ".join(ran.out.replace("│", " ").split()), command
        assert "System:" not in ran.out
    for page, kept in (("a.html", ("run", "removed")), ("b.html", ("audited",))):
        done(run("report", *kept, "--out", page))
        assert "Where is parcel 3 of mine? I wait." in Path(page).read_text()


def test_a_name_that_one_file_cannot_hold_costs_no_other(run: Run) -> None:
    write("d.jsonl", [airrep.Example(f"p {n}", f"red {n}", f"e{n}", source=("a,b", "c")[n % 2]) for n in range(10)])
    assert run("index", "d.jsonl", "--out", "i", "--method", "ngram").status == 0
    ran = run("mix", "i", "d.jsonl", "--write", "yaml=m.yaml", "--write", "llama-factory=l.yaml")
    assert (ran.status, Path("m.yaml").exists(), Path("l.yaml").exists()) == (1, False, False)
    assert "the source 'a,b' contains a comma" in ran.err


def test_every_question_takes_better_answers(run: Run) -> None:
    queries = airrep.read_corpus("queries.jsonl")
    write("better.jsonl", [airrep.Example(one.prompt, "another", f"b{one.id}") for one in queries])
    rows = [{**one.to_dict(), "gold": "another"} for one in queries]
    Path("with-field.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    questions: dict[str, tuple[str, ...]] = {
        "top": ("-k", "3"), "group": ("--by", "source"), "what-if": ("--remove", 'source == "forum"'), "mix": (),
        "select": ("--count", "5"), "clean": ("--kind", "harmful"),
    }  # fmt: skip
    for command, options in questions.items():
        plain, by_file, by_field, by_text = (
            run(command, "index", file, *options, *better, "--json")
            for file, better in (
                ("queries.jsonl", ()),
                ("queries.jsonl", ("--better", "better.jsonl")),
                ("with-field.jsonl", ("--better", "gold")),
                ("queries.jsonl", ("--better", "another")),
            )
        )
        assert (plain.status, by_file.status, by_field.status) == (0, 0, 0), by_file.err + by_field.err
        assert (by_text.status, by_text.err.count("\n")) == (1, 1)  # four prompts cannot have one answer
        assert "not a field" in by_text.err
        found = [json.dumps(_numbers(json.loads(ran.out))) for ran in (plain, by_file, by_field)]
        assert found[1] == found[2]
        assert found[0] != found[1] or command == "clean"
    typed = ("--prompt", "question e 3", "--response", "answer 21", "--better", "answer 7")
    ran = run("group", "index", *typed, "--by", "source", "--json")
    assert json.loads(ran.out)["queries"][0]["better"]["response"] == "answer 7"
    assert "score for the better answer" in json.loads(ran.out)["provenance"]["units"]
    assert run("select", "index", "queries.jsonl", "--better", "nowhere.jsonl", "--count", "2", "--json").status == 1


def _numbers(value: object) -> object:
    """The numbers and ids of a result, without its texts."""
    if isinstance(value, dict):
        kept = ("query", "better", "queries_id", "provenance")
        return {name: _numbers(part) for name, part in value.items() if name not in kept}
    return [_numbers(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("command", "name", "meant"),
    [
        (("mix", "index", "queries.jsonl"), "tpo", "top"),
        (("audit", "index", "queries.jsonl"), "containd", "contained"),
        (("warmup", "queries.jsonl", "--lm", "lm", "--out", "out"), "checkpoint", "checkpoints"),
    ],
)
def test_an_unknown_setting_is_told_the_settings_of_the_command_too(
    run: Run, command: tuple[str, ...], name: str, meant: str
) -> None:
    ran = run(*command, "--set", f"{name}=1")
    assert ran.status == 1
    assert f" {meant}, " in ran.err
    assert ran.err.endswith(f"Did you mean '{meant}'?\n")
