"""What the rankings of several queries have in common."""

from airrep.corpus.corpus import Example
from airrep.index.results.hits import Hit
from airrep.index.results.kinds import FIRST, Summary, summarise


def hit(rank: int, row: int, deviations: float | None = None, response: str = "I cannot help you") -> Hit:
    example = Example("p", response, f"e{row}", label=f"l{row % 2}", source="forum" if row < 2 else "book")
    return Hit(rank, 10.0 - rank, row, example, deviations=deviations)


def rows(summary: Summary) -> list[tuple[int, int, int]]:
    return [(one.row, one.queries, one.best) for one in summary.first]


def test_rows_of_most_queries_come_first_then_the_greatest_mean() -> None:
    rankings = [[hit(1, 3, 2.0), hit(2, 0, 1.0)], [hit(1, 1, 9.0), hit(2, 0, 3.0)], [hit(1, 5, 4.0)]]
    found = summarise(rankings)
    assert (found.queries, found.examples) == (3, 4)
    assert rows(found) == [(0, 2, 2), (1, 1, 1), (5, 1, 1), (3, 1, 1)]
    assert found.first[0].mean == 2.0
    least = summarise([[hit(1, 3, -2.0), hit(2, 4, -9.0)]], least=True)
    assert [one.row for one in least.first] == [4, 3]


def test_shares_count_the_first_examples_alone() -> None:
    found = summarise(
        [[hit(n, n, float(50 - n), "other words of another kind" if n else "I cannot") for n in range(40)]]
    )
    assert len(found.first) == FIRST
    assert [(one.name, one.examples) for one in found.sources] == [("book", FIRST - 2), ("forum", 2)]
    assert sum(one.examples for one in found.labels) == FIRST
    assert [(one.name, one.examples) for one in found.openings] == [("other words of", FIRST - 1)]


def test_scores_stand_in_for_deviations_that_are_not_known() -> None:
    assert summarise([[hit(1, 3), hit(2, 4)]]).first[0].mean == 9.0
    assert summarise([[], []]) == Summary(2, 0, (), (), (), ())
