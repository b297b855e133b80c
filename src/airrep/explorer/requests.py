"""Models that check the requests of the page and of other programs."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from airrep.answers.clean import KINDS, Kind
from airrep.errors import ConfigError

TEXT = 100_000
"""Most characters of a query's text."""
DEEPEST = 1000
"""Rank of the last hit that can be requested."""
PAGE = 50
"""Most hits on one page."""
MOST_ROWS = 10_000
"""Most rows in a basket (the set of examples for a what-if or proof)."""
MOST_ASKED = 100
"""Most queries of one selection."""

Text = Annotated[str, StringConstraints(max_length=TEXT)]
Short = Annotated[str, StringConstraints(max_length=2000)]
Row = Annotated[int, Field(ge=0)]
Cite = Annotated[bool, Field(description="Also return how to cite each example.")]
Total = Annotated[int, Field(ge=1, le=DEEPEST, description="How many to pick.")]
Diversity = Annotated[
    float,
    Field(ge=0, lt=1, description="How strongly to avoid examples that are like earlier picks; 0 is not at all."),
]
Chosen = Annotated[dict[Short, Annotated[list[Short], Field(max_length=500)]], Field(max_length=20)]


class Request(BaseModel):
    """Rules that all requests share: unknown fields and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class QueryRef(Request):
    """A query: its number in the file, its key if it was typed in before, or its texts; optionally a better answer.

    *span* selects parts of the response as pairs of start and end (excluded) characters; an empty list selects all.
    """

    number: Row | None = None
    key: Short | None = None
    prompt: Text | None = None
    response: Text | None = None
    better: Text | None = None
    span: Annotated[list[Annotated[list[Row], Field(min_length=2, max_length=2)]], Field(max_length=100)] | None = None


class Filters(Request):
    """Filters of training examples; all must hold."""

    where: Short = ""
    facets: Chosen = {}


class ListRequest(Request):
    """A search for queries whose texts contain some text."""

    start: Row = 0
    text: Short = ""


class Paged(Request):
    """A part of a long answer."""

    start: Annotated[int, Field(ge=0, lt=DEEPEST)] = 0
    count: Annotated[
        int, Field(ge=1, le=DEEPEST, description=f"At most {PAGE}, unless the answer is requested as lines.")
    ] = 20

    @property
    def page(self) -> slice:
        """The part as a slice; ConfigError if it is too long for one answer."""
        if self.count > PAGE:
            raise ConfigError(
                f"count: is {self.count}, but one answer holds at most {PAGE} items. Lower count, or send the header "
                "Accept: application/x-ndjson to get one item a line."
            )
        return slice(self.start, self.start + self.count)


class TopRequest(Filters, Paged):
    """A part of the ranking of training examples that help a query most, or least."""

    query: QueryRef
    index: Row = 0
    least: bool = False
    cite: Cite = False


class CopiedRequest(Filters):
    """Passages of a query's response that training examples matching the filters contain word for word."""

    query: QueryRef
    index: Row = 0


class GroupRequest(Request):
    """Group scores of a field's values."""

    query: QueryRef
    by: Short
    index: Row = 0


class WhatIfRequest(Request):
    """The effect of leaving out examples, or the command that proves it. The examples are given by rows, by ids, by
    values of fields and by a filter, together."""

    query: QueryRef
    index: Row = 0
    rows: Annotated[list[Row], Field(max_length=MOST_ROWS)] = []
    ids: Annotated[list[Short], Field(max_length=MOST_ROWS)] = []
    facets: Chosen = {}
    where: Short = ""


class ExampleRequest(Request):
    """One training example in full, by its row, or by its id or place; and the queries that it helps."""

    row: Row | None = None
    id: Short | None = None
    index: Row = 0
    query: QueryRef | None = None
    cite: Cite = False


class TokensRequest(Request):
    """The score of one training example for a query, split over pairs of words."""

    query: QueryRef
    row: Row
    index: Row = 0


class SummaryRequest(Request):
    """Properties that the top examples of all queries of the file share."""

    index: Row = 0


class RowsRequest(Request):
    """Beginnings of some training examples."""

    rows: Annotated[list[Row], Field(max_length=MOST_ROWS)]


class SelectRequest(Paged):
    """A selection of training examples that some query ranks highest. Without queries, the file's queries are used."""

    queries: Annotated[list[QueryRef], Field(max_length=MOST_ASKED)] = []
    total: Total = 20
    where: Short = ""
    diversity: Diversity = 0.0
    drop_duplicates: bool = False
    index: Row = 0


class CleanRequest(Paged):
    """A search for training examples that are likely wrong, repeated, odd or, with a file of queries, harmful."""

    kinds: Annotated[list[Kind], Field(min_length=1)] = list(KINDS)
    label: Annotated[Short, Field(description="The field that holds the label.")] = "label"
    where: Short = ""
    index: Row = 0
