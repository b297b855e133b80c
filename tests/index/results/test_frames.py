"""Results as rows, data frames and tables of notebooks."""

import pandas as pd
import pytest

import airrep
from airrep.corpus.corpus import Example
from airrep.index.results.hits import Hit, Hits
from airrep.index.results.result import LONGEST, Provenance, shortened


def test_rows_say_what_the_result_says(index: airrep.Index, queries: airrep.Corpus) -> None:
    top = index.top(queries, k=3)
    frame = top.to_pandas()
    assert frame["score"].tolist() == [hit.score for hits in top for hit in hits]
    assert frame["id"].tolist() == [hit.example.id for hits in top for hit in hits]
    assert frame["query"].tolist() == [hits.query.id for hits in top for _ in hits]
    assert pd.DataFrame(top[0].to_dicts()).equals(top[0].to_pandas())

    groups = index.group_scores(queries, by="label")
    table = groups.to_pandas().pivot(index="query", columns="group", values="score")
    wanted = pd.DataFrame(groups.scores.astype(float), index=[query.id for query in queries], columns=groups.names)
    pd.testing.assert_frame_equal(table.loc[wanted.index], wanted, check_names=False, check_column_type=False)

    change = index.what_if(queries, remove='label == "label 0"')
    assert change.to_pandas()["change"].tolist() == change.change.tolist()
    picked = airrep.select(index, queries, 4)
    assert picked.to_pandas()["rank"].tolist() == [pick.rank for pick in picked]


def test_a_thousand_queries_print_a_line(index: airrep.Index, queries: airrep.Corpus) -> None:
    many = [queries[0]] * 1000
    for result in (index.top(many), index.group_scores(many, by="label"), index.what_if(many, remove=[1])):
        assert len(repr(result)) < 200
        assert "1,000 queries" in repr(result)
        assert len(result._repr_html_()) < 40_000
    assert len(repr(index.top(queries[0]))) < 200
    assert len(repr(airrep.select(index, queries, 4))) < 200


def test_a_notebook_shows_texts_as_they_are() -> None:
    hostile = Example("<script>alert(1)</script>", "\x1b[31mred\u202eevil" + "x" * 2**20, "<b>", source="a&b")
    hits = Hits(hostile, (Hit(1, 0.5, 0, hostile),), Provenance("hash", "f"))
    for shown in (hits._repr_html_(), repr(hits)):
        assert len(shown) < 2000
        assert "<script" not in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in hits._repr_html_()
    assert "a&amp;b" in hits._repr_html_()


@pytest.mark.parametrize(("text", "shown"), [("a\n  b\tc", "a b c"), ("x" * 200, "x" * (LONGEST - 1) + "…"), ("", "")])
def test_texts_are_one_line(text: str, shown: str) -> None:
    assert shortened(text) == shown


def test_an_index_is_asked_with_whatever_holds_a_query(index: airrep.Index, queries: airrep.Corpus) -> None:
    first = queries[0]
    expected = [hit.row for hit in index.top(first)]
    assert [hit.row for hit in index.top({"prompt": first.prompt, "response": first.response})] == expected
    assert [hit.row for hit in index.top([first.to_dict()])[0]] == expected
    assert [hit.row for hit in index.top(pd.DataFrame([first.to_dict()]))[0]] == expected
    assert len(index.top("some text")) == 10
    assert len(index.top(["some text", "more"])) == 2


def test_an_index_changes_by_its_own_methods(index: airrep.Index) -> None:
    smaller = index.delete('label == "label 0"')
    assert len(smaller) == len(index) - len(index.where(label="label 0"))
    larger = smaller.compact().append([{"prompt": "new", "response": "one"}])
    assert (len(larger), larger.example(larger.rows - 1).prompt) == (len(smaller) + 1, "new")
    with pytest.raises(airrep.errors.ConfigError, match=r'filter label == "none": no example matches'):
        larger.delete('label == "none"')
