"""The report: what it shows, that it is safe, whole and always the same."""

import re
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from worlds.pages import Page, check_sealed

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.index.results.hits import Hit, Hits
from airrep.index.results.kinds import GroupResult, NamedGroup, TopResult, WhatIfResult, effect_text
from airrep.index.results.result import Provenance
from airrep.reports.result_tables import Scale, rank_groups, recurring, shares_tables
from airrep.reports.results import apart, cut, read_runs, write_report
from airrep.reports.tables import short, visible

PROVENANCE = {
    "method": "airrep",
    "index": "0123456789abcdef" * 4,
    "pool": None,
    "units": "inner product of features",
    "sign": "higher = more helpful",
}
POOLED = PROVENANCE | {"pool": "attention"}


def render_report(results: Any, **fields: Any) -> str:
    """The text of a report's only page, or of its first."""
    with TemporaryDirectory() as folder:
        return write_report(results, Path(folder) / "report.html", **fields).read_bytes().decode()


def example(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "prompt": f"prompt of {name}", "response": f"response of {name}"} | fields


def top(
    queries: dict[str, list[tuple[float, int]]], *, order: str = "most helpful first", **fields: Any
) -> dict[str, Any]:
    """A top run: for each query its (score, row) pairs."""
    return {
        "kind": "top",
        "provenance": PROVENANCE,
        "order": order,
        "queries": [
            {
                "query": example(name),
                "hits": [
                    {"rank": rank, "score": score, "row": row, "example": example(f"t{row}", **fields)}
                    for rank, (score, row) in enumerate(hits, 1)
                ],
            }
            for name, hits in queries.items()
        ],
    }


def groups(scores: dict[str, list[float]], names: list[str]) -> dict[str, Any]:
    return {
        "kind": "group",
        "provenance": POOLED,
        "groups": [{"name": name, "size": 10 + place} for place, name in enumerate(names)],
        "queries": [{"query": example(query), "scores": row} for query, row in scores.items()],
    }


def what_if(values: dict[str, tuple[float, float]]) -> dict[str, Any]:
    return {
        "kind": "what-if",
        "provenance": POOLED,
        "removed": 120,
        "kept": 1880,
        "queries": [
            {"query": example(query), "before": before, "after": after, "change": after - before}
            for query, (before, after) in values.items()
        ],
    }


def contrasted(run: dict[str, Any]) -> dict[str, Any]:
    queries = [{**entry, "better": example(f"good {entry['query']['id']}")} for entry in run["queries"]]
    return {**run, "queries": queries}


@pytest.fixture
def runs() -> list[dict[str, Any]]:
    return [
        groups({"q1": [0.1, -0.4, 0.9], "q2": [0.3, 0.2, 0.1]}, ["alpha", "beta", "gamma"]),
        top({"q1": [(2.0, 7), (1.0, 8)], "q2": [(3.0, 7)]}, source="forum", label="good"),
        what_if({"q1": (0.5, 0.2), "q3": (0.1, 0.3)}),
        top({"q1": [(-1.5, 4)], "q2": [(-0.5, 4)]}, order="most harmful first"),
    ]


def test_header_says_how_to_read_the_scores(runs: list[dict[str, Any]]) -> None:
    page = Page(render_report(runs, notes=["The default is not trained for attribution."]))
    for piece in (
        "Method airrep",
        "Pool attention",
        "Sign higher = more helpful",
        "Units inner product of features",
        "Queries 3",
        "Index 0123456789ab…",
        "Note. The default is not trained for attribution.",
        "Above 0, helpful",
        "Below 0, harmful",
    ):
        assert piece in page.line


def test_runs_are_merged_by_query_and_ordered(runs: list[dict[str, Any]]) -> None:
    headings = [text for level, text in Page(render_report(runs)).headings if level >= 3]
    first = headings.index("Query 1")
    assert headings[first:] == [
        "Query 1", "Most helpful examples", "Most harmful examples", "Groups: alpha, beta, gamma",
        "What if 120 of 2,000 examples were left out", "Query 2", "Most helpful examples", "Most harmful examples",
        "Groups: alpha, beta, gamma", "Query 3", "What if 120 of 2,000 examples were left out",
    ]  # fmt: skip


