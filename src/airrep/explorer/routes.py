"""Routes of the API: what each asks, what answers it, an example of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from airrep.explorer import answers, questions, requests
from airrep.explorer.explorer import Explorer
from airrep.explorer.requests import DEEPEST, PAGE, ListRequest, Paged, Request, RowsRequest, TopRequest

Answering = Callable[..., Mapping[str, Any]]
QUERY = {"prompt": "Can I eat zucchini raw?", "response": "No, zucchini should be cooked before eating."}


class Pages(NamedTuple):
    """How a long answer is told a part at a time."""

    items: str
    """The list of the answer that grows."""
    split: Callable[[Any], Iterator[Request]]
    """The questions for its parts, in order; the first without items ends it."""


class Route(NamedTuple):
    """A question that can be asked, by either door."""

    model: type[Request]
    answer: type[answers.Told]
    answering: Answering
    example: Mapping[str, Any]
    """A body of it; rows of an example are there in every index."""
    pages: Pages | None = None
    together: Callable[[Explorer, Sequence[Any]], object] | None = None
    """What serves several questions that wait at the same time."""

    @property
    def about(self) -> str:
        """What it answers, in a line."""
        return (self.answering.__doc__ or "").partition("\n")[0]


def _by_page(asked: Paged) -> Iterator[Request]:
    stop = min(asked.start + asked.count, DEEPEST)
    for start in range(asked.start, stop, PAGE):
        yield asked.model_copy(update={"start": start, "count": min(PAGE, stop - start)})


def _of_queries(asked: ListRequest) -> Iterator[Request]:
    for start in count(asked.start, questions.LISTED_QUERIES):
        yield asked.model_copy(update={"start": start})


def _of_rows(asked: RowsRequest) -> Iterator[Request]:
    for start in range(0, len(asked.rows), PAGE):
        yield asked.model_copy(update={"rows": asked.rows[start : start + PAGE]})


ROUTES: Mapping[str, Route] = {
    "count": Route(requests.Filters, answers.Count, questions.count, {"where": "source == 'creak'"}),
    "queries": Route(
        ListRequest, answers.Queries, questions.list_queries, {"text": "zucchini"}, Pages("queries", _of_queries)
    ),
    "top": Route(
        TopRequest,
        answers.Top,
        questions.top,
        {"query": QUERY, "count": 3},
        Pages("hits", _by_page),
        questions.rank_together,
    ),
    "copied": Route(requests.CopiedRequest, answers.Copied, questions.copied_words, {"query": QUERY}),
    "groups": Route(requests.GroupRequest, answers.Groups, questions.groups, {"query": QUERY, "by": "source"}),
    "what-if": Route(requests.WhatIfRequest, answers.WhatIf, questions.what_if, {"query": QUERY, "rows": [0, 1]}),
    "prove": Route(requests.WhatIfRequest, answers.Prove, questions.prove, {"query": QUERY, "rows": [0, 1]}),
    "summary": Route(requests.SummaryRequest, answers.Summary, questions.summary, {}),
    "select": Route(
        requests.SelectRequest,
        answers.Select,
        questions.select,
        {"queries": [QUERY], "total": 5},
        Pages("picks", _by_page),
    ),
    "clean": Route(
        requests.CleanRequest,
        answers.Clean,
        questions.clean,
        {"kinds": ["duplicate"], "count": 5},
        Pages("findings", _by_page),
    ),
    "example": Route(
        requests.ExampleRequest,
        answers.Example,
        questions.example,
        {"row": 1, "query": QUERY},
        together=questions.rank_together,
    ),
    "tokens": Route(requests.TokensRequest, answers.Tokens, questions.tokens, {"row": 1, "query": QUERY}),
    "rows": Route(RowsRequest, answers.Rows, questions.rows, {"rows": [0, 1]}, Pages("rows", _of_rows)),
}
"""By path below /api/v1."""
