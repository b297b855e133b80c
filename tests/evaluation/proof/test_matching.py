"""Random rows: of the named ones' sources and lengths, and never what these say."""

import numpy as np

from airrep.corpus.corpus import Example
from airrep.evaluation.proof.trial import Matching


def _others() -> list[Example]:
    return [Example("p", f"{n:04d} " + "x" * n, f"e{n}", source="web" if n % 2 else "book") for n in range(400)]


def test_draws_match_source_and_length() -> None:
    named = [Example("p", "y" * length, str(length), source="web") for length in (20, 100, 300)]
    matching = Matching(named, _others())
    assert matching.enough
    drawn = [matching.draw(np.random.default_rng(seed)) for seed in range(20)]
    for rows in drawn:
        assert len(set(rows.tolist())) == 3
        assert all(row % 2 for row in rows)
        assert all(abs(row - length) <= 50 for row, length in zip(rows, (15, 95, 295), strict=True))
    assert len({tuple(rows.tolist()) for rows in drawn}) > 10
    assert matching.overlap == 3 / 200


def test_a_source_that_other_draws_used_up_takes_any() -> None:
    others = [
        *(Example("p", f"{n}", f"e{n}") for n in range(40)),
        *(Example("p", f"r{n}", f"r{n}", source="r") for n in range(5)),
    ]
    named = [*(Example("p", f"n{n}", f"n{n}") for n in range(40)), Example("p", "rare", "rare", source="r")]
    assert len(set(Matching(named, others).draw(np.random.default_rng(0)).tolist())) == 41


def test_a_source_with_few_others_takes_any_and_texts_of_named_rows_are_passed_over() -> None:
    others = [*_others()[:20], *(Example("p", "same", f"s{n}", source="rare") for n in range(5))]
    matching = Matching([Example("p", "same", str(n), source="rare") for n in range(3)], others)
    assert all(matching.draw(np.random.default_rng(seed)).max() < 20 for seed in range(10))
    assert matching.overlap == 3 / 20
    assert not Matching([Example("p", f"r{n}", str(n)) for n in range(20)], others[:20]).enough
