"""Finds the original records of examples in their data, with messages kept as messages."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

from airrep.corpus.corpus import Example, left_out
from airrep.corpus.inputs import CorpusLike, as_records
from airrep.corpus.records import Fields, Schema, content_hash, without_missing
from airrep.corpus.schemas.values import describe, name
from airrep.corpus.sources.files import LONGEST_LINE, open_source
from airrep.corpus.sources.textformats import RecordSource
from airrep.corpus.table import SKIPPING
from airrep.errors import DataError, caution, many

_NUMBER = re.compile(r"(?<=^.{16})-\d+$", re.DOTALL)
"""Suffix, such as ``-2``, that a corpus adds to the hash id of texts that occur again."""
_log = logging.getLogger(__name__)
DROP = "drop"
"""Decision of `airrep serve` to remove an example."""


def take_records(
    data: CorpusLike,
    examples: str | PathLike[str] | Iterable[Any],
    *,
    split: str | None = None,
    config: str | None = None,
    skip_invalid: bool = False,
    longest_line: int = LONGEST_LINE,
    **fields: Any,
) -> Iterator[dict[str, Any]]:
    """Yield the records of data that examples were read from, unchanged and in the order of the data.

    An example is a prompt and a response; the original record also has its messages, tools and rejected answers.
    The data are read once, as a stream. A record is yielded once, even if several of its turns are wanted. A warning
    gives the number of yielded records that also hold turns or answers which are not wanted.

    Args:
        data: a path or Hub id, as for :func:`airrep.read_corpus`, read with the same options; or dicts, a ``Dataset``
            or a table, as for :func:`airrep.build_index`.
        examples: a file of examples with ids, as `select`, `clean` and `mix` write; a file of hits, as `top --json`
            writes; a file of decisions of `airrep serve`, without the decisions to drop; or a sequence of examples,
            picks or ids.
        split, config, skip_invalid, longest_line, fields: as in :func:`airrep.read_corpus`.

    Raises:
        DataError: no id is given; an id is not in the data, or belongs to other texts there; or a record is not valid.

    Example:
        >>> picked = airrep.select(index, queries, count=2)
        >>> from airrep.corpus.originals import take_records
        >>> [record["id"] for record in take_records("train.jsonl", picked)]
        ['e0', 'e2']
    """
    schema = Schema(**fields)
    wanted = _Wanted(examples, longest_line)
    if isinstance(data, str | PathLike):
        source = open_source(data, split, config, longest_line)
    else:
        source = RecordSource("data", "record", enumerate(as_records(data), 1))
    partly = 0
    for number, record in source.records:
        try:
            found = None
            if isinstance(record, DataError):
                raise record
            _, found, _ = schema.parse(record)
            asked = [wanted.takes(one) for one in found]
        except DataError as error:
            if found is None and skip_invalid:
                continue
            message = f"{source.place(number)}: {error}"
            raise DataError(message.rstrip(".") + SKIPPING if record is error else message) from None
        if isinstance(record, Mapping) and any(asked):
            partly += not all(asked)
            yield without_missing(record)
    wanted.check_found(source.name)
    if partly:
        more = f"{partly:,} of the records that were taken also hold turns or answers that are not in {wanted.name}."
        caution(_log, f"{source.name}: {more}")


class _Wanted:
    """Ids of the wanted examples, each with the hash of its texts if they are known."""

    def __init__(self, examples: str | PathLike[str] | Iterable[Any], longest_line: int) -> None:
        self.name = str(examples) if isinstance(examples, str | PathLike) else "the given examples"
        self._left = dict(listed_examples(examples, longest_line))
        if not self._left:
            raise DataError(
                f"{self.name}: no example is named, so there is no record to export. Name at least one example."
            )
        self.count = len(self._left)
        self._made = {_NUMBER.sub("", key) for key in self._left}
        self._seen = Counter[str]()

    def takes(self, fields: Fields) -> bool:
        """Return True for the first example with a wanted id; DataError if its texts differ from the wanted ones."""
        key = fields.id or self._made_id(fields)
        if key not in self._left:
            return False
        texts = self._left[key]
        if texts is not None and texts != content_hash(fields.prompt, fields.response):
            raise DataError(
                f'the prompt or response of example "{key}" differs from its text in {self.name}. Give the data that '
                "the index was built from, with the same options for reading, such as --prompt-field."
            )
        del self._left[key]
        return True

    def _made_id(self, fields: Fields) -> str:
        """Return the id that a corpus gives an example without one: the hash of its texts, numbered if they repeat."""
        made = content_hash(fields.prompt, fields.response)
        if made not in self._made:  # count wanted hashes only, so that memory does not grow with the data
            return made
        self._seen[made] += 1
        return made if self._seen[made] == 1 else f"{made}-{self._seen[made]}"

    def check_found(self, data: str) -> None:
        """Raise DataError if a wanted example was not found."""
        if self._left:
            raise DataError(
                f"{data}: lacks {len(self._left):,} of the {many(self.count, 'id')} in {self.name}, such as "
                f'"{next(iter(self._left))}". Give all data of the index (a folder, if it has several files), with the '
                "options that the data were read with."
            )


def listed_examples(
    examples: str | PathLike[str] | Iterable[Any], longest_line: int = LONGEST_LINE
) -> Iterator[tuple[str, str | None]]:
    """Yield each id with the :func:`content_hash` of its texts, or None without texts; see :func:`take_records`."""
    if not isinstance(examples, str | PathLike):
        for one in examples:
            example = getattr(one, "example", one)
            if isinstance(example, str):
                yield example, None
            elif isinstance(example, Example) and example.id is not None:
                yield example.id, content_hash(example.prompt, example.response)
            else:
                raise DataError(f"examples: holds {describe(example)}, but must hold ids, or examples that have an id.")
        return
    source = open_source(examples, longest=longest_line)
    for number, record in source.records:
        if isinstance(record, DataError):
            raise DataError(f"{source.place(number)}: {record}")
        if isinstance(record, Mapping) and record.get("id") is not None:
            if record.get("decision") != DROP:
                yield str(name("id", record["id"])), _texts(record)
            continue
        hits = list(hits_in(record))
        if not hits:
            raise DataError(
                f"{source.place(number)}: has neither an id nor hits. Give a file that select, clean, mix or `top "
                "--json` wrote."
            )
        yield from hits


def hits_in(value: Any) -> Iterator[tuple[str, str | None]]:
    """Yield id and hash, as :func:`listed_examples` does, of every object ``example`` anywhere in a JSON result."""
    if isinstance(value, Mapping):
        example = value.get("example")
        if isinstance(example, Mapping) and isinstance(example.get("id"), str):
            yield example["id"], _texts(example)
    for part in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from hits_in(part)


def _texts(record: Mapping[str, Any]) -> str | None:
    prompt, response = record.get("prompt"), record.get("response")
    if not isinstance(prompt, str) or not isinstance(response, str) or response == left_out(str(record.get("id"))):
        return None
    return content_hash(prompt, response)
