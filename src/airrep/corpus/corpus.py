"""Examples and ordered, immutable corpora of them.

A corpus is a pyarrow table with the columns ``id``, ``prompt``, ``response``, ``label``, ``source``,
``metadata`` and ``chat`` (JSON text), and ``place``, all ``large_string``. Rows keep the order of the file; ids are
unique.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import pyarrow as pa

from airrep.arrays import Rows, compute
from airrep.corpus.fields import field_values
from airrep.corpus.records import HASH, RESERVED, Fields, Reading, Schema, checked, content_hash, encode_chat
from airrep.corpus.schemas.conversations import MESSAGES, REJECTED, sides
from airrep.corpus.schemas.forms import Preferences, Turns
from airrep.corpus.schemas.trainers import TrainerName
from airrep.corpus.sources.files import LONGEST_LINE, open_source
from airrep.corpus.sources.tables import object_rows
from airrep.corpus.sources.textformats import RecordSource
from airrep.corpus.spans import FIELD, Spans, beside_chat, check_spans, plain_spans, span_of_record, without_span
from airrep.corpus.table import (
    COLUMNS,
    SCHEMA,
    Column,
    Skipped,
    build_table,
    checked_table,
    table_digest,
    take,
    with_all_columns,
)
from airrep.errors import ConfigError, DataError, many
from airrep.runtime.metering import OnProgress, OnRead, teller
from airrep.sparse import distinct

_BATCH_ROWS = 4096
_NO_ID = "\0"
"""Stands for "no id was given"; the empty text is a valid id."""


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt with its response, an id, and optionally label, source and metadata (JSON values).

    Without an id, the id is :attr:`content_hash`, as for records that have no id field.

    Example:
        >>> example = airrep.Example(prompt="Who won?", response="Nobody yet.", source="forum")
        >>> example.source, len(example.id)
        ('forum', 16)
    """

    prompt: str
    response: str
    id: str = _NO_ID
    label: str | None = None
    source: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    chat: Mapping[str, Any] | None = field(default=None, hash=False)
    """Input of a trainer beyond the two texts: the record's ``messages``, whose last one is the response, with
    ``tools`` and arguments of the chat ``template``; or the ``form`` of a row without a template. A preference pair
    also has its ``rejected`` response here."""
    place: str | None = field(default=None, compare=False)
    """File and line that the example was read from, such as ``train.jsonl:12``; None without a file."""
    span: Spans | None = None
    """Characters of a query's response to attribute: ``(11, 14)``, or several such pairs; None for the whole response.
    Training examples have no span."""

    def __post_init__(self) -> None:
        """Make a missing id from the texts; values that are not text are refused later, by the corpus."""
        chat, spans = without_span(self.chat)
        object.__setattr__(self, "chat", chat)
        object.__setattr__(self, "span", spans if self.span is None else plain_spans(self.span))
        if self.id == _NO_ID and isinstance(self.prompt, str) and isinstance(self.response, str):
            with suppress(UnicodeEncodeError):
                object.__setattr__(self, "id", self.content_hash)

    @property
    def content_hash(self) -> str:
        """16 hex digits of SHA-256 over prompt, one NUL byte, and response, in UTF-8."""
        return content_hash(self.prompt, self.response)

    @property
    def reading_hash(self) -> str:
        """Hash of the texts, :attr:`chat` and :attr:`span`; equal for examples that a trainer reads in the same way."""
        read = beside_chat(self.chat, self.span)
        if read is None or read == MESSAGES:
            return self.content_hash
        return content_hash(encode_chat(read), self.content_hash)

    @property
    def whole(self) -> "Example":
        """The example without its span."""
        return self if self.span is None else replace(self, span=None)

    @property
    def is_pair(self) -> bool:
        """True for a preference pair, whose ``response`` is the chosen one and whose ``chat`` has the rejected one."""
        return self.chat is not None and REJECTED in self.chat

    @property
    def sides(self) -> "tuple[Example, Example | None]":
        """The chosen and the rejected side of a pair, as examples; (itself, None) for others. DataError: it has a span.

        Example:
            >>> pair = airrep.Example("2 + 2?", "4", chat={"rejected": "5"})
            >>> [side.response for side in pair.sides]
            ['4', '5']
        """
        if not self.is_pair:
            return self, None
        if self.span is not None:
            raise DataError(
                f'example "{self.id}": is a preference pair with a span, but a span must lie in a single response. '
                "Remove the span, or ask about one of the two responses."
            )
        found = filter(None, sides(self.prompt, self.response, self.chat or {}))
        parts = [replace(self, prompt=prompt, response=said, chat=chat) for prompt, said, chat in found]
        return parts[0], parts[1]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object from which :func:`read_corpus` reads an equal example.

        Metadata keys stand beside the fields; a key with a field's name stands in an object under ``metadata``.
        """
        own = {"id": self.id, "prompt": self.prompt, "response": self.response}
        optional: dict[str, Any] = {"label": self.label, "source": self.source}
        plain = {key: value for key, value in self.metadata.items() if key not in RESERVED}
        nested = {key: value for key, value in self.metadata.items() if key in RESERVED}
        given = {key: value for key, value in optional.items() if value is not None}
        chat = beside_chat(self.chat, self.span)
        if chat is not None:
            given["chat"] = dict(chat)
        return own | given | plain | ({"metadata": nested} if nested else {})


def left_out(id_: str) -> str:
    """Return the response of an example whose texts were left out of an index."""
    return f"(text left out: {id_})"


class Corpus(Sequence[Example]):
    """Ordered, immutable examples with unique ids.

    ``Corpus(table)`` trusts the values of a table with the schema :data:`SCHEMA`; ``from_table`` checks them. Two
    corpora are equal if they hold the same rows in the same order.

    Attributes:
        table: the rows as a pyarrow Table.
        skipped: records that ``skip_invalid`` left out while reading; empty if the corpus was not read from records.
        forms: number of records read in each form, such as "messages"; empty if not read from records.
        apart: files of a folder that were not read, each with the reason; empty if not read from a folder.
        reading: options and forms that records were read with; empty if not read from records. Parts keep it, without
            the number of earlier turns.

    Example:
        >>> corpus = airrep.Corpus.from_records([{"prompt": "Who won?", "response": "Nobody yet."}])
        >>> len(corpus), corpus[0].response
        (1, 'Nobody yet.')
    """

    def __init__(
        self,
        table: pa.Table,
        *,
        skipped: Skipped | None = None,
        forms: Mapping[str, int] | None = None,
        apart: Sequence[str] = (),
        reading: Reading | None = None,
    ) -> None:
        table = with_all_columns(table)
        if table.schema.names != list(COLUMNS) or table.schema.types != SCHEMA.types:
            found = ", ".join(f"{column.name} ({column.type})" for column in table.schema)
            raise DataError(
                f"corpus table: has the columns {found}, but must have {', '.join(COLUMNS)}, all of type "
                "large_string. Use Corpus.from_table, which converts types."
            )
        self.table = table
        self.skipped = Skipped() if skipped is None else skipped
        self.forms = dict(forms or {})
        self.apart = tuple(apart)
        self.reading = Reading() if reading is None else reading

    @classmethod
    def from_examples(cls, examples: Iterable[Example]) -> Self:
        """Return a corpus of examples; DataError names an example that is not valid, or two with the same id."""
        table, *_ = build_table(RecordSource("examples", "example", enumerate(examples, 1)), _fields)
        return cls(table)

    @classmethod
    def from_table(cls, table: pa.Table) -> Self:
        """Return a corpus of a table with the columns of :data:`SCHEMA`, checked; it shares memory where possible.

        DataError: a column is missing or unknown, a row is not valid, or two have the same id.
        """
        return cls(checked_table(table))

    @classmethod
    def from_records(
        cls,
        records: Iterable[Mapping[str, Any]],
        *,
        prompt_field: str | None = None,
        response_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        source_field: str | None = None,
        turns: Turns | None = None,
        preferences: Preferences = "chosen",
        trained_with: TrainerName | None = None,
        skip_invalid: bool = False,
    ) -> Self:
        """Return a corpus of mappings, such as a list of dicts or a Hugging Face ``Dataset``.

        Fields and errors are those of :func:`read_corpus`; errors give the number of the record, from 1 on.

        Raises:
            ConfigError: *records* is something else, such as a table.
        """
        if isinstance(records, str | bytes | Mapping) or hasattr(records, "__arrow_c_stream__"):
            raise ConfigError(
                f"records: must be a list of dicts, not a {type(records).__name__}. Pass table.to_dict('records'), "
                "for example. Functions such as airrep.build_index also accept a table, a path or one dict."
            )
        schema = Schema(
            prompt_field, response_field, id_field, label_field, source_field, turns, preferences, trained_with
        )
        return cls(**_read(RecordSource("records", "record", enumerate(object_rows(records), 1)), schema, skip_invalid))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, row: int) -> Example: ...
    @overload
    def __getitem__(self, row: slice) -> "Corpus": ...
    def __getitem__(self, row: int | slice) -> "Example | Corpus":
        """Return one example, or the corpus of a slice, which shares memory if its step is 1."""
        if isinstance(row, slice):
            start, stop, step = row.indices(len(self))
            if step == 1:
                part = self.table.slice(start, max(stop - start, 0))
                return Corpus(part, reading=replace(self.reading, earlier_turns=0))
            return self.take(np.arange(start, stop, step))
        number = range(len(self))[row]
        return _example(*(self.table.column(column)[number].as_py() for column in range(len(COLUMNS))))

    def without(self, rows: Collection[int]) -> "Corpus":
        """Return the corpus without the given rows; itself if there are none."""
        return self.take([row for row in range(len(self)) if row not in rows]) if rows else self

    def take(self, rows: Sequence[int] | Rows) -> "Corpus":
        """Return the corpus of the given rows, in the given order; *rows* may also be one truth value for each row.

        IndexError: a row is not between 0 and n − 1. DataError: a row is given twice or is not an integer.
        """
        given = np.asarray(rows) if len(rows) else np.empty(0, np.int64)
        wanted = np.flatnonzero(given) if given.dtype == np.bool_ and given.shape == (len(self),) else given
        if wanted.ndim != 1 or not np.issubdtype(wanted.dtype, np.integer):
            raise DataError("rows: must be row numbers, or one True or False for each row. Pass a list such as [0, 2].")
        outside = wanted[(wanted < 0) | (wanted >= len(self))]
        if len(outside):
            raise IndexError(f"row {outside[0]} does not exist: the corpus has {many(len(self), 'example')}")
        if len(distinct(wanted)) < len(wanted):
            raise DataError("rows: a row number occurs twice; a corpus holds each example once. Remove the repeats.")
        return Corpus(take(self.table, wanted.astype(np.int64)), reading=replace(self.reading, earlier_turns=0))

    def __iter__(self) -> Iterator[Example]:
        for batch in self.table.to_batches(max_chunksize=_BATCH_ROWS):
            yield from map(_example, *(column.to_pylist() for column in batch.columns))

    def to_jsonl(self, path: str | Path) -> None:
        """Write a file that :func:`read_corpus` reads back, one JSON object a line."""
        with Path(path).open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(json.dumps(example.to_dict()) + "\n" for example in self)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (64 hex digits) over all rows in order; it does not depend on the file that they came from."""
        return table_digest(self.table)

    @cached_property
    def content_hashes(self) -> np.ndarray:
        """:attr:`Example.content_hash` of each row, ``(n,)`` of dtype ``S16``."""
        batches = self.table.select(["prompt", "response"]).to_batches(max_chunksize=_BATCH_ROWS)
        pairs = (zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
        found = np.array([content_hash(*pair) for part in pairs for pair in part], dtype="S16")
        found.flags.writeable = False
        return found

    @property
    def ids(self) -> Column:
        """The ids in row order (large_string)."""
        return self.table["id"]

    def places_of(self, place: str) -> list[int]:
        """Return the rows that were read at a place, such as ``train.jsonl:12``; a record may give several examples."""
        found = compute.equal(self.table["place"], pa.scalar(place, pa.large_string()))
        return compute.indices_nonzero(found).to_pylist()

    def values(self, field: str, known: Iterable[str] = (), where: str = "field") -> list[str | None]:
        """Return one field of every example as text: numbers and other JSON values as JSON; None if missing.

        *field* is id, prompt, response, label, source or a key of the metadata; ``meta.lang`` is a part of an object.
        ConfigError (its message begins with *where*): no example has the field, and it is not in *known*.
        """
        return field_values([self.table], field, known, where=where)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Corpus):
            return NotImplemented
        return self is other or (len(self) == len(other) and self.fingerprint == other.fingerprint)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Corpus({many(len(self), 'example')})"


