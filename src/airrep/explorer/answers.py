"""Models of the API's answers, which its OpenAPI document shows."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Place = tuple[str, int, int]
"""Field, start and stop of a word, in UTF-16 units."""


class Told(BaseModel):
    """The base of all answers; an answer has no other fields than its model."""

    model_config = ConfigDict(extra="forbid")


class Refused(Told):
    """The error of a question that cannot be answered."""

    error: str = Field(description="One line: where, what is wrong, what to do.")


class IndexAbout(Told):
    """One of the indexes that are served."""

    name: str
    method: str
    pool: str = Field(description="How the scores of a group's members make one.")
    units: str
    sign: str
    caution: str
    fingerprint: str


class About(Told):
    """The indexes that are served, and how to read their numbers."""

    version: str
    indexes: list[IndexAbout]
    examples: int
    fields: list[str] = Field(description="Fields whose values can be chosen, and grouped by.")
    queries: int = Field(description="Queries of the file that is served.")
    better: bool
    limits: dict[str, int]


class Value(Told):
    """A value of a field, and how many examples have it."""

    value: str
    count: int


class Field_(Told):  # noqa: N801 — the name of a field of pydantic
    """A field with its values, most frequent first."""

    name: str
    values: list[Value]


class Count(Told):
    """The number of examples that match the filters, and the counts of all field values."""

    matching: int
    facets: list[Field_]


class Beginning(Told):
    """The beginning of an example."""

    prompt: str
    response: str
    source: str | None


class Listed(Beginning):
    """The beginning of a query, with its number in the file, or its key if it was typed in."""

    number: int | None = None
    key: str | None = None
    better: str | None = None


class Queries(Told):
    """Queries whose texts contain some text."""

    asked: list[Listed]
    total: int = Field(description="How many of the file's queries hold the text.")
    queries: list[Listed]


class Text(Told):
    """An example: its texts, cut in lists, and its fields."""

    id: str
    prompt: str
    response: str
    lengths: dict[str, int] = Field(description="Characters of the texts before they were cut.")
    system: int = Field(description="UTF-16 units of the prompt that are its system prompt.")
    place: str | None = Field(description="File and line that it was read from; null where that is not known.")
    label: str | None
    source: str | None
    metadata: dict[str, Any]


class Query(Text):
    """The query, in full."""

    better: str | None
    span: list[tuple[int, int]] | None
    key: str
    number: int | None


class SameWord(Told):
    """Words that occur in both texts."""

    text: str
    score: float
    query: list[Place]
    example: list[Place]


class Reasons(Told):
    """The parts that make up a score."""

    channels: dict[str, float] = Field(default={}, description="Each channel's part; their sum is the score.")
    words: list[SameWord] = []
    answer_score: float | None = Field(default=None, description="The score for the answer, in a contrast.")
    better_score: float | None = Field(default=None, description="The score for the better answer, in a contrast.")


class Citation(Told):
    """Where a training example comes from; a field that was not recorded is null."""

    id: str
    row: int
    dataset: str | None = Field(description="File, or data set of the Hub.")
    line: int | None = Field(description="Line, row or record of it, from 1 on.")
    revision: str | None = Field(description="Commit of the Hub's data set.")
    corpus: str | None = Field(description="SHA-256 over all rows that were indexed together.")
    index: str = Field(description="Fingerprint of the index.")
    source: str | None
    license: str | None = Field(description="The licence field, as the data have it.")
    sha256: str | None = Field(description="SHA-256 over prompt, one NUL byte and response in UTF-8.")


class Hit(Text, Reasons):
    """A training example in a ranking."""

    rank: int
    row: int
    score: float = Field(description="Higher is more helpful.")
    deviations: float = Field(description="Standard deviations from the mean score of the ranked examples.")
    citation: Citation | None = Field(default=None, description="Only if it was requested.")


class Verdict(Told):
    """Verdict: does anything stand out as what taught the answer?"""

    kind: str
    text: str


class Top(Told):
    """A part of the ranking of training examples that help a query most, or least."""

    query: Query
    matching: int
    hits: list[Hit]
    more: bool
    verdict: Verdict | None


class Named(Told):
    """An example by its row and its id."""

    row: int
    id: str


class Stretch(Told):
    """A passage of a response that training examples contain word for word."""

    text: str
    words: int
    examples: int
    first: list[Named]


class Copied(Told):
    """The longest passages of a response that training examples contain word for word."""

    copied: list[Stretch]


class Pooled(Told):
    """How to read group scores."""

    better: bool = Field(description="True if scores are of an answer in place of a better one.")
    pool: str
    caution: str


class Group(Told):
    """A group with its score."""

    value: str
    size: int
    score: float
    channels: dict[str, float]


class Groups(Pooled):
    """The group scores of a field's values, most helpful first."""

    by: str
    groups: list[Group]


class WhatIf(Pooled):
    """The score of the training data for a query, with and without some examples."""

    change: float = Field(description="After minus before.")
    meaning: str = Field(description="What the change predicts, in words.")
    before: float
    after: float
    removed: int
    kept: int
    channels: dict[str, float]


class Prove(Told):
    """A command that tests with fine-tunes what some examples taught."""

    command: str
    examples: int
    ids: list[str] = Field(description="Ids for the file; empty where the command names them.")
    file: str


class NamedBeginning(Beginning):
    """The beginning of an example, with its id, label and place."""

    id: str
    label: str | None
    place: str | None


class InCommon(Told):
    """An example among the top examples of several queries."""

    row: int
    example: NamedBeginning
    queries: int
    best: int
    mean: float


class Summary(Told):
    """Properties that the top examples of all queries of the file share."""

    queries: int
    first: list[InCommon]
    shares: dict[str, list[tuple[str, int]]]


class Helped(Listed):
    """A query, and the score that an example has for it."""

    score: float


class Example(Text, Reasons):
    """A training example in full, and the queries that it helps most and least."""

    row: int
    score: float | None = None
    deviations: float | None = None
    queries: int
    helped: list[Helped]
    harmed: list[Helped]
    citation: Citation | None = Field(default=None, description="Only if it was requested.")


class Worded(Told):
    """The texts of an example, and the places of their words."""

    prompt: str
    response: str
    words: list[Place]


class Tokens(Told):
    """A score split over pairs of words."""

    query: Worded
    example: Worded
    scores: list[list[float]] = Field(description="One row for each word of the query, and one for what is not a word.")
    rest: dict[str, float] = Field(description="For each channel, the part of the score that no word has.")


class Row(Beginning):
    """The beginning of a training example."""

    row: int
    id: str


class Rows(Told):
    """Beginnings of some training examples."""

    rows: list[Row]


class Picked(Row):
    """A training example that was picked."""

    rank: int = Field(description="Its best rank over the queries.")
    query: str = Field(description="The query for which it has this rank.")
    score: float
    redundancy: float | None


class Select(Told):
    """A part of the picks, best first."""

    total: int
    picks: list[Picked]
    more: bool


class Finding(Row):
    """A reason to look at a training example."""

    kind: str
    value: float
    reason: str
    other_row: int | None
    other_id: str | None


class Clean(Told):
    """A part of the findings, the strongest of each kind first."""

    total: int
    counts: dict[str, int]
    examples: int = Field(description="How many examples were checked.")
    skipped: dict[str, str] = Field(description="Kinds that could not be checked, and why.")
    findings: list[Finding]
    more: bool
