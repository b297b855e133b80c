"""Rows of an index on disk: shards, examples, filters, ids, groups."""

import operator
import shlex
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa

from airrep.arrays import Encoded, Features, Mask, Rows, compute, stack_rows
from airrep.corpus.corpus import Example
from airrep.corpus.fields import TEXT_FIELDS, field_values, keys_of, shown_value
from airrep.corpus.filters import compile_filter, equal_to
from airrep.corpus.records import Reading, Schema
from airrep.corpus.schemas.conversations import MESSAGES
from airrep.corpus.table import Column
from airrep.errors import BESIDE, ArtifactError, ConfigError, check_unicode, escaped, many, near, nearest
from airrep.index.shards import SHARD, KeptChannel, Kind, Shard, Sieve, id_keys, reading
from airrep.runtime.artifacts import (
    MANIFEST,
    as_written,
    check_digests,
    check_file,
    check_sizes,
    fetched,
    file_digest,
    json_digest,
    read_manifest,
)
from airrep.runtime.remote.places import Anchored
from airrep.scoring.groups import Groups
from airrep.sparse import distinct

if TYPE_CHECKING:
    from airrep.scoring.blocks import Block

KIND = "index"
_VALUES = 5
"""Most values of a field that an error lists."""
PACKAGES = "method_packages"
"""Entry of a manifest: the packages that provide the method, unless airrep does."""
READING = "reading"
"""Entry of a manifest: how records were read for the build, unless in the usual way."""
TEXTS = "texts"
"""Entry of a manifest: false if the texts were left out."""
RENDERED = "rendered"
"""Entry of a manifest without texts: :attr:`IndexRows.rendered`."""
RENDERED_ROWS = 64
"""Rows that are read to learn how all rows are rendered."""
DATA = (".jsonl", ".csv", ".parquet")
"""Suffixes of files by which a folder of data is recognised."""

RowsLike = np.ndarray | Iterable[int] | Iterable[str] | str
GroupsLike = str | Groups | Mapping[str, RowsLike] | Sequence[RowsLike]