def test_all_parts_of_a_query_are_shown(runs: list[dict[str, Any]]) -> None:
    text = Page(render_report(runs)).line
    query = text[text.index("Query 1") : text.index("Query 2")]
    for piece in (
        "Prompt prompt of q1 Response response of q1",
        "2 training examples, most helpful first.",
        "1 +2.000 forum good Prompt prompt of t7 Response response of t7 id t7 · row 7",
        "1 −1.500 none none Prompt prompt of t4",
        "forum 2 100% +3.000",
        "Group Examples Score 1. gamma 12 +0.9000 2. alpha 10 +0.1000 3. beta 11 −0.4000",
        "Query Change Before After q1 prompt of q1 −0.3000 +0.5000 +0.2000",
        "falls: without these examples, the data would teach the answer less.",
    ):
        assert piece in query, piece


def test_overview_of_all_queries(runs: list[dict[str, Any]]) -> None:
    text = Page(render_report(runs)).line
    overview = text[text.index("Overview of all queries Most") : text.index("Query 1")]
    for piece in (
        "2 +2.500 forum good Prompt prompt of t7 Response response of t7",
        "id t7 · best rank 1 · in queries 1, 2",
        "1. gamma 12 +0.5000 0.4000 1 of 2 1 of 2 2. alpha",
        "Mean change of the score over 2 queries: −0.0500. The score falls for 1",
        "q1 prompt of q1 −0.3000 +0.5000 +0.2000 q3 prompt of q3 +0.2000 +0.1000 +0.3000",
    ):
        assert piece in overview, piece


def test_one_query_needs_no_overview() -> None:
    page = Page(render_report([top({"q1": [(1.0, 2)]})]))
    assert [text for _, text in page.headings] == [
        "Training data attribution", "Contents", "Query", "Query 1", "Most helpful examples",
        "Where these examples come from",
    ]  # fmt: skip
    assert "Source" not in page.text


def why(words: str, prompt: tuple[int, int] = (0, 6)) -> dict[str, Any]:
    span = {"field": "prompt", "start": prompt[0], "stop": prompt[1]}
    same = {"text": words, "score": 1.25, "query": [span], "example": [span]}
    return {"channels": {"v1.2 <words>": 1.25, "encoder": 0.75}, "same_words": [same]}


def test_reasons_are_told_and_marked() -> None:
    run = top({"q1": [(2.0, 7), (1.0, 8)]})
    run["queries"][0]["hits"][0]["why"] = why("prompt")
    page = Page(html := render_report([run]))
    assert html.count("<mark>prompt</mark> of") == 2  # in the query, and in the hit that was explained
    assert "Same words: prompt" in page.line
    assert "need not be the cause" in page.line
    assert "v1.2 <words> +1.250 · encoder +0.750" in page.line.replace("\xa0", " ")
    assert "<mark>" not in render_report([top({"q1": [(2.0, 7)]})])
    assert "need not be the cause" not in render_report([top({"q1": [(2.0, 7)]})])


def test_words_are_marked_with_their_part_of_the_score() -> None:
    run = top({"q1": [(2.0, 7), (1.0, 8)]})
    words = [{"field": "prompt", "start": 0, "stop": 6}, {"field": "prompt", "start": 7, "stop": 9}]
    scores = [[1.5, -0.5, 0.0], [0.0, 0.0, 0.0], [0.5, 0.0, 0.25]]
    tokens = {"query": words, "example": words, "scores": scores, "rest": {"encoder": 0.25}}
    run["queries"][0]["hits"][0]["why"] = {**why("prompt"), "tokens": tokens}
    page = Page(html := render_report([run]))
    assert html.count('<mark class="t4" title="+1.000">prompt</mark>') == 1  # of the query: 1.5 less 0.5
    assert html.count('<mark class="t4" title="+2.000">prompt</mark>') == 1
    assert html.count('<mark class="t1 below" title="−0.500">of</mark>') == 1
    assert "the words with the largest parts of each score" in page.line


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "</mark><img src=x onerror=alert(1)>", "{{ 7 * 7 }}", "a\r\nb\x07\u202e"]
)
@pytest.mark.parametrize("span", [(0, 3), (0, 10**9), (-5, 4), (2, 5), (9, 2)])
def test_marks_let_no_text_out(text: str, span: tuple[int, int]) -> None:
    run = top({"q1": [(2.0, 7)]}, prompt=text)
    run["queries"][0]["query"]["prompt"] = text
    run["queries"][0]["hits"][0]["why"] = why(text, span)
    page = Page(html := render_report([run]))
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert html.count("<mark") == html.count("</mark>")
    assert page.text.count("alert(1)") == (4 if "alert" in text else 0)  # contents, query, hit, same words
    assert "49" not in page.line.split("row")[0]


