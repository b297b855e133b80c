"""Append to an index, delete from it, compact it."""

import hashlib
import io
import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from airrep.arrays import Encoded, Rows
from airrep.attributors.base import Attributor, usable
from airrep.corpus.corpus import Corpus
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.corpus.records import Reading
from airrep.corpus.schemas.conversations import RENDERING
from airrep.corpus.schemas.forms import EARLIER
from airrep.errors import ArtifactError, ConfigError, DataError, caution
from airrep.index.rows import PACKAGES, READING, RENDERED, TEXTS, IndexRows, RowsLike, stacked
from airrep.index.shards import SHARD, Shard, is_whole, read_record, shard_name, write_shard
from airrep.runtime.artifacts import describe_files, json_digest, locked
from airrep.runtime.metering import OnProgress, teller
from airrep.runtime.publishing import write_file
from airrep.runtime.remote.places import Anchored, shown

LINEAGE = ("request", "method", "settings", "attributor", "corpora", "generation")


class EditableIndex(IndexRows):
    """An index that can grow and shrink: its rows, and the attributor that encodes new examples."""

    given: Attributor | None
    """The attributor that the index was opened with, if any."""

    @property
    @abstractmethod
    def attributor(self) -> Attributor:
        """The attributor that made the index."""

    @abstractmethod
    def reopened(self, attributor: Attributor | None = None) -> Self:
        """Open the index as it is on disk now, with another attributor if one is given."""

    def append(self, more: CorpusLike, *, skip_invalid: bool = False, progress: OnProgress | None = None) -> Self:
        """Encode more examples and add them at the end; other openings of the index keep the old state.

        What :meth:`Attributor.fit` learnt does not change. If all examples are in the index already, with the same
        texts, nothing changes, so an interrupted append can simply be run again. Small shards at the end are merged
        with the new ones: an earlier opening that has not read them yet then raises an ArtifactError.

        Args:
            more: examples to add, in any form that :func:`airrep.build_index` takes. Files and records are read with
                the options of the build, such as ``turns="all"``. For others, pass :func:`airrep.read_corpus`.
            skip_invalid: as for :func:`airrep.build_index`.
            progress: called with the number of finished rows.

        Returns:
            The index in its new state.

        Raises:
            DataError: there are no examples to add, the method cannot use one, or an id is in the index already.
            ArtifactError: another process is writing there, or the encoder is not the one that made the index.
        """
        from airrep.index.encoding import blank, corpus_entry, with_appended  # here, since queries do not need it

        more = as_corpus(more, "append", self.reading.options)
        if len(more) == 0:
            raise DataError("append: the corpus is empty. Give at least one example.")
        with _changing(self):
            now = self.reopened(self.attributor)
            more = usable(now.attributor, more, "append", skip_invalid)  # some methods read examples only when asked
            if _has_all(now, more if now.manifest.get(TEXTS, True) else blank(more)):
                return _tidied(now)
            own = now.manifest["settings"].get("channels", [now.manifest])
            for name in sorted({"trak", "dsdm"} & {one["method"] for one in own}):
                told = f"{now.path}: appended examples may rank too high: {name} learnt its Fisher matrix without them"
                caution(logging.getLogger(__name__), f"{told}. Build the index again from all data")
            corpora = with_appended(now.manifest["corpora"], corpus_entry(now.attributor, more))
            names, reading = _appended(now, more, progress), _with_more(now.reading, more.reading)
            return _sealed(now, corpora, names, now.manifest["deleted"], now.manifest, reading)

    def delete(self, rows: RowsLike) -> Self:
        """Delete examples: their rows are skipped from now on, and removed by :meth:`compact`.

        Args:
            rows: row numbers, ids as text, or a filter such as ``'source == "forum"'``
                (:meth:`airrep.index.rows.IndexRows.check_rows`); rows that are deleted already do not matter.

        Raises:
            ConfigError: a row does not exist, or no example would be left.
            ArtifactError: another process is writing there, or rows were renumbered since this index was opened.
        """
        with _changing(self):
            now = self.reopened()  # as it is on disk, and without a model, which deleting does not need
            _check_numbering(self, now)
            gone = np.union1d(now.deleted, now.check_rows(rows))
            if len(gone) == now.rows:
                raise ConfigError(f"{now.path}: an index must keep at least one example. Delete fewer examples.")
            if len(gone) == len(now.deleted):
                return _tidied(now)
            return _sealed(now, now.manifest["corpora"], _names(now), _write_deleted(now.path, gone), now.manifest)

    def compact(self, *, progress: OnProgress | None = None) -> Self:
        """Rewrite the index without its deleted rows, in full shards; rows are renumbered, features stay the same.

        Raises:
            ArtifactError: a byte was altered, another process is writing there, or it cannot be written.
        """
        with _changing(self):
            now = self.reopened()
            shard_rows = now.manifest["request"]["shard_rows"]
            now.verify()  # checksums of the new shards would hide altered bytes
            if len(now.deleted) == 0 and all(shard.rows == shard_rows for shard in now.shards[:-1]):
                return _tidied(now)
            names = _rewrite(now, now.shards, np.flatnonzero(now.live), 0, progress)
            rendering = {
                name: value for one in now.manifest["corpora"] for name, value in one.items() if name == RENDERING
            }
            corpora = [{"fingerprint": json_digest(names), "rows": len(now), "compacted": True, **rendering}]
            return _sealed(now, corpora, names)


