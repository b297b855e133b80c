"""Results of any kind: read back by one name, told in one line."""

from pathlib import Path
from typing import Any

import pytest
from worlds.made_evaluations import made_proof
from worlds.small_world import make_corpus

import airrep
from airrep.answers.reading import ANSWERS, read_result
from airrep.answers.together import top_of_set
from airrep.errors import ArtifactError

QUERIES = make_corpus(5, "q")
MADE = {
    "clean": lambda index: airrep.clean(index, kinds=["duplicate"]),
    "audit": lambda index: airrep.audit(index, QUERIES),
    "mix": lambda index: airrep.mix(index, QUERIES),
    "top-of-set": lambda index: top_of_set(index, QUERIES, k=2),
    "proof": lambda index: made_proof(index, QUERIES),
}
SHORT = {
    "clean": "CleanResult(0 findings, examples=50, 1 checked, 0 skipped, encoder='static', 0 not_judged)",
    "audit": "AuditResult(5 items, not_judged=0)",
    "mix": "MixResult(by='source', 2 sources, queries=5, top=",
    "top-of-set": "SetResult(2 hits, queries=5, even=0, least=False",
    "proof": "ProofResult(These rows taught it.)",
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_is_read_back_and_told_in_one_line(kind: str, index: airrep.Index, tmp_path: Path) -> None:
    answer: Any = MADE[kind](index)
    found = airrep.open(answer.save(tmp_path / "run"))
    assert type(found) is ANSWERS[kind]
    assert found == answer
    assert found.to_dict() == answer.to_dict()
    assert repr(answer).startswith(SHORT[kind])
    assert len(repr(answer)) < 120


def test_what_is_no_result_is_refused(index: airrep.Index, tmp_path: Path) -> None:
    top = index.top(QUERIES, k=2)
    assert airrep.open(top.save(tmp_path / "top")).to_dict() == top.to_dict()
    with pytest.raises(ArtifactError, match="index"):
        read_result(index.path)