def _example(key: str, prompt: str, response: str, *rest: str | None) -> Example:
    """Return the example of one row, in the order of :data:`COLUMNS`; the place may be missing."""
    label, source, metadata, chat, place = (*rest, None)[:5]
    facts = json.loads(metadata) if metadata else {}
    return Example(prompt, response, key, label, source, facts, json.loads(chat) if chat else None, place)


def _fields(example: object) -> tuple[str, list[Fields], int]:
    """Return the form "example" and the row of one example, as :meth:`Schema.parse` returns rows of records."""
    if not isinstance(example, Example):
        raise DataError(
            f"this item is a {type(example).__name__}; it must be an airrep.Example. Use Corpus.from_records for dicts."
        )
    return "example", [_row(example)], 0


def given_id(example: Example) -> str | None:
    """Return an example's id; None if the id is the hash of the texts, which a corpus numbers where texts repeat."""
    texts = isinstance(example.prompt, str) and isinstance(example.response, str)
    made = isinstance(example.id, str) and len(example.id) == HASH and texts
    return None if made and example.id == example.content_hash else example.id


def _row(one: Example, *, blank: bool = False) -> Fields:
    if one.id is None:
        raise DataError("id is null; text is expected.")
    chat = beside_chat(one.chat, check_spans(one.response, one.span) if one.span is not None else None)
    return checked(one.prompt, one.response, given_id(one), one.label, one.source, one.metadata, chat, blank=blank)


