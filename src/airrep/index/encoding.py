"""Encode and write the shards that an index still lacks, its manifest last."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from airrep.arrays import Encoded
from airrep.attributors.base import Attributor, OnProgress, OnRows, SeveralMethods, bad_method, count_rows
from airrep.attributors.methods import make_attributor, method_named
from airrep.corpus.corpus import Corpus, left_out
from airrep.corpus.records import Reading
from airrep.corpus.schemas.forms import PLAIN
from airrep.corpus.table import PLACE
from airrep.errors import ArtifactError, ConfigError, TrainingError
from airrep.index.rows import KIND, RENDERED, TEXTS, IndexRows
from airrep.index.shards import (
    EXAMPLES,
    PLACES,
    SHARD,
    KeptChannel,
    Kind,
    is_whole,
    read_record,
    shard_name,
    write_shard,
    write_table,
)
from airrep.runtime.artifacts import REQUEST, canonical_json, describe_files, json_digest, versions, write_manifest
from airrep.runtime.engine import Engine, InProcess
from airrep.runtime.metering import ENCODE, MeasuredCost, append_cost, device_of, measuring
from airrep.runtime.publishing import remove_leftovers, write_file

RETRIES = 2
"""Further attempts at a shard whose worker failed."""


class Made(NamedTuple):
    """Features of a shard that was encoded, and what that cost."""

    encoded: Encoded
    spent: MeasuredCost


def check_alike(attributor: Attributor, encoded: Encoded, like: Mapping[str, Any] | None = None) -> list[KeptChannel]:
    """Return how each channel's features are stored, in the order of channels.

    BrokenMethodError: features differ in kind or width from those of the shard or index with the record *like*.
    """
    sparse: Kind = "postings" if isinstance(attributor, SeveralMethods) else "csr"
    found = []
    for name, part in encoded.items():
        kind: Kind = "none" if part is None else "dense" if isinstance(part, np.ndarray) else sparse
        found.append(KeptChannel(name, kind, 0 if part is None else int(part.shape[1])))
    if like is None:
        return found
    for one, other in zip(found, (KeptChannel(**entry) for entry in like["channels"]), strict=False):
        if one != other:
            words = [f"{each.kind} features of width {each.dimension:,}" for each in (one, other)]
            raise bad_method(attributor.name, "encode_train", words[0], f"{words[1]}, as for earlier examples")
    return found


@dataclass(frozen=True)
class NewShard:
    """A shard that is to be encoded."""

    start: int
    """Row number of its first example."""
    name: str
    """Name of its directory."""
    examples: Corpus
    """A slice of the whole corpus."""

    def __reduce__(self) -> tuple[type["NewShard"], tuple[int, str, Corpus]]:
        """Pickle a copy of the shard's rows, since a slice would send the whole table to each worker."""
        return NewShard, (self.start, self.name, self.examples.take(range(len(self.examples))))


@dataclass(frozen=True)
class MethodCopy:
    """Settings and state from which a worker makes an attributor of a known method."""

    method: str
    settings: Mapping[str, object]
    state: Mapping[str, bytes]

    @classmethod
    def of(cls, attributor: Attributor) -> "MethodCopy":
        """Read settings and state from an attributor."""
        with tempfile.TemporaryDirectory() as folder:
            attributor.save_state(Path(folder))
            state = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
        return cls(attributor.name, attributor.settings.model_dump(mode="json"), state)

    def make(self) -> Attributor:
        """Make the attributor."""
        attributor = make_attributor(self.method, self.settings)
        if self.state:
            with tempfile.TemporaryDirectory() as folder:
                for name, content in self.state.items():
                    (Path(folder) / name).write_bytes(content)
                attributor.load_state(Path(folder))
        return attributor


@dataclass(frozen=True)
class EncodeSetup:
    """Setup that a worker calls to get the function that encodes shards."""

    source: MethodCopy | Attributor
    fingerprint: str
    execution: Mapping[str, str]

    @classmethod
    def of(cls, attributor: Attributor, engine: Engine) -> "EncodeSetup":
        """Prepare the setup; other processes make a known method themselves, so that its model is not sent to them."""
        sent = not isinstance(engine, InProcess) and _is_of_known_method(attributor)
        source = MethodCopy.of(attributor) if sent else attributor
        return cls(source, attributor.fingerprint, dict(attributor.execution))

    def __call__(self) -> Callable[[NewShard], Made]:
        """Return the function that encodes a shard.

        ArtifactError: the worker's model or precision differs from the attributor's.
        """
        attributor = self.source.make() if isinstance(self.source, MethodCopy) else self.source
        if attributor.fingerprint != self.fingerprint or dict(attributor.execution) != dict(self.execution):
            raise ArtifactError(
                f"method '{attributor.name}': a worker process and the main process use different models or precisions "
                f"({attributor.fingerprint[:12]} {dict(attributor.execution)} and {self.fingerprint[:12]} "
                f"{dict(self.execution)}). Put the same model files on every machine, and set --precision (not auto)."
            )
        return lambda shard: _encode(attributor, shard)


