"""Write the shards of an index, and seal them with its manifest."""

import shutil
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from airrep.attributors.base import Attributor, OnProgress, count_rows
from airrep.corpus.corpus import Corpus
from airrep.corpus.records import Reading
from airrep.corpus.schemas.forms import PLAIN
from airrep.corpus.table import PLACE
from airrep.errors import ConfigError
from airrep.index.results.made import left_out
from airrep.index.rows import KIND, IndexRows
from airrep.index.shards import EXAMPLES, PLACES, SHARD, is_whole, read_record, shard_name, write_shard, write_table
from airrep.runtime.artifacts.manifests import (
    REQUEST,
    canonical_json,
    describe_files,
    json_digest,
    versions,
    write_manifest,
)
from airrep.runtime.engine import Engine
from airrep.runtime.metering import ENCODE, append_cost
from airrep.runtime.publishing import remove_leftovers, write_file

ALL = slice(None)
"""Every shard."""
TEXTS = "texts"
"""Entry of a manifest: false where the texts were left out."""


def corpus_entry(attributor: Attributor, corpus: Corpus) -> dict[str, Any]:
    """The manifest's entry of a corpus that was encoded."""
    entry = {"fingerprint": corpus.fingerprint, "rows": len(corpus)}
    return {**entry, **attributor.execution, **attributor.rendering(corpus)}


def reading_entry(reading: Reading) -> dict[str, Any]:
    """The manifest's entry of how records were read; empty where all had a prompt and a response by name."""
    forms = [form for form in reading.forms if form != PLAIN]
    entry: dict[str, Any] = {"options": dict(reading.options), "forms": forms}
    entry |= {"mixed": True} if reading.mixed else {}
    entry |= {"hub": list(reading.hub)} if reading.hub else {}
    return entry if any(entry.values()) else {}


def with_appended(corpora: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Entries of an index to which a corpus was appended: the first, and one for all appends made in one way.

    So the manifest does not grow with appends. The fingerprint of several appends is a digest of theirs, in order.
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
    """In which way a corpus was encoded: its precision, say."""
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
    """Write the shards of a corpus that are not there yet; returns the names of all of them, in order.

    *fingerprint* is that of the attributor that made the index, where it is asked with other weights by now; *first* is
    the row number of the first example, *fill* the size of the first shard, *shard_rows* that of the others,
    *like* the manifest of an index that they join, *share* the part of the shards that is to be written; the rest is
    as for :func:`build_index`.
    """
    from airrep.index.workers import NewShard, check_alike, encode_shards  # here: no question needs it

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
        like = {"channels": [one._asdict() for one in channels]}
        write_shard(folder / "shards" / shard.name, shard.examples, made.encoded, channels, fingerprint)
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

    *lineage* holds the fields of its origin; *shards* are in the order of rows; *deleted* is the file of deleted rows.
    What the manifest *before* this state says of shards that stay, and of what the method learnt, is not read again.
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
    """Size and checksum of each file."""
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
    """Remove all shards and deleted rows but those named: interrupted or superseded work left them behind."""
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
    """Write into an empty folder those files of an index that differ where its texts are left out, the manifest last.

    Ids, labels, sources, places and all that scores come from stay; messages and metadata go too. In place of a
    response stands its example's id, since those of different examples must differ.

    Raises:
        ConfigError: its method reads the texts whenever it is asked.
    """
    if any(one.kind == "none" for one in index.channels):
        raise ConfigError(
            f"{index.path}: method {index.method} needs the texts at every question; expected a method that keeps "
            "features. Push it with its texts, or build another index."
        )
    content, entries = dict(index.manifest), []
    for shard, entry in zip(index.shards, index.manifest["shards"], strict=True):
        place = f"shards/{shard.folder.name}"
        (made / place).mkdir(parents=True)
        write_table(made / place / EXAMPLES, _blank(shard.examples.table.drop_columns([PLACE])))
        record = read_record(shard.folder)
        changed = describe_files(made / place, [EXAMPLES])
        record |= {"fields": [], "files": {**record["files"], **changed}}
        write_file(made / place / SHARD, canonical_json(record))
        content["files"] |= describe_files(made, [f"{place}/{EXAMPLES}", f"{place}/{SHARD}"])
        entries.append({**entry, **_shard_entry(shard.folder.name, record)})
    write_manifest(made, KIND, {**content, "shards": entries, "fields": [], TEXTS: False})


def _blank(table: pa.Table) -> pa.Table:
    ids = table["id"].to_pylist()
    told = {"prompt": [""] * len(ids), "response": [left_out(str(one)) for one in ids]}
    columns = {name: told.get(name, [None] * len(ids)) for name in ("prompt", "response", "metadata", "chat")}
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(column, pa.large_string()))
    return table