AnyIndex = TypeVar("AnyIndex", bound=EditableIndex)


def _with_more(reading: Reading, more: Reading) -> Reading:
    """Merge how an index's records and appended records were read; the options stay those of the build."""
    mixed = reading.mixed or more.mixed or bool(more.forms and more.options != reading.options)
    forms, hub = (
        tuple(sorted({*one, *other})) for one, other in ((reading.forms, more.forms), (reading.hub, more.hub))
    )
    known = all(one.earlier_turns for one in (reading, more) if EARLIER in "".join(one.forms))
    earlier = reading.earlier_turns + more.earlier_turns if known else 0
    return replace(reading, forms=forms, mixed=mixed, hub=hub, earlier_turns=earlier)


@contextmanager
def _changing(index: IndexRows) -> Iterator[None]:
    """Lock an index while it is changed in place (ArtifactError if it is a copy of an index at a URL)."""
    if (url := shown(str(index.path))) != str(index.path):
        raise ArtifactError(
            f"{url}: an index at a URL cannot be changed in place. Change the local index that was published there, or "
            "build it again with --replace."
        )
    with locked(index.path):
        yield


def _appended(index: EditableIndex, more: Corpus, progress: OnProgress | None) -> list[str]:
    """Write shards of more examples, merged with small shards before them; return all shard names of the index."""
    from airrep.index.encoding import write_shards

    shard_rows, names = index.manifest["request"]["shard_rows"], _names(index)
    count = count_merged([shard.rows for shard in index.shards], len(more), shard_rows)
    small = index.shards[len(names) - count :]
    begin = small[0].start if small else index.rows
    fill = shard_rows - (index.rows - begin) % shard_rows  # so that all shards but the last are full
    made = index.manifest["attributor"]
    new = write_shards(
        index.path,
        index.attributor,
        more,
        shard_rows,
        fingerprint=made,
        first=index.rows,
        fill=fill,
        like=index.manifest,
        progress=progress,
    )
    if not small:
        return [*names, *new]
    for shard in small:
        shard.check_all()  # checksums of the merged shards would hide altered bytes
    folder, rows = index.path / "shards" / new[0], min(fill, len(more))
    files = {**read_record(folder)["files"], **describe_files(folder, [SHARD])}
    first = Shard(Anchored.of(folder), index.rows, rows, index.channels, files)
    together = np.arange(begin, first.start + rows)
    return [*names[:-count], *_rewrite(index, [*small, first], together, begin), *new[1:]]


def count_merged(rows: Sequence[int], more: int, full: int) -> int:
    """Number of shards at the end that an append merges with its own examples.

    A merged shard has fewer rows than *full*, and at most as many as all later rows together. So an index never has
    more than log2(full) small shards in a row, and no example is written more often, however small the appends. *rows*
    are those of each shard, *more* is the number of appended examples, *full* the most rows of a shard.
    """
    count = 0
    for size in reversed(rows):
        if size >= full or size > more:
            break
        count, more = count + 1, more + size
    return count