def _is_of_known_method(attributor: Attributor) -> bool:
    try:
        place = method_named(attributor.name).place
    except ConfigError:  # no method of that name, or one that cannot be loaded
        return False
    return place == f"{type(attributor).__module__}:{type(attributor).__qualname__}"


def encode_shards(
    attributor: Attributor, shards: Sequence[NewShard], engine: Engine | None, on_rows: OnRows
) -> Iterator[tuple[NewShard, Made]]:
    """Encode shards and yield them in order of completion; without an engine, in this process on all threads.

    TrainingError: a shard failed in every attempt. ArtifactError: a worker has another model.
    """
    if engine is None:
        yield from ((shard, _encode(attributor, shard, on_rows)) for shard in shards)
        return
    with closing(engine.run(EncodeSetup.of(attributor, engine), shards, RETRIES)) as outcomes:
        for outcome in outcomes:
            if outcome.value is None:
                raise TrainingError(
                    f"examples from row {outcome.task.start}: cannot be encoded: {outcome.error}. Run the same command "
                    "again: it continues with the missing examples."
                )
            yield outcome.task, outcome.value
            on_rows(len(outcome.task.examples))  # after the yield, so that the caller has written the features


def _encode(attributor: Attributor, shard: NewShard, on_rows: OnRows | None = None) -> Made:
    with measuring(device_of(attributor.settings)) as meter:
        encoded = attributor.encode(shard.examples, on_rows)
    return Made(encoded, meter.spent)


ALL = slice(None)
"""Every shard."""


def corpus_entry(attributor: Attributor, corpus: Corpus) -> dict[str, Any]:
    """Return the manifest's entry for a corpus that was encoded."""
    entry = {"fingerprint": corpus.fingerprint, "rows": len(corpus)}
    return {**entry, **attributor.execution, **attributor.rendering(corpus)}


def reading_entry(reading: Reading) -> dict[str, Any]:
    """Return the manifest's entry on how records were read; empty if all had the fields prompt and response."""
    forms = [form for form in reading.forms if form != PLAIN]
    entry: dict[str, Any] = {"options": dict(reading.options), "forms": forms}
    entry |= {"mixed": True} if reading.mixed else {}
    entry |= {"hub": list(reading.hub)} if reading.hub else {}
    entry |= {"earlier_turns": reading.earlier_turns} if reading.earlier_turns else {}
    return entry if any(entry.values()) else {}