def plain_example(example: Example) -> Example:
    """Return an example as a corpus would hold it; the response may be blank. DataError: a field is not valid."""
    row = _row(example, blank=True)
    return _example(row.id or content_hash(row.prompt, row.response), row.prompt, row.response, *row[3:])


def have_spans(examples: Sequence[Example]) -> bool:
    """Return True if some example has a span."""
    if not isinstance(examples, Corpus):
        return any(one.span is not None for one in examples)
    chats = examples.table["chat"]
    if chats.null_count == len(chats):  # as in most corpora, which may be large
        return False
    rows = compute.indices_nonzero(compute.match_substring(chats, f'"{FIELD}":')).to_pylist()
    return any(examples[row].span is not None for row in rows)


def wholes(examples: Sequence[Example]) -> Sequence[Example] | None:
    """Return the examples without their spans; None if no example has a span."""
    return [one.whole for one in examples] if have_spans(examples) else None


def with_spans(queries: Corpus) -> Corpus:
    """Return queries with their field ``span``, which is metadata in training data, as :attr:`Example.span`.

    DataError: a value is not a span of its response; the message has the query's place.
    """
    names = queries.table["metadata"]
    if names.null_count == len(names):
        return queries
    if not compute.any(compute.match_substring(names, f'"{FIELD}":')).as_py():
        return queries
    rows = [_with_span(one, number) for number, one in enumerate(queries, 1)]
    return _rewritten(queries, {"metadata": [row.metadata for row in rows], "chat": [row.chat for row in rows]})


