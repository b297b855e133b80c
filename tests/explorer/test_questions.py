"""Questions of the page, beside what the index itself answers."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from worlds.small_world import HashAttributor, make_corpus

import airrep
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import DataError
from airrep.explorer import questions, requests
from airrep.explorer.answers import Top
from airrep.explorer.explorer import Explorer
from airrep.explorer.questions import example_json, why_json


@pytest.fixture
def explorer(index: airrep.Index, queries: Corpus) -> Explorer:
    return Explorer(index, queries)


def ref(number: int = 0) -> requests.QueryRef:
    return requests.QueryRef(number=number)


@pytest.mark.parametrize("least", [False, True])
def test_pages_of_hits_are_the_ranking(explorer: Explorer, index: airrep.Index, queries: Corpus, least: bool) -> None:
    expected = index.top(queries[1], k=50, least=least, why=True)
    told = []
    for start in (0, 20, 40):
        page = questions.top(explorer, requests.TopRequest(query=ref(1), least=least, start=start, count=20))
        assert page["more"] == (start < 40)
        told += page["hits"]
    assert [(hit["row"], hit["rank"]) for hit in told] == [(hit.row, hit.rank) for hit in expected]
    assert np.allclose([hit["score"] for hit in told], [hit.score for hit in expected])
    assert told[0]["channels"] == pytest.approx({"hash": expected[0].score})


def test_a_hit_is_cited_where_that_is_asked(explorer: Explorer, index: airrep.Index) -> None:
    plain = questions.top(explorer, requests.TopRequest(query=ref(), count=2))
    cited = questions.top(explorer, requests.TopRequest(query=ref(), count=2, cite=True))
    found = [hit.pop("citation") for hit in cited["hits"]]
    assert cited == plain
    one = questions.example(explorer, requests.ExampleRequest(row=found[0]["row"], cite=True))
    assert Top.model_validate({**cited, "hits": [{**cited["hits"][0], "citation": found[0]}]})
    assert one["citation"] == found[0]
    texts = index.example(found[0]["row"])
    assert found[0]["sha256"] == hashlib.sha256(f"{texts.prompt}\0{texts.response}".encode()).hexdigest()
    assert found[0]["index"] == index.fingerprint


def test_a_part_of_a_response_is_asked_about_and_proved(tmp_path: Path) -> None:
    corpus = make_corpus(30)
    built = airrep.build_index(corpus, tmp_path / "words", "ngram")
    served, answer = Explorer(built, corpus), corpus[3].response
    start = answer.index(" ") + 1
    part = requests.QueryRef(number=3, span=[[start, len(answer)]])
    page = questions.top(served, requests.TopRequest(query=part))
    expected = built.top(replace(corpus[3], span=(start, len(answer))), k=20)
    assert [(hit["row"], hit["score"]) for hit in page["hits"]] == [(hit.row, hit.score) for hit in expected]
    assert (page["query"]["span"], page["verdict"]) == (((start, len(answer)),), None)
    whole = questions.top(served, requests.TopRequest(query=requests.QueryRef(number=3, span=[])))
    assert whole["hits"] == questions.top(served, requests.TopRequest(query=ref(3)))["hits"] != page["hits"]
    told = questions.prove(served, requests.WhatIfRequest(query=part, rows=[0]))
    assert f"{answer[:start]}[[{answer[start:]}]]" in told["command"]
    copies = questions.copied_words(served, requests.CopiedRequest(query=ref(3)))["copied"]
    assert all(one["words"] >= 4 and one["first"][0]["id"] for one in copies)
    with pytest.raises(DataError, match="lies outside the response"):
        questions.top(served, requests.TopRequest(query=requests.QueryRef(number=3, span=[[0, 999]])))


def test_filters_and_facets_choose_the_same_rows_as_the_index(explorer: Explorer, index: airrep.Index) -> None:
    asked = requests.TopRequest(
        query=ref(), where="year > 2001", facets={"source": ["forum", "(none)"], "year": ["2003"]}, count=50
    )
    expected = index.where('year == 2003 and (source == "forum" or source is None)')
    page = questions.top(explorer, asked)
    assert sorted(hit["row"] for hit in page["hits"]) == expected.tolist()
    assert page["matching"] == len(expected)


def test_counts_of_a_field_leave_its_own_choice_out(explorer: Explorer, index: airrep.Index) -> None:
    told = questions.count(explorer, requests.Filters(facets={"source": ["forum"]}))
    assert told["matching"] == len(index.where(source="forum"))
    counts = {one["name"]: {value["value"]: value["count"] for value in one["values"]} for one in told["facets"]}
    assert counts["source"] == {
        "forum": len(index.where(source="forum")),
        "books": len(index.where(source="books")),
        "(none)": len(index.where("source is None")),
    }
    for value, count in counts["label"].items():
        assert count == len(index.where(source="forum", label=value))
    assert counts["year"]["2001"] == len(index.where('year == 2001 and source == "forum"'))


def test_groups_and_what_if_are_those_of_the_index(explorer: Explorer, index: airrep.Index, queries: Corpus) -> None:
    expected = index.group_scores([queries[2]], "label")
    told = questions.groups(explorer, requests.GroupRequest(query=ref(2), by="label"))
    assert {one["value"]: one["score"] for one in told["groups"]} == pytest.approx(dict(expected.ranked(0)))
    assert [one["value"] for one in told["groups"]] == [name for name, _ in expected.ranked(0)]
    removed = np.union1d(index.where(source="forum"), [1, 5])
    change = index.what_if([queries[2]], remove=removed)
    basket = requests.WhatIfRequest(query=ref(2), rows=[5, 1, 5], facets={"source": ["forum"]})
    answer = questions.what_if(explorer, basket)
    assert answer["change"] == pytest.approx(float(change.change[0]))
    assert answer["removed"] == len(removed)


def test_an_example_tells_the_queries_that_it_helps(explorer: Explorer, index: airrep.Index, queries: Corpus) -> None:
    typed = requests.QueryRef(prompt="new one", response="😀 answer")
    questions.top(explorer, requests.TopRequest(query=typed))
    told = questions.example(explorer, requests.ExampleRequest(row=17, query=typed))
    asked = [*queries, Example("new one", "😀 answer", id="q")]
    scores = index.scores(asked)[:, 17]
    assert [one["score"] for one in told["helped"]] == pytest.approx(sorted(scores, reverse=True), rel=1e-5)
    assert told["score"] == pytest.approx(float(scores[-1]), rel=1e-5)
    assert told["prompt"] == index.example(17).prompt
    (listed,) = questions.list_queries(explorer, requests.ListRequest(text="NEW"))["asked"]
    assert explorer.question(requests.QueryRef(key=listed["key"])).queries[0].response == "😀 answer"


def test_places_of_words_count_as_javascript_does(tmp_path: Path) -> None:
    corpus = Corpus.from_examples(
        [Example("😀 p", "𝒳 the zebra runs", id="a"), Example("q", "a car", id="b"), Example("r", "the end", id="c")]
    )
    index = airrep.build_index(corpus, tmp_path / "index", "bm25")
    query = Example("😀😀 x", "my zebra", id="q")
    hit = index.top(query, k=1, why=True)[0]
    assert hit.why is not None
    (word,) = [one for one in why_json(query, hit.example, hit.why)["words"] if one["text"] == "zebra"]
    (field, start, stop) = word["example"][0]
    units = hit.example.response.encode("utf-16-le")
    assert field == "response"
    assert units[2 * start : 2 * stop].decode("utf-16-le") == "zebra"


def test_deleted_rows_are_in_no_answer(index: airrep.Index, queries: Corpus) -> None:
    explorer = Explorer(index.delete([3, 4]), queries)
    assert questions.count(explorer, requests.Filters())["matching"] == 48
    groups = questions.groups(explorer, requests.GroupRequest(query=ref(), by="source"))["groups"]
    assert sum(one["size"] for one in groups) == 48
    with pytest.raises(airrep.errors.ConfigError, match="row 3: "):
        questions.example(explorer, requests.ExampleRequest(row=3))


def test_a_field_of_many_values_is_no_facet(tmp_path: Path) -> None:
    examples = (Example("p", f"r{n}", id=str(n), label=f"l{n}", metadata={"n": n}) for n in range(600))
    index = airrep.build_index(Corpus.from_examples(examples), tmp_path / "i", HashAttributor(), shard_rows=256)
    explorer = Explorer(index)
    assert questions.count(explorer, requests.Filters())["facets"] == []
    assert not {"label", "n"} & set(questions.about(explorer)["fields"])
    with pytest.raises(airrep.errors.ConfigError, match="500"):
        explorer.facets.groups("n")


WHERE = (
    "n == 1", "n > 0 and source != 'a'", "n is None", "n in [1, 2.5, None]", "mixed == '1'", "mixed == 1",
    "'b' in label", "'x' in tags", "flag == True", "note is None or note == '(none)'", "not (n < 2 or source in ['a'])",
    "metadata['source'] == 'own'", "id == 'e3' or n == 2",
)  # fmt: skip


@pytest.mark.parametrize("where", WHERE)
def test_filters_by_facets_choose_what_the_index_chooses(tmp_path: Path, where: str) -> None:
    records = [
        {"n": 1, "mixed": 1, "tags": ["x"], "flag": True, "note": "(none)", "source": "own"},
        {"n": 2.5, "mixed": "1", "tags": [], "flag": False},
        {"mixed": True, "tags": ["y", "x"]},
        {"n": -0.0, "mixed": None, "note": None},
        {"n": 0.0},
        {},
    ]
    examples = [
        Example(f"p{n}", "r", id=f"e{n}", source="ab"[n % 2], label=["b", None, "ab"][n % 3], metadata=records[n % 6])
        for n in range(30)
    ]
    index = airrep.build_index(examples, tmp_path / "i", HashAttributor(), shard_rows=8).delete([0, 9])
    facets = Explorer(index).facets
    if where in ("mixed == '1'", "mixed == 1"):  # some shard may refuse what another holds
        facets._index = index = airrep.build_index(examples, tmp_path / "one", HashAttributor()).delete([0, 9])
    assert facets.mask(where, {}).tolist() == index.mask(where).tolist()


def test_facets_are_told_as_texts(tmp_path: Path) -> None:
    values = [1, "1", 1.0, True, None, "(none)", ["a"], {"b": "ü"}]
    examples = [Example(f"p{n}", "r", id=f"e{n}", metadata={"v": value}) for n, value in enumerate(values)]
    index = airrep.build_index(examples, tmp_path / "i", HashAttributor(), shard_rows=3)
    facet = Explorer(index).facets.facet("v")
    assert [facet.names[code] for code in facet.codes] == [
        "1", '"1"', "1", "true", "(none)", "(none)", '["a"]', '{"b": "ü"}',
    ]  # fmt: skip
    assert facet.values is None


def test_facets_are_read_before_the_first_question(index: airrep.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = Explorer(index)
    explorer.prepare()
    monkeypatch.setattr("airrep.explorer.facets.read_facets", lambda *_: pytest.fail("read again"))
    monkeypatch.setattr(type(explorer.indexes[0]), "mask", lambda *_: pytest.fail("metadata read again"))
    told = questions.count(explorer, requests.Filters(where="year > 2001 and source == 'forum'"))
    assert told["matching"] == len(index.where("year > 2001 and source == 'forum'"))


def test_an_index_that_changes_is_not_asked_any_more(index: airrep.Index, queries: Corpus) -> None:
    explorer = Explorer(index, queries)
    questions.top(explorer, requests.TopRequest(query=ref()))
    index.delete([3])
    with pytest.raises(airrep.errors.ArtifactError, match="airrep serve"):
        questions.top(explorer, requests.TopRequest(query=ref()))


def test_another_index_beside_has_the_same_examples(tmp_path: Path, index: airrep.Index, corpus: Corpus) -> None:
    beside = airrep.build_index(corpus, tmp_path / "beside", HashAttributor("other"))
    explorer = Explorer(index, None, beside)
    query = requests.QueryRef(prompt="a", response="b")
    first, second = (questions.top(explorer, requests.TopRequest(query=query, index=n))["hits"] for n in (0, 1))
    assert [hit["row"] for hit in second] == [hit.row for hit in beside.top(Example("a", "b", id="q"), k=20)]
    assert first != second
    other = airrep.build_index(make_corpus(50, "x"), tmp_path / "x", HashAttributor())
    with pytest.raises(airrep.errors.ConfigError, match="--beside "):
        Explorer(index, None, other)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (requests.TopRequest, {"query": {"number": -1}}),
        (requests.TopRequest, {"query": {"number": "1"}}),
        (requests.TopRequest, {"query": {"number": True}}),
        (requests.TopRequest, {"query": {"number": 1}, "count": 1001}),
        (requests.TopRequest, {"query": {"number": 1}, "start": 1000}),
        (requests.TopRequest, {"query": {"number": 1}, "where": "x" * 2001}),
        (requests.TopRequest, {"query": {"prompt": "a" * 100_001, "response": "b"}}),
        (requests.TopRequest, {"query": {"number": 1}, "more": 1}),
        (requests.WhatIfRequest, {"query": {"number": 1}, "rows": list(range(10_001))}),
        (requests.WhatIfRequest, {"query": {"number": 1}, "rows": [1.5]}),
        (requests.Filters, {"facets": {"source": "forum"}}),
    ],
)
def test_requests_that_cannot_be_meant_are_refused(kind: type[requests.Request], fields: dict) -> None:
    with pytest.raises(ValidationError):
        kind.model_validate(fields)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"number": 99}, "query number 99"),
        ({"key": "nothing"}, "no longer stored"),
        ({"prompt": "a"}, "a prompt and a response"),
        ({"prompt": "a", "response": " "}, "a prompt and a response"),
        ({}, "a prompt and a response"),
    ],
)
def test_queries_that_do_not_exist_are_told(explorer: Explorer, query: dict, told: str) -> None:
    with pytest.raises(airrep.AirRepError, match=told):
        questions.top(explorer, requests.TopRequest(query=requests.QueryRef(**query)))


def test_the_last_message_of_a_long_prompt_is_listed_with_its_places(tmp_path: Path) -> None:
    before = "System: a zebra " + "polite " * 300
    corpus = Corpus.from_examples(
        [Example(f"{before}\nUser: which zebra?", "none", id="a"), Example("q", "a car", id="b")]
    )
    index = airrep.build_index(corpus, tmp_path / "index", "bm25", settings={"view": "whole"})
    hit = index.top(Example("zebra", "zebra", id="q"), k=1, why=True)[0]
    shown = example_json(hit.example)
    assert shown["prompt"] == "… User: which zebra?"
    assert shown["lengths"]["prompt"] == len(shown["prompt"])
    assert example_json(hit.example, None)["prompt"] == hit.example.prompt
    assert hit.why is not None
    (word,) = why_json(hit.example, hit.example, hit.why)["words"]
    assert [shown["prompt"][start:stop] for _, start, stop in word["example"]] == ["zebra"]
    explorer = Explorer(index, corpus)
    (listed, _) = questions.list_queries(explorer, requests.ListRequest())["queries"]
    assert listed["prompt"] == "… User: which zebra?"


def test_same_words_before_the_last_message_alone_are_listed_with_their_message(tmp_path: Path) -> None:
    before = "System: " + "polite " * 300
    prompt = f"{before}\nUser: which zebra?\nAssistant: this zebra\nUser: thanks"
    corpus = Corpus.from_examples([Example(prompt, "none", id="a"), Example("q", "a car", id="b")])
    index = airrep.build_index(corpus, tmp_path / "index", "bm25", settings={"view": "whole"})
    explorer = Explorer(index, Corpus.from_examples([Example("zebra", "zebra", id="q")]))
    hit = questions.top(explorer, requests.TopRequest(query=ref()))["hits"][0]
    assert hit["prompt"] == "… User: which zebra?\nAssistant: this zebra\nUser: thanks"
    (word,) = hit["words"]
    assert [hit["prompt"][start:stop] for _, start, stop in word["example"]] == ["zebra", "zebra"]
    whole = questions.example(explorer, requests.ExampleRequest(row=hit["row"], query=ref()))
    assert whole["prompt"] == prompt
    assert [prompt[start:stop] for _, start, stop in whole["words"][0]["example"]] == ["zebra", "zebra"]


def test_parts_of_objects_are_facets_groups_and_filters(tmp_path: Path) -> None:
    records = [
        {
            "id": f"e{n}",
            "prompt": f"prompt {n}",
            "response": f"answer {n}",
            "meta": {"lang": ["en", "de", None][n % 3], "origin": {"site": "ab"[n % 2], "page": n}},
            "a.b": n % 2,
            "a": {"b": 7} if n < 6 else 5,
            "tags": ["x"],
        }
        for n in range(12)
    ]
    index = airrep.build_index(records, tmp_path / "index", "tfidf")
    asked = Corpus.from_examples([Example("prompt", "answer 3", id="q")])
    explorer = Explorer(index, asked)
    assert {"meta.lang", "meta.origin.site", "meta.origin.page", "a.b", "a", "tags"} <= set(explorer.facets.fields)
    assert "meta" not in explorer.facets.fields
    counts = {
        one["name"]: {value["value"]: value["count"] for value in one["values"] if value["count"]}
        for one in questions.count(explorer, requests.Filters())["facets"]
    }
    assert counts["meta.lang"] == {"en": 4, "de": 4, "(none)": 4}
    assert counts["meta.origin.site"] == {"a": 6, "b": 6}
    told = questions.groups(explorer, requests.GroupRequest(query=ref(), by="meta.lang"))
    expected = index.group_scores(asked, by="meta.lang")
    scores = dict(zip(expected.names, expected.scores[0].tolist(), strict=True))
    assert {one["value"]: one["score"] for one in told["groups"]} == pytest.approx(scores)
    for where in (
        'meta.lang == "en"',
        'metadata["meta"]["lang"] == "en"',
        "a.b == 1",
        'metadata["a.b"] == 1',
        "a == 5",
    ):
        assert explorer.facets.mask(where, {}).tolist() == index.mask(where).tolist(), where
    chosen = explorer.facets.mask(None, {"meta.origin.site": ["a"], "meta.lang": ["de"]})
    assert np.flatnonzero(chosen).tolist() == index.where('meta.origin.site == "a" and meta.lang == "de"').tolist()