def with_appended(corpora: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Add the entry of an appended corpus to an index's entries; appends that were encoded alike share one entry.

    So the manifest does not grow with appends. A shared entry's fingerprint is a digest of the fingerprints, in order.
    """
    first, *appended = corpora
    together: list[dict[str, Any]] = []
    for one in (*appended, entry):
        same = next((other for other in together if _way(other) == _way(one)), None)
        if same is None:
            together.append(dict(one))
            continue
        same["fingerprint"] = json_digest([same["fingerprint"], one["fingerprint"]])
        same["rows"] += one["rows"]
        same["appends"] = same.get("appends", 1) + one.get("appends", 1)
    return [first, *together]


def _way(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a corpus was encoded, such as in which precision."""
    return {name: value for name, value in entry.items() if name not in ("fingerprint", "rows", "appends")}


def write_shards(
    folder: Path,
    attributor: Attributor,
    corpus: Corpus,
    shard_rows: int,
    *,
    fingerprint: str | None = None,
    first: int = 0,
    fill: int | None = None,
    like: Mapping[str, Any] | None = None,
    share: slice = ALL,
    progress: OnProgress | None = None,
    engine: Engine | None = None,
) -> list[str]:
    """Write the shards of a corpus that are missing or damaged; return the names of all shards, in order.

    *fingerprint* is that of the attributor that made the index, in case its channel weights changed since. *first* is
    the row number of the first example, *fill* the size of the first shard, *shard_rows* the size of the others.
    *like* is the manifest of an index that the shards join; *share* selects the shards to write. For the other
    arguments see :func:`build_index`.
    """
    fingerprint = fingerprint or attributor.fingerprint
    cuts = [0, *range(fill or shard_rows, len(corpus), shard_rows), len(corpus)]
    parts = ((first + start, corpus[start:stop]) for start, stop in list(pairwise(cuts))[share])
    shards = [NewShard(start, shard_name(start, fingerprint, part.fingerprint), part) for start, part in parts]
    missing = [shard for shard in shards if not is_whole(folder / "shards" / shard.name)]
    whole = {shard.name for shard in shards}.difference(shard.name for shard in missing)
    like = read_record(folder / "shards" / min(whole)) if like is None and whole else like
    total, left = (sum(len(shard.examples) for shard in some) for some in (shards, missing))
    done = total - left
    on_rows = count_rows(total, progress, done)
    if done:  # by an interrupted run; reported at once, before the first shard of this one
        on_rows(0)
    for shard, made in encode_shards(attributor, missing, engine, on_rows):
        channels = check_alike(attributor, made.encoded, like)
        like = {**(like or {}), "channels": [one._asdict() for one in channels]}
        examples = shard.examples if like.get(TEXTS, True) else blank(shard.examples)
        write_shard(folder / "shards" / shard.name, examples, made.encoded, channels, fingerprint)
        append_cost(folder, ENCODE, made.spent, examples=len(shard.examples), shard=shard.name)
    return [shard.name for shard in shards]


def seal_index(
    folder: Path,
    lineage: Mapping[str, Any],
    shards: Sequence[str],
    deleted: str | None = None,
    before: Mapping[str, Any] | None = None,
) -> None:
    """Write the manifest, which makes the directory an index in this state.

    *lineage* holds the manifest's fields on the origin; *shards* are in the order of rows; *deleted* is the file of
    deleted rows. Entries of *before*, the manifest before this change, are reused for shards that stay and the state.
    """
    known = {entry["name"]: entry for entry in before["shards"]} if before else {}
    records = {name: read_record(folder / "shards" / name) for name in shards if name not in known}
    entries = [known[name] if name in known else _shard_entry(name, records[name]) for name in shards]
    starts = [0, *accumulate(entry["rows"] for entry in entries)]
    first = before or records[shards[0]]
    fields = {*(before["fields"] if before else ()), *(field for one in records.values() for field in one["fields"])}
    content = {
        **lineage,
        "rows": starts[-1],
        "channels": first["channels"],
        "fields": sorted(fields),
        "shards": [{**entry, "start": start} for entry, start in zip(entries, starts[:-1], strict=True)],
        "deleted": deleted,
        "packages": versions("torch", "numpy"),
        "files": _files(folder, shards, records, deleted, before["files"] if before else None),
    }
    write_manifest(folder, KIND, content)
    remove_strays(folder, shards, deleted)


def _shard_entry(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    files = {file: entry for file, entry in record["files"].items() if file != PLACES}
    digest = json_digest({**record, "files": files})  # scores do not depend on where examples were read
    return {"name": name, "rows": record["rows"], "empty": record.get("empty", 0), "digest": digest}


def _files(
    folder: Path,
    shards: Sequence[str],
    records: Mapping[str, Mapping[str, Any]],
    deleted: str | None,
    before: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return size and checksum of each file of the index."""
    files, stay = {}, set(shards)
    for path, entry in (before or {}).items():
        top, _, rest = path.partition("/")
        if top in (REQUEST, "state") or (top == "shards" and rest.partition("/")[0] in stay):
            files[path] = entry
    if before is None:
        state = sorted(f"state/{path.name}" for path in (folder / "state").glob("*"))
        files |= describe_files(folder, [REQUEST, *state])
    if deleted:
        files |= describe_files(folder, [deleted])
    for name, record in records.items():
        files |= {f"shards/{name}/{file}": entry for file, entry in record["files"].items()}
        files |= describe_files(folder, [f"shards/{name}/{SHARD}"])
    return files


def remove_strays(folder: Path, shards: Sequence[str], deleted: str | None) -> None:
    """Remove other shards and other files of deleted rows, which interrupted or superseded work left behind."""
    remove_leftovers(folder)
    remove_leftovers(folder / "shards")
    stay = set(shards)
    for path in (folder / "shards").iterdir():
        if path.name not in stay and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob("deleted-*.npy"):
        if path.name != deleted:
            path.unlink(missing_ok=True)


def without_texts(index: IndexRows, made: Path) -> None:
    """Write the files of an index that change when its texts are left out to the empty folder *made*, manifest last.

    Prompts, responses, messages and metadata are left out; ids, labels, sources, places and features stay. The id of
    an example replaces its response, since different examples need different responses.

    ConfigError: the method reads the texts for every query.
    """
    if any(one.kind == "none" for one in index.channels):
        raise ConfigError(
            f"{index.path}: method {index.method} reads the texts for every question. Push the index with its texts, "
            "or build it with a method that stores features."
        )
    content, entries = dict(index.manifest), []
    for shard, entry in zip(index.shards, index.manifest["shards"], strict=True):
        place = f"shards/{shard.folder.name}"
        (made / place).mkdir(parents=True)
        write_table(made / place / EXAMPLES, blank(shard.examples).table.drop_columns([PLACE]))
        record = read_record(shard.folder)
        changed = describe_files(made / place, [EXAMPLES])
        record |= {"fields": [], "files": {**record["files"], **changed}}
        write_file(made / place / SHARD, canonical_json(record))
        content["files"] |= describe_files(made, [f"{place}/{EXAMPLES}", f"{place}/{SHARD}"])
        entries.append({**entry, **_shard_entry(shard.folder.name, record)})
    write_manifest(made, KIND, {**content, "shards": entries, "fields": [], TEXTS: False, RENDERED: index.rendered})


def blank(corpus: Corpus) -> Corpus:
    """Return examples as an index whose texts were left out stores them."""
    table, ids = corpus.table, corpus.table["id"].to_pylist()
    told = {"prompt": [""] * len(ids), "response": [left_out(str(one)) for one in ids]}
    columns = {name: told.get(name, [None] * len(ids)) for name in ("prompt", "response", "metadata", "chat")}
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(column, pa.large_string()))
    return Corpus(table)
