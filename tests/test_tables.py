"""Every answer and result is a table: rows as dicts, a data frame, one line, and a short table in a notebook."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from worlds.made_evaluations import made_proof
from worlds.small_world import HashAttributor

import airrep
from airrep.answers.together import top_of_set
from airrep.evaluation.diagnosis import Diagnosis
from airrep.evaluation.findings import Finding
from airrep.index.results.result import Shown
from airrep.training.linear.recipe import Adapted
from airrep.training.result import TrainingResult

RECORDS = [
    {
        "id": f"e{i}",
        "prompt": f"this is the question {i // 2} <b>",
        "response": f"this is an answer of the number {i // 2}",
        "source": "ab"[i % 2],
        "label": "cd"[i % 2],
    }
    for i in range(60)
]
QUERIES = [airrep.Example(f"question {i}", f"an answer of number {i}", f"q{i}") for i in range(8)]
MADE: dict[str, Callable[[Any], Any]] = {
    "top": lambda index: index.top(QUERIES, k=2),
    "hits": lambda index: index.top(QUERIES[0], k=2),
    "groups": lambda index: index.group_scores(QUERIES, by="source"),
    "what-if": lambda index: index.what_if(QUERIES, remove=[0]),
    "select": lambda index: airrep.select(index, QUERIES, 3),
    "set": lambda index: top_of_set(index, QUERIES, k=3),
    "clean": lambda index: airrep.clean(index, kinds=["duplicate"]),
    "audit": lambda index: airrep.audit(index, [*QUERIES, airrep.Example("a b c d e f", "g h i j")]),
    "mix": lambda index: airrep.mix(index, QUERIES),
    "classify": lambda index: airrep.classify([("one", index), ("two", index)], RECORDS[:6], {"votes": (1, 3)}),
    "compare": lambda index: airrep.compare_evaluations(
        airrep.classify([("one", index), ("two", index)], RECORDS[:6], {"votes": (1, 3)})
    ),
    "proof": lambda index: made_proof(index, QUERIES),
    "diagnosis": lambda _: Diagnosis((Finding("spread", "bad", "0", "No.", "spread-over-subsets"),)),
    "adapt": lambda _: Adapted(
        Path("stack"),
        (),
        {
            "rows": [
                {"name": "sum", "lds": {"lds": 0.5, "interval": [0.4, 0.6]}, "sum_minus_it": None},
                {"name": "tfidf", "lds": {"lds": 0.3, "interval": [0.2, 0.4]}, "sum_minus_it": {"difference": 0.2}},
            ],
            "sentence": "Better than all.",
        },
    ),
    "training": lambda _: TrainingResult(
        Path("encoder"),
        {
            "best_step": 5,
            "results": {"held_out": {"trained": {"lds": 0.5, "interval": [0.4, 0.6]}, "gain": {"difference": 0.1}}},
        },
    ),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> airrep.Index:
    return airrep.build_index(RECORDS, tmp_path_factory.mktemp("tables") / "index", HashAttributor())


@pytest.mark.parametrize("name", MADE)
def test_every_result_is_a_table(name: str, index: airrep.Index) -> None:
    made = MADE[name](index)
    assert isinstance(made, Shown)
    rows, frame, page = made.to_dicts(), made.to_pandas(), made._repr_html_()
    assert rows
    assert len(frame) == len(rows)
    assert list(frame.columns) == list(rows[0])
    assert all(list(row) == list(rows[0]) for row in rows)
    assert page.count("<tr>") == 1 + min(len(rows), 20)
    assert "<b>" not in page
    assert "\n" not in repr(made)
    assert len(repr(made)) < 300
    assert repr(made).startswith(f"{type(made).__name__}(")


def test_a_table_without_a_row_has_its_columns(index: airrep.Index) -> None:
    nothing = (airrep.clean(index, kinds=["duplicate"], where="id == 'e0'"),)
    for found in nothing:
        assert found.to_dicts() == []
        assert found.to_pandas()["row"].tolist() == []
    full = (airrep.clean(index, kinds=["duplicate"]),)
    assert [list(one.to_pandas().columns) for one in full] == [list(one.columns) for one in nothing]


def test_tables_of_answers_hold_their_numbers(index: airrep.Index) -> None:
    mixed = airrep.mix(index, QUERIES)
    assert dict(mixed.to_pandas()[["source", "weight"]].values) == {one.name: one.weight for one in mixed.sources}
    audited = airrep.audit(index, QUERIES)
    assert audited.to_pandas()["verdict"].tolist() == [one.verdict for one in audited.items]
    cleaned = airrep.clean(index, kinds=["duplicate"])
    assert cleaned.to_pandas()["row"].tolist() == [one.row for one in cleaned.findings]
    judged = MADE["classify"](index)
    assert judged.to_pandas()["classify"].tolist() == [row.value for row in judged.rows]


def test_every_public_class_of_results_is_tried() -> None:
    tried = set(MADE)
    assert len(tried) >= len(_concrete(Shown)) > 12


def _concrete(base: type) -> set[type]:
    found: set[type] = set()
    for one in base.__subclasses__():
        found |= _concrete(one) | (set() if getattr(one, "__abstractmethods__", None) else {one})
    return found