def test_marks_stand_on_both_sides_of_a_fold() -> None:
    run = top({"q1": [(2.0, 7)]}, prompt="word " * 200)
    run["queries"][0]["hits"][0]["why"] = why("word", (0, 999))
    html = render_report([run])
    fold = r"<details><summary>\d+ more characters</summary>"
    assert re.search(rf"<mark>(word )+</mark>{fold}<mark>(word )+word</mark>", html)


def test_groups_and_what_ifs_tell_their_channels() -> None:
    grouped, changed = groups({"q1": [0.5, -0.5], "q2": [0.1, 0.3]}, ["a", "b"]), what_if({"q1": (0.5, 0.25)})
    for entry in grouped["queries"]:
        entry["channels"] = {"v1.2": [entry["scores"][0] / 2] * 2, "rest": [0.0, 0.0]}
    changed["queries"][0]["channels"] = {"v1.2": -0.25}
    page = Page(render_report([grouped, changed]))
    assert page.line.count("v1.2 rest") == 3  # for each query, and in the overview
    assert "of which v1.2" in page.line


def test_structure_is_accessible(runs: list[dict[str, Any]]) -> None:
    page = Page(render_report(runs, title="Run 7"))
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(head.get("scope") in ("row", "col") for head in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(drawing.get("aria-hidden") == "true" for drawing in page.all("svg"))
    assert page.all("html") == [{"lang": "en"}]


def test_nothing_is_requested_and_only_its_own_code_may_run(runs: list[dict[str, Any]]) -> None:
    check_sealed(html := render_report(runs))
    assert html.count("<script") == 1


HOSTILE = [
    "<script>alert(1)</script>",
    "</style></script><img src=x onerror=alert(1)>",
    "\"'><b onmouseover='alert(1)'>",
    "{{ 7 * 7 }}{% raw %}&lt;&amp;",
    "]]><!-- --!><svg onload=alert(1)>",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_every_text_is_escaped(text: str) -> None:
    bad = {"id": text, "prompt": text, "response": text, "label": text, "source": text}
    provenance = dict.fromkeys(PROVENANCE, text)
    one = top({"q1": [(1.0, 1)]}) | {"provenance": provenance}
    hits = [{"rank": 1, "score": 1.0, "row": 0, "example": bad}]
    one["queries"] = [{"query": entry, "hits": hits} for entry in (bad, example("q2"))]
    group = groups({"q2": [1.0]}, [text]) | {"provenance": provenance}
    page = Page(render_report([one, group], title=text, notes=[text]))
    harmless = [top({"q1": [(1.0, 1)], "q2": [(1.0, 1)]}, label="l", source="s"), groups({"q2": [1.0]}, ["g"])]
    plain = Page(render_report(harmless, notes=["n"]))
    assert page.text.count(text) >= 12
    assert {name for name, _ in page.elements} == {name for name, _ in plain.elements}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_control_and_direction_characters_are_seen_and_do_nothing() -> None:
    text = "a\0b\x1b[31m\x85\u202eevil\u2066\u2069\r\nnext\ttab \u200f\u200b\ufeff\U000e0041 \ud83d"
    run = top({"q1": [(1.0, 1)]})
    run["queries"][0]["query"]["prompt"] = text
    html = render_report([run], title="\u202e")
    assert "a␀b␛[31m⟨U+0085⟩⟨U+202E⟩evil⟨U+2066⟩⟨U+2069⟩\nnext\ttab ⟨U+200F⟩⟨U+200B⟩⟨U+FEFF⟩⟨U+E0041⟩ ⟨U+D83D⟩" in html
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)


def test_long_texts_are_folded_and_cut_with_a_count() -> None:
    run = top({"q1": [(1.0, 1)]})
    run["queries"][0]["hits"][0]["example"]["response"] = "word " * 20_000
    html = render_report([run])
    assert len(html) < 40_000
    page = Page(html)
    assert len(page.all("details")) == 1
    assert "3,680 more characters" in page.line
    assert "… 96,000 more characters are left out of this page." in page.line


def test_long_names_are_cut() -> None:
    run = groups({"q1": [1.0]}, ["name" * 1000])
    run["queries"][0]["query"]["id"] = "id" * 1000
    assert len(render_report([run])) < len(render_report([groups({"q1": [1.0]}, ["name"])])) + 1000


def test_thousand_queries_make_a_page_that_can_be_opened() -> None:
    run = top({f"q{number}": [(1.0 / rank, number + rank) for rank in range(1, 6)] for number in range(1000)})
    for entry in run["queries"]:
        for hit in entry["hits"]:
            hit["example"]["response"] = "long answer " * 200
    html = render_report([run])
    assert html.count("<article") == 1000
    assert len(html) < 16_000_000
    assert "each is cut at 1000 characters" in html


def test_more_queries_have_several_pages_that_lead_to_each_other(tmp_path: Path) -> None:
    changed = what_if({f"q{number}": (0.0, number * (-1.0) ** number) for number in range(2500)})
    ranked = top({f"q{number}": [(1.0, 7), (0.5, 1000 + number)] for number in range(2500)})
    path = write_report([changed, ranked], tmp_path / "my report #1.html")
    names = ["my report #1.html", "my report #1-2.html", "my report #1-3.html"]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(names)
    pages = [Page((tmp_path / name).read_text(encoding="utf-8")) for name in names]
    found = [[part["id"] for part in page.all("article")] for page in pages]
    every = [f"q{number}" for number in range(1, 2501)]
    assert found == [every[:1000], every[1000:2000], every[2000:]]
    assert [page.line.count("Overview of all queries") > 0 for page in pages] == [True, False, False]
    for page in pages:
        assert "Queries 1 to 1,000, 1,001 to 2,000, 2,001 to 2,500" in page.line
        here = {part["id"] for _, part in page.elements if "id" in part}
        for link in (str(part["href"]) for part in page.all("a")):
            name, _, place = unquote(link).partition("#q") if "#q" in link else (unquote(link), "", "")
            assert name.startswith("#") or name in ("", *names)
            assert not place or f"q{place}" in (found[names.index(name)] if name else here)
    assert 'href="my%20report%20%231-3.html#q2500"' in path.read_text(encoding="utf-8")
    assert max(len((tmp_path / name).read_bytes()) for name in names) < 4_000_000


def test_no_page_is_written_over_another_file(tmp_path: Path) -> None:
    (tmp_path / "report-2.html").write_text("mine")
    with pytest.raises(ArtifactError, match=r"report-2\.html: "):
        write_report([what_if({f"q{number}": (0.0, 1.0) for number in range(1001)})], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_shorter_report_leaves_no_page_of_the_longer_one(tmp_path: Path) -> None:
    def report(count: int, **how: Any) -> None:
        write_report([what_if({f"q{n}": (0.0, 1.0) for n in range(count)})], tmp_path / "report.html", **how)

    report(3001)
    own = write_report([top({"q1": [(1.0, 1)]})], tmp_path / "report-5.html").read_bytes()  # a report by itself
    report(1001, replace=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report-2.html", "report-5.html", "report.html"]
    assert (tmp_path / "report-5.html").read_bytes() == own
    write_report([top({"q1": [(1.0, 1)]})], tmp_path / "other-2.html")
    write_report([top({"q1": [(1.0, 1)]})], tmp_path / "other.html")
    write_report([top({"q1": [(1.0, 1)]})], tmp_path / "other.html", replace=True)
    assert (tmp_path / "other-2.html").exists()


def test_half_a_character_in_a_title_is_no_error(tmp_path: Path) -> None:
    page = write_report([top({"q1": [(1.0, 1)]})], tmp_path / "report.html", title="caf\udce9")
    assert "caf" in page.read_text("utf-8")


def test_bars_are_drawn_around_zero_on_one_scale_for_a_query() -> None:
    page = Page(render_report([top({"q1": [(3.0, 1)]}), top({"q1": [(-1.0, 2)]}, order="most harmful first")]))
    bars = [drawn for drawn in page.all("rect") if drawn.get("class") in ("up", "down")]
    assert [(bar["class"], bar["x"], bar["width"]) for bar in bars[-2:]] == [
        ("up", "25.0%", "75.0%"), ("down", "0.0%", "25.0%"),
    ]  # fmt: skip


def test_least_helpful_is_not_called_harmful_above_zero() -> None:
    line = Page(render_report([top({"q1": [(0.1, 1), (0.2, 2)]}, order="most harmful first")])).line
    assert "No score is below 0: these help least, none counts as harmful." in line
    line = Page(render_report([top({"q1": [(-0.1, 1)]})])).line
    assert "No score is above 0: these harm least, none counts as helpful." in line


def test_long_rankings_show_both_ends() -> None:
    names = [f"g{place}" for place in range(100)]
    line = Page(render_report([groups({"q1": [float(-place) for place in range(100)]}, names)])).line
    assert "20. g19" in line
    assert "70 more groups in between" in line
    assert "21. g20" not in line
    assert "91. g90" in line
    assert "100. g99" in line


def test_many_labels_are_cut_in_a_roll_up() -> None:
    run = top({"q1": [(1.0, row) for row in range(30)]})
    for hit in run["queries"][0]["hits"]:
        hit["example"]["label"] = f"label {hit['row']}"
    assert "10 more with 10 hits are left out." in Page(render_report([run])).line


def test_runs_of_one_name_are_numbered() -> None:
    texts = [text for _, text in Page(render_report([top({"q1": [(1.0, 1)]}) for _ in range(2)])).headings]
    assert texts[-3:-1] == ["Most helpful examples (1)", "Most helpful examples (2)"]


def test_shares_of_sources_are_counted_and_summed() -> None:
    run = read_runs([top({"q1": [(3.0, 1), (2.0, 2), (-1.0, 3)]}, source="a")])[0]
    assert isinstance(run, TopResult)
    (table,) = shares_tables(run.queries[0].hits)
    (line,) = table.lines
    assert (line.head.text, *(cell.text for cell in line.cells)) == ("a", "3", "100%", "+4.000")
    assert shares_tables([]) == []


def test_group_ranking_keeps_the_order_of_ties() -> None:
    named = [NamedGroup(name=name, size=1) for name in "abc"]
    ranked = rank_groups(named, [[1.0, 2.0, 2.0], [1.0, 0.0, 0.0]])
    assert [(row.group.name, row.score, row.first) for row in ranked] == [("a", 1.0, 1), ("b", 1.0, 1), ("c", 1.0, 1)]


def test_recurring_examples_are_ordered_by_queries_then_strength() -> None:
    numbers = {"q1": 1, "q2": 2, "q3": 3}
    hits = {"q1": [(9.0, 5), (1.0, 6), (0.5, 7)], "q2": [(8.0, 6), (7.0, 7)], "q3": [(6.0, 6), (7.0, 7), (1.0, 8)]}
    for order, expected in (("most helpful first", [6, 7]), ("most harmful first", [7, 6])):
        run = read_runs([top(hits, order=order)])[0]
        assert isinstance(run, TopResult)
        found = recurring(run, numbers)
        assert [int(row.example.id[1:]) for row in found] == expected
    assert found[0].queries == (1, 2, 3)
    assert found[0].best == 2
    assert found[0].mean == pytest.approx(14.5 / 3)


@pytest.mark.parametrize(
    ("largest", "score", "shown"),
    [
        (3.2, -1.23456, "−1.235"), (3.2, 0.0, "0.000"), (3.2, -0.00001, "0.000"), (0.04, 0.0123456, "+0.01235"),
        (4321.0, -4321.0, "−4,321"), (1e-9, 1e-9, "+1.000e−09"), (1e12, 1e12, "+1.000e+12"), (0.0, 0.0, "0.000"),
    ],
)  # fmt: skip
def test_scores_have_the_digits_of_their_scale(largest: float, score: float, shown: str) -> None:
    assert Scale(min(0.0, -largest), largest).show(score) == shown


def test_scale_holds_zero_and_places_its_scores_inside() -> None:
    assert Scale.over([2.0, 5.0]) == (0.0, 5.0)
    assert Scale.over([]) == (0.0, 0.0)
    assert Scale.over([]).place(0.0) == 0.0
    assert [Scale.over([-2.0, 6.0]).place(score) for score in (-2.0, 0.0, 6.0, 99.0)] == [0.0, 25.0, 100.0, 100.0]


def test_cut_loses_nothing_below_the_limit() -> None:
    text = "one two\nthree " * 100
    prose = cut(text, 10_000, 100)
    assert prose.head + prose.rest == text
    assert len(prose.head) <= 100
    assert prose.left_out == 0
    assert cut("x" * 500, 400, 100) == ("x" * 100, "x" * 300, 100)
    assert cut("short", 400) == ("short", "", 0)


def test_short_is_one_line() -> None:
    assert short(" a\n b\tc ") == "a b c"
    assert short("word " * 100, 11) == "word word…"
    assert len(short("x" * 10**6, 20)) == 20
    assert visible("\r") == "␍"


def test_result_objects_and_their_json_forms_give_the_same_page() -> None:
    queries = Corpus.from_examples([Example("who?", "me", "q1"), Example("why?", "so", "q2", label="l")])
    train = Example("what?", "that", "t1", source="forum", metadata={"stars": 5})
    provenance = Provenance("airrep", "f" * 64)
    pooled = Provenance("airrep", "f" * 64, "attention")
    hits = tuple(Hits(query, (Hit(1, 0.5, 0, train),), provenance) for query in queries)
    scores = np.array([[0.25, 1.5], [0.5, -1.0]], dtype=np.float32)
    results = [
        TopResult(hits, provenance, False),
        GroupResult.of(queries, ("a", "b"), (3, 4), scores, pooled),
        WhatIfResult.of(queries, scores[:, 0], scores[:, 1], 5, 6, pooled),
    ]
    html = render_report(results)
    assert html == render_report([result.to_dict() for result in results])
    assert "1. b 4 +1.500" in Page(html).line


def test_the_page_tells_pool_and_temperature() -> None:
    run = groups({"q1": [1.0]}, ["g"])
    assert "pool: attention." in Page(render_report([run])).line
    cold = run | {"provenance": POOLED | {"temperature": 0.2}}
    line = Page(render_report([cold])).line
    assert "pool: attention at temperature 0.2." in line
    assert "Pool attention at temperature 0.2" in line
    assert "Pool order-2" in Page(render_report([run | {"provenance": POOLED | {"pool": "order-2"}}])).line


def test_same_results_same_bytes(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    one, two = (write_report(runs, tmp_path / name / "report.html") for name in ("new/a", "b"))
    assert one.read_bytes() == two.read_bytes()
    assert [path.name for path in one.parent.iterdir()] == ["report.html"]


def test_nothing_is_overwritten_unless_asked(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("mine")
    with pytest.raises(ArtifactError, match=r"report\.html: "):
        write_report(runs, path)
    with pytest.raises(ConfigError):
        write_report([], path, replace=True)
    assert path.read_text() == "mine"
    assert write_report(runs, path, replace=True) == path
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_places_that_cannot_be_written(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="directory"):
        write_report(runs, tmp_path, replace=True)
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_report(runs, tmp_path / "file" / "report.html")


ONE = top({"q1": [(1.0, 1)]})
BETTERED = ONE["queries"][0] | {"better": example("good q1", response="other")}
SAID_OTHERWISE = {"query": example("q1", response="something else"), "hits": ONE["queries"][0]["hits"]}


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([], "no results"),
        ([top({})], "no queries"),
        ([ONE, ONE | {"provenance": PROVENANCE | {"index": "fedcba9876543210"}}], "0123456789ab and fedcba987654"),
        ([ONE, ONE | {"queries": [SAID_OTHERWISE]}], "query 'q1'"),
        ([contrasted(ONE), ONE | {"queries": [BETTERED]}], "query 'good q1'"),
    ],
)
def test_results_that_do_not_belong_together_are_refused(results: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        render_report(results)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({}, "result 1: is of kind 'None'"),
        ({"kind": "index"}, "result 1: is of kind 'index'"),
        ({"kind": "top", "provenance": PROVENANCE, "queries": []}, "result 1: .*order"),
        (top({"q1": [(float("nan"), 1)]}), r"result 1: .*queries\.0\.hits\.0\.score: .*finite"),
        (groups({"q1": [1.0]}, ["a", "b"]), "result 1: .*group"),
    ],
)
def test_what_is_not_a_result_is_refused(broken: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        render_report([broken])
    assert "\n" not in str(caught.value)


def test_the_last_message_of_a_long_prompt_is_seen_and_those_before_are_folded() -> None:
    before, last = "System: " + "polite " * 100, "User: where is it? " + "now " * 200
    prompt, name = f"{before}\n{last}", "of the system prompt"
    assert apart(prompt, 4000) == (f"{before}\n", 0, last, name, len(before) + 1)
    assert apart(prompt, 1000) == (prompt[: 1000 - len(last)], len(prompt) - 1000, last, name, len(before) + 1)
    assert apart(prompt, 400) == ("", len(before) + 1, last, name, len(before) + 1)
    assert apart("long " * 100, 4000) == ("", 0, "long " * 100, name, 0)
    run = top({"q1": [(1.0, 1)]})
    run["queries"][0]["hits"][0]["example"]["prompt"] = prompt
    run["queries"][0]["hits"][0]["why"] = why("where", (len(before) + 7, len(before) + 12))
    html = render_report([run])
    page = Page(html)
    assert "characters of the system prompt System: polite" in page.line
    assert "User: <mark>where</mark> is it?" in html


@pytest.mark.parametrize(
    ("change", "better", "text"),
    [
        (-0.1, False, "without these examples, the data would teach the answer less"),
        (0.1, False, "without these examples, the data would teach the answer more"),
        (0.1, True, "without these examples, the data would teach the answer more, compared with the better one"),
        (0.0, True, "no change is predicted"),
    ],
)
def test_effect_text(change: float, better: bool, text: str) -> None:
    assert effect_text(change, better=better) == text


def test_contrasts_say_what_teaches_the_answer_in_place_of_the_better_one() -> None:
    both = top({"q1": [(1.0, 1)], "q2": [(2.0, 1)]})
    verdict = {
        "kind": "nothing", "chance": 0.5, "share": 0.1, "deviations": 1.0, "row": 1, "rows": 1, "text": "Nothing.",
    }  # fmt: skip
    both["queries"][0] |= {"verdict": verdict}
    both["queries"][0]["hits"][0]["deviations"] = -3.25
    runs = [both, top({"q1": [(-1.0, 2)]}, order="most harmful first"), groups({"q1": [1.0, -1.0]}, ["a", "b"])]
    line = Page(render_report([*map(contrasted, runs), contrasted(what_if({"q1": (2.0, 1.0)}))])).line
    for said in (
        "What taught the answers",
        "What teaches the better answers",
        "Better response of good q1",
        "Above 0: by this estimate it teaches the answer in place of the better one.",
        "the first is the one to leave out",
        "falls: without these examples, the data would teach the answer less, compared with the better one.",
        "Verdicts: 1 say that nothing here taught this.",
        "−3.2 dev.",
    ):
        assert said in line, said
    assert "most helpful" not in line
    assert "harmful" not in line


def test_the_sum_of_the_queries_stands_first() -> None:
    line = Page(render_report([top({"q1": [(1.0, 1), (0.5, 2)], "q2": [(2.0, 1)]}, source="forum")])).line
    assert line.index("How many of the first 2 examples") < line.index("These hits by source")
    assert "Source forum 2" in line


def test_system_prompts_are_folded() -> None:
    run = top({"q1": [(1.0, 1)]}, prompt="System: be polite.\nUser: which zebra?")
    html = render_report([run])
    assert "<summary>… 19 characters of the system prompt</summary>System: be polite.\n</details>" in html


def test_runs_of_two_signs_each_say_their_own() -> None:
    other = groups({"q1": [1.0]}, ["a"]) | {"provenance": POOLED | {"sign": "above 0 = other"}}
    line = Page(render_report([top({"q1": [(1.0, 1)]}), other])).line
    assert line.count("Sign: higher = more helpful.") == line.count("Sign: above 0 = other.") == 1
    assert line.index("Most helpful examples") < line.index("Sign: higher")
