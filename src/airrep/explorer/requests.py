"""Requests that the page and other programs may make, each checked as one model."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

TEXT = 100_000
"""Characters of a query's text, at most."""
DEEPEST = 1000
"""Rank of the last hit that can be asked for."""
PAGE = 50
"""Hits of one page, at most."""
MOST_ROWS = 10_000
"""Rows in a basket, at most."""

Text = Annotated[str, StringConstraints(max_length=TEXT)]
Short = Annotated[str, StringConstraints(max_length=2000)]
Row = Annotated[int, Field(ge=0)]
Chosen = Annotated[dict[Short, Annotated[list[Short], Field(max_length=500)]], Field(max_length=20)]


class Request(BaseModel):
    """What all requests share: unknown fields and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class QueryRef(Request):
    """A query: the number of one of the file, the key of one that was asked, or its texts; perhaps a better answer.

    *span* are the parts of its response that are asked about, as first and last characters; none: all of it.
    """

    number: Row | None = None
    key: Short | None = None
    prompt: Text | None = None
    response: Text | None = None
    better: Text | None = None
    span: Annotated[list[Annotated[list[Row], Field(min_length=2, max_length=2)]], Field(max_length=100)] | None = None


class Filters(Request):
    """The training examples that count; by themselves, they are counted."""

    where: Short = ""
    facets: Chosen = {}


class ListRequest(Request):
    """Queries whose texts hold some text."""

    start: Row = 0
    text: Short = ""


class TopRequest(Filters):
    """Some ranks of the examples that help a query most, or least."""

    query: QueryRef
    index: Row = 0
    least: bool = False
    start: Annotated[int, Field(ge=0, lt=DEEPEST)] = 0
    count: Annotated[int, Field(ge=1, le=DEEPEST, description=f"At most {PAGE} where no lines are asked for.")] = 20


class CopiedRequest(Filters):
    """What of a query's response stands word for word in the examples that count."""

    query: QueryRef
    index: Row = 0


class GroupRequest(Request):
    """Group scores of a field's values."""

    query: QueryRef
    by: Short
    index: Row = 0


class WhatIfRequest(Request):
    """A basket of rows, and all rows with some values: what leaving it out changes, or the command that proves it."""

    query: QueryRef
    index: Row = 0
    rows: Annotated[list[Row], Field(max_length=MOST_ROWS)] = []
    facets: Chosen = {}


class ExampleRequest(Request):
    """One training example whole, and the queries that it helps."""

    row: Row
    index: Row = 0
    query: QueryRef | None = None


class TokensRequest(Request):
    """One training example whose score for a query is told by pairs of words."""

    query: QueryRef
    row: Row
    index: Row = 0


class SummaryRequest(Request):
    """What the first examples of all queries of the file have in common."""

    index: Row = 0


class RowsRequest(Request):
    """Beginnings of some training examples."""

    rows: Annotated[list[Row], Field(max_length=MOST_ROWS)]