def of_answers(queries: Corpus) -> Corpus:
    """Return queries of which only the answers count, whatever a trainer learns of conversations: see :func:`asked`."""
    chats, mark = queries.table["chat"], '"learn":"all"'
    if not compute.any(compute.match_substring(chats, mark)).as_py():
        return queries
    # The end of nearly all such chats, which may be many; an object inside of a chat ends before the chat does.
    found = compute.replace_substring_regex(chats, f",{mark}}}$", "}").to_pylist()
    for row, chat in enumerate(found):
        if chat is not None and mark in chat:
            found[row] = _row(asked(queries[row])).chat
    return _rewritten(queries, {"chat": found})


def asked(query: Example) -> Example:
    """Return a query of which only the answer counts: training rows may be learnt whole, but a query is its answer."""
    chat = query.chat or {}
    if chat.get("learn") != "all":
        return query
    return replace(query, chat={name: part for name, part in chat.items() if name != "learn"})


def _rewritten(queries: Corpus, columns: Mapping[str, Sequence[str | None]]) -> Corpus:
    table = queries.table
    for name, values in columns.items():
        table = table.set_column(COLUMNS.index(name), SCHEMA.field(name), pa.array(values, pa.large_string()))
    reading = {"skipped": queries.skipped, "forms": queries.forms, "apart": queries.apart, "reading": queries.reading}
    return Corpus(table, **reading)  # type: ignore[arg-type]