def _has_all(index: IndexRows, more: Corpus) -> bool:
    """Return whether all examples are in the index already; DataError if only some are, or their texts differ."""
    known = index.find(more.ids)
    if not known:
        return False
    for example in more:
        row = known.get(example.id)
        if row is None:
            continue
        if index.example(row).content_hash != example.content_hash:
            there = "is already in the index with other texts"
        elif len(known) < len(more):
            there = f"is already in the index, but not all of these {len(more):,} examples are"
        else:
            continue
        raise DataError(
            f"append: example '{example.id}' {there} (row {row}). Remove it from the data, give it another id, or "
            "delete the old example first."
        )
    return True


def _check_numbering(index: IndexRows, now: IndexRows) -> None:
    """Refuse row numbers of an opening that a compaction or a new build has made invalid."""
    known = {shard.folder.name for shard in now.shards}
    others = [shard for shard in index.shards if shard.folder.name not in known]  # merged by appends, or invalid
    for shard in others:
        if _name_of(now, shard.start, shard.rows) != shard.folder.name:
            raise ArtifactError(
                f"{index.path}: was compacted or built anew since it was opened, so its rows have other numbers. "
                "Open it again."
            )


def _name_of(index: IndexRows, start: int, rows: int) -> str:
    """Return the name that some rows would have as one shard, by their examples; empty if not all rows exist."""
    if start + rows > index.rows:
        return ""
    parts = (
        shard.examples[max(start - shard.start, 0) : start + rows - shard.start].table
        for shard in index.shards
        if shard.start < start + rows and start < shard.start + shard.rows
    )
    return shard_name(start, index.manifest["attributor"], Corpus(pa.concat_tables(parts)).fingerprint)


def _write_deleted(folder: Path, rows: Rows) -> str:
    content = io.BytesIO()
    np.save(content, rows, allow_pickle=False)
    name = f"deleted-{hashlib.sha256(content.getvalue()).hexdigest()[:16]}.npy"
    write_file(folder / name, content.getvalue())
    return name


def _rewrite(
    index: IndexRows, shards: Sequence[Shard], rows: Rows, start: int, progress: OnProgress | None = None
) -> list[str]:
    """Write some rows of shards as full shards whose first row is *start*; return the new names."""
    attributor, shard_rows, names = index.manifest["attributor"], index.manifest["request"]["shard_rows"], []
    tell = teller(progress, "compacting")
    for first in range(0, len(rows), shard_rows):
        parts = list(_by_shard(shards, rows[first : first + shard_rows]))
        corpus = Corpus(pa.concat_tables([corpus.table for corpus, _ in parts]))
        name = shard_name(start + first, attributor, corpus.fingerprint)
        if not is_whole(index.path / "shards" / name):
            encoded = stacked([encoded for _, encoded in parts])
            write_shard(index.path / "shards" / name, corpus, encoded, index.channels, attributor)
        names.append(name)
        tell(first + len(corpus), len(rows))
    return names


def _by_shard(shards: Sequence[Shard], rows: Rows) -> Iterator[tuple[Corpus, Encoded]]:
    for shard in shards:
        inside = rows[(rows >= shard.start) & (rows < shard.start + shard.rows)] - shard.start
        if len(inside):
            yield shard.examples.take(inside), shard.features(inside)


def _tidied(index: AnyIndex) -> AnyIndex:
    """Return the index as it is, after removing files that an interrupted change has left behind."""
    from airrep.index.encoding import remove_strays

    remove_strays(index.path, _names(index), index.manifest["deleted"])
    return index


def _names(index: IndexRows) -> list[str]:
    return [entry["name"] for entry in index.manifest["shards"]]


def _sealed(
    index: AnyIndex,
    corpora: Sequence[Any],
    names: Sequence[str],
    deleted: str | None = None,
    before: Mapping[str, Any] | None = None,
    reading: Reading | None = None,
) -> AnyIndex:
    """Write the next state of an index, which takes effect with its manifest, and open it.

    *before* is a manifest whose entries for shards that stay are reused; *reading* does not change if None.
    """
    from airrep.index.encoding import reading_entry, seal_index

    old = {name: index.manifest[name] for name in LINEAGE}
    kept = ("caution", PACKAGES, READING, TEXTS, RENDERED)
    optional = {name: index.manifest[name] for name in kept if name in index.manifest}
    optional |= {READING: entry} if reading is not None and (entry := reading_entry(reading)) else {}
    lineage = {**old, "corpora": list(corpora), "generation": old["generation"] + 1, **optional}
    seal_index(index.path, lineage, names, deleted, before)
    return index.reopened()
