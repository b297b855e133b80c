"""Where-expressions: what they keep, and what they refuse."""

import operator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.fields import field_values
from airrep.corpus.filters import compile_filter, equal_to
from airrep.errors import ConfigError

ROWS = [
    Example("What is 1+1?", "2", "a", "math", "forum", {"year": 2019, "tags": ["easy", 1], "ok": True}),
    Example("Recipe for soup", "boil", "b", "food", None, {"year": 2021.5, "odd key": "x y", "ok": False}),
    Example("Wie geht's?", "gut", "c", None, "wiki", {"year": 2022, "tags": "easygoing", "mixed": "3"}),
    Example(
        "Zebra é",
        "ja",
        "d",
        "math",
        "wiki",
        {"mixed": 3, "label": "inner", "object": {"k": 1, "inner": "deep", "list": ["x"]}},
    ),
]
TABLE = Corpus.from_examples(ROWS).table


def kept(expression: str, table: pa.Table = TABLE) -> str:
    """The ids of the rows that an expression keeps, as one word."""
    mask = compile_filter(expression).mask([table])
    assert mask.dtype == bool
    assert mask.shape == (len(table),)
    return "".join(np.array(table["id"].to_pylist())[mask])


@pytest.mark.parametrize(
    ("expression", "ids"),
    [
        ('label == "math"', "ad"),
        ("label == 'math' and source == 'wiki'", "d"),
        ('label != "math"', "bc"),
        ('not label == "math"', "bc"),
        ('"math" == label', "ad"),
        ('label in ["math", "food"]', "abd"),
        ('label not in ("math", "food")', "c"),
        ("label in []", ""),
        ('label in ["math", None]', "acd"),
        ("label == None", "c"),
        ("label is None or source is None", "bc"),
        ("label is not None", "abd"),
        ('label < "g"', "b"),
        ('label >= "food"', "abd"),
        ('"g" > label', "b"),
        ('not (label < "g")', "acd"),
        ('prompt > "Wie"', "cd"),
        ('"Recipe" in prompt', "b"),
        ('"recipe" not in prompt', "abcd"),
        ('"is" in prompt or "oil" in response', "ab"),
        ('"i" in source', "cd"),
        ('"i" not in source', "ab"),
        ('prompt == "Zebra é"', "d"),
        ('id in {"a", "d"}', "ad"),
        ("year >= 2020", "bc"),
        ("year == 2019.0", "a"),
        ("year != 2019", "bcd"),
        ("2019 <= year < 2022", "ab"),
        ("year > -1", "abc"),
        ("year in [2019, 2022]", "ac"),
        ("not year < 2022", "cd"),
        ("year is None", "d"),
        ("ok == True", "a"),
        ("ok != True", "bcd"),
        ('metadata["odd key"] == "x y"', "b"),
        ('metadata["label"] == "inner" and label == "math"', "d"),
        ('metadata["year"] is not None', "abc"),
        ('"easy" in tags', "ac"),
        ("1 in tags", "a"),
        ("True in tags", ""),
        ("tags == 'easygoing'", "c"),
        ("mixed == 3", "d"),
        ('mixed == "3"', "c"),
        ('mixed in ["3", 3]', "cd"),
        ("mixed < 4", "d"),
        ("object is not None", "d"),
        ('object.inner == "deep"', "d"),
        ('object["inner"] == "deep" and object.k != 2', "d"),
        ('metadata["object"]["inner"] in ["deep"]', "d"),
        ("metadata.object.inner is None", "abc"),
        ('"x" in object.list', "d"),
        ('"deep" == object.inner', "d"),
        ("2018 < metadata.year", "abc"),
        (' ( label == "math" )\t', "ad"),
        ('label == "food" or label == "math" and source == "wiki"', "bd"),
        ('(label == "food" or label == "math") and source == "wiki"', "d"),
    ],
)
def test_keeps(expression: str, ids: str) -> None:
    assert kept(expression) == ids


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "where '', column 1: invalid syntax"),
        (" ", "column 1: invalid syntax. Compare fields with values"),
        ("label = 'a'", "column 7: '=' is not a comparison"),
        ("source=forum", r"column 7: '=' is not a comparison"),
        ("label == 'a", r"column 10: unterminated string literal"),
        ("label == 'a' &&", r"column 15: invalid syntax"),
        ("lable == 'a'", 'column 1: there is no field "lable"'),
        ("label == 'a' and yaer == 1", 'column 18: there is no field "yaer"'),
        ('"é" in prompt and yaer == 1', r'column 19: there is no field "yaer"'),
        ("label < 3", "column 1: label holds text and is compared with 3"),
        ("label in ['a', 3]", r"column 1: label holds text and is compared with 3"),
        ("3 in label", r"column 6: label holds text and is compared with 3"),
        ("None in label", r"column 9: label holds text and is compared with None"),
        ("year == '2019'", "column 1: year holds numbers and is compared with '2019'"),
        ("object.iner == 'deep'", 'column 1: there is no field "object.iner"'),
        ("year.of is None", r'column 1: there is no field "year.of"'),
        ("objcet.inner is None", 'column 1: there is no field "objcet.inner"'),
        ("object.inner == 1", r"column 1: object.inner holds text and is compared with 1"),
        ("object().inner == 1", r"column 1: an attribute is not a field"),
        ("ok == 1", r"column 1: ok holds true or false and is compared with 1"),
        ("object == 1", r"column 1: object holds objects and is compared with 1"),
        ("'x' in year", r"column 8: year holds numbers and is compared with 'x'"),
        ("label < None", r"column 9: None cannot be compared"),
        ("label is 'a'", "column 10: the operator 'is' works only with None"),
        ("label in 'math'", "column 10: the right side of 'in' must be a list or a field"),
        ("metadata == 'a'", "column 1: metadata alone is not a field"),
        ("label == source", r"column 10: the name source is not a literal value"),
        ("'a' == 'a'", r"column 1: the literal 'a' is not a field"),
        ("label", r"column 1: the name label is not a comparison"),
        ("True", r"column 1: the literal True is not a comparison"),
        ("label == f'{id}'", r"column 10: the Python expression JoinedStr is not a literal"),
        ("label == b'a'", r"column 10: the literal b'a' is not a literal value"),
        ("year == 1j", r"column 9: the literal 1j is not a literal value"),
        ("year == 1 + 1", r"column 9: the Python expression BinOp is not a literal"),
        ("year == -'a'", r"column 9: the Python expression UnaryOp"),
        ("label.upper() == 'A'", r"column 1: a call is not a field"),
        ("label.name == 'A'", "an attribute is not a field"),
        ("__import__('os').system('x')", r"column 1: a call is not a comparison"),
        ("[x for x in label]", r"column 1: the Python expression ListComp"),
        ("(lambda: 1)()", r"column 1: a call is not a"),
        ("(label := 'a')", r"column 2: the Python expression NamedExpr"),
        ("label == 'a' if True else label == 'b'", r"column 1: the Python expression IfExp"),
        ("metadata[label] == 1", r"column 1: the Python expression Subscript"),
        ("prompt['x'] == 1", r"column 1: the Python expression Subscript"),
        ("label in ['a', id]", r"column 16: the name id is not a literal value"),
        (r"'\d' in prompt", r"column \d: .*invalid escape sequence '\\d'"),
        ("label == 'a\0'", r"column \d+: .*null bytes"),
        ("not " * 200 + "label == 'a'", "column 405: is nested more than 100 levels deep"),
        ("(" * 5000, r"column \d+: "),
        ("not " * 100_000 + "label", r"column \d+: "),
    ],
)
def test_refuses(expression: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        compile_filter(expression).mask([TABLE])
    assert str(error.value).startswith("where '")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_says_what_is_wrong_before_it_sees_data() -> None:
    with pytest.raises(ConfigError, match="a call is not a"):
        compile_filter("exit()")


def test_names_the_fields_it_reads() -> None:
    found = compile_filter('metadata["x"] == 1 or year > 2 and "a" in prompt and id == "b"')
    assert [field.name for field in found.fields] == ["x", "year", "prompt", "id"]
    assert kept('label == "math"', TABLE.select(["label", "id"])) == "ad"


def test_lists_twenty_metadata_keys_at_most() -> None:
    table = Corpus.from_examples([Example("p", "r", "1", metadata={f"k{n:02}": 1 for n in range(30)})]).table
    with pytest.raises(ConfigError, match=r"source, k00, .*k19 and 10 more\.$"):
        compile_filter("k == 1").mask([table])


def test_a_part_may_lack_a_key_that_another_part_has() -> None:
    part = TABLE[3:]
    assert compile_filter("year is None").mask([part], ["year"]).tolist() == [True]
    assert equal_to({"year": [2019, None]}).mask([part], ["year"]).tolist() == [True]
    with pytest.raises(ConfigError, match='there is no field "year"'):
        compile_filter("year is None").mask([part])


def test_a_key_with_dots_comes_before_a_part_of_an_object() -> None:
    rows = [{"a.b": 1, "a": {"b": 2, "c.d": 3}}, {"a": {"b": 2, "c": {"d": 4}}}]
    table = Corpus.from_examples([Example("p", "r", str(n), metadata=one) for n, one in enumerate(rows)]).table
    assert (kept("a.b == 1", table), kept("a.b == 2", table), kept("a.c.d > 2", table)) == ("0", "1", "01")
    assert equal_to({"a.b": [1, 2]}).mask([table]).tolist() == [True, True]
    assert kept("a.b == 1", table[:0]) == ""
    assert kept("a.b is None", table[1:]) == ""
    other = Corpus.from_examples([Example("p", "r", "2", metadata={"c": 1})]).table
    assert compile_filter("a.b is None").mask([other], ["a.b", "c"]).tolist() == [True]


def test_brackets_are_exact_steps_and_names_with_dots_take_what_fits() -> None:
    rows = [
        {"meta.lang": "literal", "meta": {"lang": "en"}},
        {"a.b": {"c": 1}, "a": {"b": {"d": 2}}, "": 7},
        {"meta": {"deep": {"x.y": "lit", "x": {"y": "obj"}}}},
    ]
    table = Corpus.from_examples([Example("p", "r", str(n), metadata=one) for n, one in enumerate(rows)]).table
    assert kept('metadata["meta"]["lang"] == "en" and metadata["meta.lang"] == "literal"', table) == "0"
    assert kept('meta["lang"] == "en" and meta.lang == "literal"', table) == "0"
    assert (kept("a.b.c == 1", table), kept("a.b.d == 2", table), kept('a["b"]["d"] == 2', table)) == ("1", "1", "1")
    assert kept('meta.deep.x.y == "lit" and meta.deep["x"]["y"] == "obj"', table) == "2"
    assert kept('metadata[""] == 7', table) == "1"
    assert equal_to({"": 7}).mask([table]).tolist() == [False, True, False]
    assert field_values([table], "a.b.c") == [None, "1", None]
    for wrong in ('metadata["a.c"] == 1', 'metadata["meta.deep"] is None', 'a["b.c"] == 1'):
        with pytest.raises(ConfigError, match="column 1: there is no field"):
            kept(wrong, table)


def test_quoted_values_that_differ_stay_apart() -> None:
    values = ["1", 1, '"1"', "2", '"2"', '"\\"1\\""', True, "true"]
    table = Corpus.from_examples([Example("p", "r", str(n), metadata={"k": v}) for n, v in enumerate(values)]).table
    found = field_values([table], "k", quoted=True)
    assert len(set(found)) == len(values)
    assert found[:5] == ['"1"', "1", '"\\"1\\""', "2", '"2"']


def test_no_rows_and_many_chunks() -> None:
    assert kept("year > 1", TABLE[:0]) == ""
    chunked = pa.concat_tables([TABLE[:1], TABLE[1:1], TABLE[1:]])
    assert kept('year > 2020 or label == "math"', chunked) == "abcd"
    assert kept("label is None", chunked) == "c"
    with pytest.raises(ConfigError, match='no field "year"'):
        kept("year > 1", Corpus.from_examples([Example("p", "r", "1")]).table)


VALUES = st.none() | st.text("ab", max_size=2)
TESTS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@given(st.lists(VALUES, min_size=1, max_size=6), st.sampled_from(list(TESTS)), st.text("ab", max_size=2))
@settings(max_examples=100, deadline=None)
def test_text_and_metadata_agree_with_python(values: list[str | None], symbol: str, literal: str) -> None:
    examples = [Example("p", "r", str(row), value, metadata={"m": value}) for row, value in enumerate(values)]
    table = Corpus.from_examples([*examples, Example("p", "r", "last", "", metadata={"m": ""})]).table
    test = TESTS[symbol]
    expected = [symbol == "!=" if value is None else test(value, literal) for value in [*values, ""]]
    for name in ("label", "m"):
        assert compile_filter(f"{name} {symbol} {literal!r}").mask([table]).tolist() == expected
        assert (
            compile_filter(f"not ({name} {symbol} {literal!r})").mask([table]).tolist() == np.invert(expected).tolist()
        )


@pytest.mark.parametrize(
    ("equals", "ids"),
    [
        ({"source": "wiki"}, "cd"), ({"source": ["wiki", "forum"]}, "acd"), ({"source": None}, "b"),
        ({"source": []}, ""), ({"source": "wiki", "label": "math"}, "d"), ({"label": np.array(["math"])}, "ad"),
        ({"label": {"food", None}}, "bc"), ({"year": 2019}, "a"), ({"year": (2019, 2022), "ok": True}, "a"),
        ({"odd key": "x y"}, "b"),
    ],
)  # fmt: skip
def test_where(equals: dict[str, Any], ids: str) -> None:
    mask = equal_to(equals).mask([TABLE])
    assert "".join(np.array(list("abcd"))[mask]) == ids


@pytest.mark.parametrize(
    ("equals", "message"),
    [
        ({"sauce": "a"}, 'where sauce=: there is no field "sauce"'),
        ({"label": 3}, "where label=: label holds text and is compared with 3"),
        ({"year": "2019"}, "where year=: year holds numbers and is compared with '2019'"),
    ],
)
def test_where_refuses(equals: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        equal_to(equals).mask([TABLE])


@pytest.mark.parametrize("expression", ['source != "x"', 'source in ["x", None]', 'not "x" in source', '"x" < source'])
def test_a_comparison_with_a_column_that_no_row_has_is_refused(expression: str) -> None:
    plain = Corpus.from_examples([Example("p", "r", str(row), metadata={"origin": "x"}) for row in range(2)]).table
    asked = compile_filter(expression)
    with pytest.raises(ConfigError, match=r"no example has a source.*such as origin\.$"):
        asked.mask([plain, plain], ["origin"])
    assert len(asked.mask([plain, TABLE])) == 6  # one row that has it will do
    assert len(asked.mask([plain[:0]])) == 0
    assert compile_filter("source is None").mask([plain]).all()