def _with_span(query: Example, number: int) -> Fields:
    """Return the row of a query; a span in its metadata moves into its chat column."""
    rest = {name: value for name, value in query.metadata.items() if name != FIELD}
    given = query.metadata.get(FIELD)
    if given is None:
        return _row(query)
    try:
        return _row(replace(query, metadata=rest, span=check_spans(query.response, span_of_record(given))))
    except DataError as error:
        raise DataError(f"{query.place or f'query {number}'}: {error}") from None


def read_corpus(
    path: str | PathLike[str],
    *,
    prompt_field: str | None = None,
    response_field: str | None = None,
    id_field: str | None = None,
    label_field: str | None = None,
    source_field: str | None = None,
    turns: Turns | None = None,
    preferences: Preferences = "chosen",
    trained_with: TrainerName | None = None,
    split: str | None = None,
    config: str | None = None,
    skip_invalid: bool = False,
    longest_line: int = LONGEST_LINE,
    progress: OnProgress | None = None,
) -> Corpus:
    """Read a JSONL, JSON, CSV, TSV, Parquet or Arrow file, also as ``.gz`` or ``.zst``, a folder of them, or a dataset.

    Args:
        path: the file, a folder of such files or of texts, a folder of ``datasets`` or Lance, or the Hub id of a
            dataset such as "org/name".
        prompt_field: name of the prompt's field; by default the first accepted name that is there (docs/data.md).
        response_field: name of the response's field; by default the first accepted name that is there.
        id_field: name of the id's field, by default "id". A record without an id gets the hash of its texts.
        label_field: name of the label's field, by default "label".
        source_field: name of the source's field, by default "source".
        turns: assistant turns of a conversation that are examples: its "last" (the default), or "all".
        preferences: examples of a preference pair: the "chosen" response, "both" apart, or the "pairs" as one example.
        trained_with: the trainer whose way of reading rows is used (docs/trainers.md): "trl", "axolotl",
            "llamafactory", "ms-swift" or "open-instruct". It decides which fields are joined and which tokens count.
        split: name of the split, in a dataset or a folder with splits; by default "train".
        config: name of the config of a dataset on the Hub.
        skip_invalid: leave out invalid records and count them in ``skipped``; otherwise the first one is an error.
        longest_line: largest size, in MiB, of a line or of a record of a text file; it bounds the memory in use.
        progress: called every 4,096 records with the number of records read, and None for the unknown total.

    Raises:
        DataError: the file is missing, empty or damaged, or a record is not valid; the message has the place.
        ConfigError: *longest_line* is below 1, the data have no splits or configs, or a choice is unknown.
        MissingExtraError: the data are a dataset, and the package ``datasets`` is not installed.

    Example:
        >>> corpus = airrep.read_corpus("train.jsonl")
        >>> corpus[0].prompt
        'question e 0'
    """
    schema = Schema(prompt_field, response_field, id_field, label_field, source_field, turns, preferences, trained_with)
    if longest_line < 1:
        raise ConfigError(f"longest_line={longest_line}: must be 1 or more, in MiB.")
    source = open_source(path, split, config, longest_line)
    if progress:
        source = source._replace(records=_counted(source.records, teller(progress, "reading")))
    return Corpus(**_read(source, schema, skip_invalid), apart=source.apart)


def _counted(records: Iterator[tuple[int, object]], tell: OnRead) -> Iterator[tuple[int, object]]:
    """Yield the records, reporting their number to *tell* now and then."""
    for count, record in enumerate(records, 1):
        yield record
        if count % _BATCH_ROWS == 0:
            tell(count, None)


def _read(source: RecordSource, schema: Schema, skip_invalid: bool) -> dict[str, Any]:
    """Return the arguments of :class:`Corpus` for a source; DataError if it holds no valid record."""
    table, skipped, forms, earlier = build_table(source, schema.parse, skip_invalid=skip_invalid)
    if not len(table):
        why = "holds no valid record" if skipped.count else "holds no records"
        first = f" First error: {skipped.messages[0]}" if skipped.count else ""
        raise DataError(f"{source.name}: {why}. Check that it is the right file.{first}")
    for column, given in (("label", schema.label_field), ("source", schema.source_field)):
        if given is not None and table[column].null_count == len(table):
            raise DataError(
                f'{source.name}: no record has a value in the {column} field "{given}". Check {column}_field.'
            )
    hub = () if source.hub is None else (source.hub,)
    reading = Reading(schema.chosen, tuple(sorted(forms)), hub=hub, earlier_turns=earlier)
    return {"table": table, "skipped": skipped, "forms": forms, "reading": reading}
