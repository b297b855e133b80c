"""Requests that the page and other programs may make, each checked as one model."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from airrep.answers.clean import KINDS, Kind
from airrep.errors import ConfigError

TEXT = 100_000
"""Characters of a query's text, at most."""
DEEPEST = 1000
"""Rank of the last hit that can be asked for."""
PAGE = 50
"""Hits of one page, at most."""
MOST_ROWS = 10_000
"""Rows in a basket, at most."""
MOST_ASKED = 100
"""Queries of one selection, at most."""

Text = Annotated[str, StringConstraints(max_length=TEXT)]
Short = Annotated[str, StringConstraints(max_length=2000)]
Row = Annotated[int, Field(ge=0)]
Cite = Annotated[bool, Field(description="Also return how to cite each example.")]
Chosen = Annotated[dict[Short, Annotated[list[Short], Field(max_length=500)]], Field(max_length=20)]


class Request(BaseModel):
    """Rules that all requests share: unknown fields and wrong types are refused."""

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


class Paged(Request):
    """A part of a long answer."""

    start: Annotated[int, Field(ge=0, lt=DEEPEST)] = 0
    count: Annotated[
        int, Field(ge=1, le=DEEPEST, description=f"At most {PAGE}, unless the answer is requested as lines.")
    ] = 20

    @property
    def page(self) -> slice:
        """The part; ConfigError if it is too long for one answer."""
        if self.count > PAGE:
            raise ConfigError(
                f"count: is {self.count}, but one answer holds at most {PAGE}. Request fewer, or request lines "
                "(application/x-ndjson)."
            )
        return slice(self.start, self.start + self.count)


class TopRequest(Filters, Paged):
    """Some ranks of the examples that help a query most, or least."""

    query: QueryRef
    index: Row = 0
    least: bool = False
    cite: Cite = False


class CopiedRequest(Filters):
    """A question for the parts of a query's response that stand word for word in the examples that count."""

    query: QueryRef
    index: Row = 0


class GroupRequest(Request):
    """Group scores of a field's values."""

    query: QueryRef
    by: Short
    index: Row = 0


class WhatIfRequest(Request):
    """A basket of rows, ids, all rows with some values and all that fulfil a filter: what leaving it out changes, or
    the command that proves it."""

    query: QueryRef
    index: Row = 0
    rows: Annotated[list[Row], Field(max_length=MOST_ROWS)] = []
    ids: Annotated[list[Short], Field(max_length=MOST_ROWS)] = []
    facets: Chosen = {}
    where: Short = ""


class ExampleRequest(Request):
    """One training example whole, by its row, or by its id or place; and the queries that it helps."""

    row: Row | None = None
    id: Short | None = None
    index: Row = 0
    query: QueryRef | None = None
    cite: Cite = False


class TokensRequest(Request):
    """One training example whose score for a query is told by pairs of words."""

    query: QueryRef
    row: Row
    index: Row = 0


class SummaryRequest(Request):
    """Properties that the first examples of all queries of the file share."""

    index: Row = 0


class RowsRequest(Request):
    """Beginnings of some training examples."""

    rows: Annotated[list[Row], Field(max_length=MOST_ROWS)]


class SelectRequest(Paged):
    """Training examples to pick: those that some query ranks highest. Without queries: those of the file."""

    queries: Annotated[list[QueryRef], Field(max_length=MOST_ASKED)] = []
    total: Annotated[int, Field(ge=1, le=DEEPEST, description="How many to pick.")] = 20
    where: Short = ""
    diversity: Annotated[
        float,
        Field(ge=0, lt=1, description="How strongly to avoid examples that are like earlier picks; 0 is not at all."),
    ] = 0.0
    drop_duplicates: bool = False
    index: Row = 0


class CleanRequest(Paged):
    """Training examples that are likely wrong, repeated or odd; harmful ones are found where a file is served."""

    kinds: Annotated[list[Kind], Field(min_length=1)] = list(KINDS)
    label: Annotated[Short, Field(description="The field that holds the label.")] = "label"
    where: Short = ""
    index: Row = 0