def _check_manifest(manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest that no build wrote; any exception may be raised."""
    rows = 0
    for shard in manifest["shards"]:
        name, start, count = shard["name"], shard["start"], shard["rows"]
        whole = type(start) is type(count) is int and start == rows and count > 0
        if not whole or not isinstance(shard["digest"], str) or f"shards/{name}/{SHARD}" not in manifest["files"]:
            raise ValueError
        rows += count
    texts = ("method", "attributor", *(("deleted",) if manifest["deleted"] is not None else ()))
    if type(manifest["generation"]) is not int or manifest["rows"] != rows or rows == 0 or not manifest["channels"]:
        raise ValueError
    if not all(isinstance(manifest[name], str) for name in texts):
        raise TypeError
    for one in (KeptChannel(**entry) for entry in manifest["channels"]):
        if not isinstance(one.name, str) or one.kind not in get_args(Kind) or type(one.dimension) is not int:
            raise TypeError
        if one.dimension < 0:
            raise ValueError
    if manifest["deleted"] is not None and manifest["deleted"] not in manifest["files"]:
        raise ValueError
    kinds = {"settings": dict, "request": dict, "corpora": list, "fields": list}
    whole = all(isinstance(manifest[name], kind) for name, kind in kinds.items())
    if not whole or not all(isinstance(name, str) for name in manifest["fields"]):
        raise TypeError
    for corpus in manifest["corpora"]:
        if not isinstance(corpus["fingerprint"], str) or type(corpus["rows"]) is not int:
            raise TypeError


def refuse_earlier(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise an error for an index that an earlier version built: it says how to build the index again."""
    if "layout" in manifest and "channels" not in manifest:
        method = "" if manifest.get("method") == "channels" else f" --method {manifest.get('method')}"
        raise ArtifactError(
            f"{path}: was built by an earlier version; build it again: "
            f"airrep index DATA --out {shlex.quote(str(path))}{method} --replace"
        )


def stacked(parts: Sequence[Encoded]) -> Encoded:
    """Stack the features of several parts of a corpus, channel by channel."""
    found: dict[str, Features | None] = {}
    for channel in parts[0]:
        some = [features for part in parts if (features := part[channel]) is not None]
        found[channel] = stack_rows(some) if some else None
    return found


def _refuse_data(path: Path) -> None:
    """Raise an error if *path* holds data instead of an index: it says how to build an index of them."""
    if path.name == MANIFEST and path.is_file():
        raise ArtifactError(f"{path}: is a file inside an index. Give the folder {path.parent}")
    if path.is_file() or (not (path / MANIFEST).exists() and any(one.suffix in DATA for one in path.glob("*"))):
        made = f"airrep index {shlex.quote(str(path))} --out runs/index"
        raise ArtifactError(f"{path}: holds data, not an index. Build one first: {made}")


class IndexRows:
    """The stored part of an index: examples with their features; no model is needed.

    Rows number the training examples in the order in which they were added. Deleting examples does not change the
    numbers of the others, until the index is compacted. Files are read only when needed, as memory maps, so memory
    does not grow with the index.
    """

    def __init__(self, path: str | Path, *, before: "IndexRows | None" = None) -> None:
        """Open the rows of an index; *before* is an earlier opening, whose unchanged parts are not read again.

        Raises:
            ArtifactError: the index is unfinished, of a newer format, or lacks files; or *path* holds something else.
        """
        self._place = Anchored.of(fetched(path))
        self._digest = file_digest(self.path / MANIFEST) if (self.path / MANIFEST).is_file() else None
        self._known_shards: dict[str, Shard] = {}
        """Shards of an earlier opening, whose files may be mapped already."""
        self.manifest: dict[str, Any]
        if before is not None and before._digest == self._digest is not None:
            self.manifest, self.shards = before.manifest, before.shards
            return
        _refuse_data(self.path)
        self.manifest = read_manifest(self.path, KIND)
        refuse_earlier(self.path, self.manifest)
        check_sizes(self.path, self.manifest["files"], before.manifest["files"] if before is not None else {})
        with as_written(self.path / MANIFEST):
            _check_manifest(self.manifest)
        if before is not None:
            self._known_shards = {shard.folder.name: shard for shard in before.shards}

    @property
    def path(self) -> Path:
        """Directory of the index, as it was given; the absolute path if the working directory has changed since."""
        return self._place.path

    def __len__(self) -> int:
        """Number of examples, without deleted ones."""
        return self.rows - len(self.deleted)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, method={self.method!r}, examples={len(self)})"

    @property
    def method(self) -> str:
        """The name of the attribution method."""
        return str(self.manifest["method"])

    @property
    def rows(self) -> int:
        """Number of rows, including deleted ones."""
        return int(self.manifest["rows"])

    @cached_property
    def channels(self) -> tuple[KeptChannel, ...]:
        """How each channel is stored; a method without channels counts as one channel."""
        return tuple(KeptChannel(**entry) for entry in self.manifest["channels"])

    @property
    def dimension(self) -> int:
        """Number of features of one example, over all channels."""
        return sum(one.dimension for one in self.channels)

    @property
    def empty(self) -> int:
        """Number of examples, including deleted ones, whose features are all 0, or too small for float16."""
        direct = any(one.kind == "none" for one in self.channels)
        return 0 if direct else sum(shard.get("empty", 0) for shard in self.manifest["shards"])

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the metadata fields that some example has."""
        return tuple(self.manifest["fields"])

    @property
    def reading(self) -> Reading:
        """How records were read for the build; empty if that was not recorded, or examples were given."""
        found = self.manifest.get(READING, {})
        with as_written(self.path / MANIFEST):
            options = {str(name): str(value) for name, value in found.get("options", {}).items()}
            chosen = Schema(**options).chosen  # type: ignore[arg-type]  # checks what stands in the manifest
            forms, hub = (tuple(map(str, found.get(name, ()))) for name in ("forms", "hub"))
            return Reading(chosen, forms, bool(found.get("mixed")), hub, int(found.get("earlier_turns", 0)))

    @property
    def asking(self) -> dict[str, str]:
        """Options for reading records of queries: those of the build's trainer, but only the last turn of a chat."""
        trainer = self.reading.options.get("trained_with")
        return {} if trainer is None else {"trained_with": trainer, "turns": "last"}

    @cached_property
    def rendered(self) -> Mapping[str, Any]:
        """How rows with a prompt are rendered, by a sample.

        ``form`` is the form of all of them, None if they differ or have a chat template. ``preamble`` is True if a
        preamble goes before it, and ``whole`` if the trainer learns all tokens of each. Stored if texts are left out.
        """
        if RENDERED in self.manifest:
            return dict(self.manifest[RENDERED])
        live = np.flatnonzero(self.live)
        rows = live[np.linspace(0, len(live) - 1, min(RENDERED_ROWS, len(live))).astype(np.int64)]
        chats = [one.chat or {} for one in self.examples(rows) if one.prompt.strip()]
        found = {(chat.get("form", MESSAGES["form"]), "prompt" in chat) for chat in chats}
        form, preamble = found.pop() if len(found) == 1 else (MESSAGES["form"], False)
        whole = bool(chats) and all(chat.get("learn") == "all" for chat in chats)
        return {"form": None if form == MESSAGES["form"] else form, "preamble": preamble, "whole": whole}

    @property
    def fingerprint(self) -> str:
        """64 hex digits over everything that scores depend on."""
        parts = ("attributor", "shards", "deleted")
        return json_digest({name: self.manifest[name] for name in parts})

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The shards, in the order of rows."""
        files: dict[str, dict[str, Any]] = {}
        for name, entry in self.manifest["files"].items():
            if name.startswith("shards/"):
                _, shard, file = name.split("/", 2)
                files.setdefault(shard, {})[file] = entry
        folder, made = self.path / "shards", []
        for entry in self.manifest["shards"]:
            name, start, rows = entry["name"], entry["start"], entry["rows"]
            shard = Shard(Anchored.of(folder / name), start, rows, self.channels, files[name])
            known = self._known_shards.get(name)
            made.append(known if known == shard else shard)
        self._known_shards = {}
        return tuple(made)

    @cached_property
    def deleted(self) -> Rows:
        """Row numbers of deleted examples, ascending."""
        if self.manifest["deleted"] is None:
            return np.empty(0, dtype=np.int64)
        path = self.path / self.manifest["deleted"]
        check_file(path, self.manifest["files"][path.name])
        with reading(path):
            rows: Rows = np.load(path, allow_pickle=False)
        if rows.dtype != np.int64 or rows.ndim != 1 or (len(rows) and not 0 <= rows.min() <= rows.max() < self.rows):
            raise ArtifactError(f"{path}: was altered after it was written. Restore it or build it again.")
        return rows

    @cached_property
    def live(self) -> Mask:
        """True for each row that is not deleted, ``(rows,)``."""
        mask = np.ones(self.rows, dtype=bool)
        mask[self.deleted] = False
        return mask

    def blocks(self, channel: str) -> "Sequence[Block]":
        """Return the features of a channel shard by shard, for programs that compute scores themselves."""
        return [shard.block(channel) for shard in self.shards]

    def example(self, row: int) -> Example:
        """Return the example of one row."""
        row = int(self._inside(np.asarray([row]))[0])
        shard = self.shards[bisect_right(self.shards, row, key=operator.attrgetter("start")) - 1]
        return shard.examples[row - shard.start]

    def examples(self, rows: Rows) -> list[Example]:
        """Return the examples of some rows, in their order; for many rows far faster than one by one."""
        numbers = self._inside(np.asarray(rows))
        found = list[Any]([None]) * len(numbers)
        for shard, places in self._by_shard(numbers):
            own = numbers[places] - shard.start
            inside = distinct(own)
            back = np.searchsorted(inside, own)
            here = list(shard.examples.take(inside))
            for place, number in zip(places.tolist(), back.tolist(), strict=True):
                found[place] = here[number]
        return found

    def features(self, rows: Rows, channels: Sequence[str] | None = None) -> Encoded:
        """Return stored features of some rows, in their order, as float32, by channel; of all channels if None.

        Raises:
            ConfigError: there are no rows.
        """
        numbers = self._inside(np.asarray(rows))
        if not len(numbers):
            raise ConfigError("features: rows is empty. Pass at least one row.")
        parts = list(self._by_shard(numbers))
        below = stacked([shard.features(numbers[places] - shard.start, channels) for shard, places in parts])
        order = np.argsort(np.concatenate([places for _, places in parts]))
        return {name: None if part is None else part[order] for name, part in below.items()}

    def _by_shard(self, numbers: Rows) -> Iterator[tuple[Shard, Rows]]:
        """Yield each shard that has some of the rows, with these rows' places in *numbers*, in order of rows."""
        order = np.argsort(numbers, kind="stable")
        cuts = np.searchsorted(numbers[order], [*(shard.start for shard in self.shards), self.rows]).tolist()
        for shard, (first, last) in zip(self.shards, pairwise(cuts), strict=True):
            if first < last:
                yield shard, order[first:last]

    def where(self, expression: str | None = None, **equals: Any) -> Rows:
        """Return the rows of examples that match a filter and are not deleted.

        Args:
            expression: such as ``'label == "gsm8k" and source != "forum"'`` (docs/filters.md).
            equals: fields, each with the value, or list of values, that it must have.

        Raises:
            ConfigError: an unknown field, or an expression that is not a filter.
        """
        return np.flatnonzero(self.mask(expression, **equals))

    def mask(self, expression: str | None = None, **equals: Any) -> Mask:
        """Return True for each row that matches a filter and is not deleted; arguments as for :meth:`where`."""
        mask = self.live.copy()
        chosen = [] if expression is None else [compile_filter(expression)]
        for one in (*chosen, *([equal_to(equals)] if equals else ())):
            mask &= one.mask((shard.examples.table for shard in self.shards), self.fields)
        return mask

    def kept(self, where: str | None) -> Mask:
        """Return :meth:`mask` of a filter (ConfigError: no example matches)."""
        mask = self.mask(where)
        if not mask.any():
            raise self.unmatched(where)
        return mask

    def rows_of(self, ids: Iterable[str]) -> Rows:
        """Return row numbers of examples by id, in the order of *ids*.

        Raises:
            ConfigError: an id is not in the index, is not text, or its example was deleted; or *ids* is a single text.
        """
        ids = _ids(ids)
        found = self.find(ids)
        missing = next((id_ for id_ in ids if id_ not in found), None)
        if missing is not None:
            for shard in self.shards:
                _ = shard.examples  # reading checks the file: an altered id raises its own error
            raise ConfigError(f"{self.path}: has no example with id '{missing}'. Check the id; case matters.")
        return np.array([found[id_] for id_ in ids], dtype=np.int64)

    def find(self, ids: Iterable[str] | Column) -> dict[str, int]:
        """Map ids to row numbers, without ids that are not in the index or whose examples were deleted."""
        wanted = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(_ids(ids), pa.large_string())
        return {id_: row for id_, row in self._having(wanted) if self.live[row]}

    def _having(self, wanted: Any) -> Iterator[tuple[str, int]]:
        """Yield each of the ids that is in the index, with its row, deleted ones too."""
        if not len(wanted):
            return
        sieve = Sieve(id_keys(wanted.to_pylist()))
        for shard in self.shards:
            if shard.may_have(sieve):
                here = compute.is_in(shard.examples.ids, value_set=wanted)
                names = shard.examples.ids.filter(here).to_pylist()
                places = compute.indices_nonzero(here).to_pylist()
                yield from zip(names, (place + shard.start for place in places), strict=True)

    def groups(self, groups: GroupsLike) -> Groups:
        """Check and number the members of groups given in any of the forms of :meth:`airrep.Index.group_scores`."""
        if isinstance(groups, str):
            self.check_some(groups)
            if groups not in TEXT_FIELDS:  # values of different types are kept apart
                return Groups.from_labels(self.values(groups, quoted=True), keep=self.live)
            chunks = [chunk for shard in self.shards for chunk in shard.examples.table[groups].chunks]
            return Groups.from_labels(pa.chunked_array(chunks), keep=self.live)  # still memory maps
        if not isinstance(groups, Iterable | Groups):
            raise ConfigError(f"groups is {groups!r}; it must be a field, such as 'source', or lists of examples.")
        if not isinstance(groups, Groups):
            named = groups if isinstance(groups, Mapping) else dict(enumerate(groups))
            groups = Groups.from_lists({name: self.check_rows(named[key]) for name, key in _as_texts(named).items()})
        gone = groups.rows[~self.live[self._inside(groups.rows)]]
        if len(gone):
            raise ConfigError(f"{self.path}: row {gone[0]} was deleted. Leave it out of the group.")
        return groups

    def check_rows(self, rows: RowsLike) -> Rows:
        """Return row numbers as int64, from any form of *rows*.

        Args:
            rows: row numbers, ids as text, a bool for each row of the index (as :meth:`mask` returns), or a filter that
                at least one example matches. Integers in a NumPy array (as :meth:`where` returns) are row numbers; in a
                list, none of them may be the id of another row.

        Raises:
            ConfigError: a row does not exist, a number may be meant as an id, or *rows* is something else.
        """
        if isinstance(rows, str):
            return np.flatnonzero(self.kept(rows))
        if not isinstance(rows, Iterable):
            raise ConfigError(f"rows is {rows!r}; it must be a list of row numbers, a list of ids or a filter.")
        members = rows if isinstance(rows, np.ndarray) else list(rows)
        if len(members) and all(isinstance(member, str) for member in members):
            return self.rows_of([str(member) for member in members])
        numbers = np.asarray(members) if len(members) else np.empty(0, dtype=np.int64)
        if numbers.dtype == np.bool_ and numbers.shape == (self.rows,):  # other bool arrays fail below
            return np.flatnonzero(numbers)
        if members is not rows and np.issubdtype(numbers.dtype, np.integer):  # they may be ids read from a table
            for id_, row in self._having(pa.array(map(str, numbers.ravel().tolist()), pa.large_string())):
                if int(id_) != row:
                    raise ConfigError(
                        f"{self.path}: {id_} can mean row {id_} or the id of row {row}. Write ids as text ({id_!r}), "
                        "or pass row numbers as a NumPy array."
                    )
        return self._inside(numbers)

    def _inside(self, numbers: np.ndarray) -> Rows:
        """Return row numbers as int64, after checking that all exist."""
        if numbers.ndim != 1 or (len(numbers) and not np.issubdtype(numbers.dtype, np.integer)):
            raise ConfigError(
                f"rows must be a list of row numbers of {self.path}. To find the rows of ids, call rows_of([id, ...])."
            )
        outside = numbers[(numbers < 0) | (numbers >= self.rows)]
        if len(outside):
            raise ConfigError(
                f"{self.path}: has no row {outside[0]}; expected 0 to {self.rows - 1}. Correct the row number."
            )
        return numbers.astype(np.int64)

    def unmatched(self, expression: str | None) -> ConfigError:
        """Return the error of a filter that no example matches, with values of the first field that lacks its value."""
        asked = compile_filter(expression) if expression else None
        for field, literal in (*asked.wanted, *asked.borders) if asked else ():
            values = [] if field.path else compress(self.values(field.name), self.live)
            held = Counter(value for value in values if value is not None)
            if held and literal is not None and shown_value(literal) not in held:
                few = [escaped(one[:40]) for one, _ in held.most_common(_VALUES)]
                more = f" and {many(len(held) - len(few), 'more value')}" if len(held) > len(few) else ""
                told = f"{field.name} holds {', '.join(few)}{more}."
                similar = isinstance(literal, str) and asked and (field, literal) in asked.wanted
                hint = near(literal, map(escaped, islice(held, BESIDE)), told) if similar else told
                return ConfigError(f"filter {expression}: no example matches. {hint}")
        return ConfigError(f"filter {expression}: no example matches. Choose another filter.")

    def values(self, field: str, *, quoted: bool = False) -> list[str | None]:
        """Return one field of every row as text, deleted ones too; None where it is missing.

        Args:
            field: name of the field; ``meta.lang`` is a part of an object.
            quoted: put a text in quotes if it looks like another type of value, such as "1" like 1.

        Raises:
            ConfigError: no such field.
        """
        known = (*TEXT_FIELDS, *self.fields)
        if field not in known and not (isinstance(field, str) and set(keys_of(field)).intersection(self.fields)):
            meant = near(field, known, "Name one of them.")
            raise ConfigError(f"{self.path}: has no field '{field}'; it has {nearest(field, known)}. {meant}")
        tables = (shard.examples.table for shard in self.shards)
        return field_values(tables, field, self.fields, quoted=quoted)

    def check_some(self, field: str) -> None:
        """Raise ConfigError if *field* is ``label`` or ``source`` and no example has one."""
        if field in ("label", "source"):
            columns = [shard.examples.table[field] for shard in self.shards]
            if all(column.null_count == len(column) for column in columns):
                others = f", such as {', '.join(self.fields)}" if self.fields else ""
                raise ConfigError(f"{self.path}: no example has a {field}. Name another field{others}.")

    def verify(self) -> None:
        """Check every byte against the manifest.

        Raises:
            ArtifactError: a file is missing or altered.
        """
        check_digests(self.path, self.manifest["files"])


def _ids(ids: Any) -> list[str]:
    """Return ids as a list, after checking that each is valid text."""
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise ConfigError(f"ids is {ids!r}; it must be a list of texts, such as ['{ids}'].")
    found = list(ids)
    for one in found:
        if not isinstance(one, str):
            raise ConfigError(f"ids: {one!r} is not text. Write every id as text, such as '{one}'.")
        check_unicode("id", one)
    return [str(one) for one in found]


def _as_texts(named: Iterable[Any]) -> dict[str, Any]:
    """Map the text of each group's name to the name; refuse two names with the same text."""
    texts: dict[str, Any] = {}
    for name in named:
        if (other := texts.setdefault(str(name), name)) is not name:
            raise ConfigError(f"groups: the names {other!r} and {name!r} are the same text. Rename one of them.")
    return texts
