"""Build an index: encode, write shards, seal it with its manifest."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from airrep.attributors.base import Attributor, OnProgress, SlowFit, count_rows
from airrep.attributors.methods import default_method, make_attributor
from airrep.corpus.corpus import Corpus
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.index.index import Index
from airrep.index.rows import KIND
from airrep.index.shards import SHARD, is_whole, read_record, shard_name, write_shard
from airrep.index.workers import NewShard, encode_shards
from airrep.runtime.artifacts import REQUEST, describe_files, json_digest, real_path, versions, write_manifest, writing
from airrep.runtime.engine import Engine
from airrep.runtime.metering import ENCODE, FIT, MeasuredCost, append_cost, device_of, measuring
from airrep.runtime.stage import Stage

SHARD_ROWS = 4096
"""Examples in one shard: what an interruption can lose."""


def build_index(
    train: Corpus,
    out: str | Path,
    method: str | Attributor | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    shard_rows: int = SHARD_ROWS,
    replace: bool = False,
    progress: OnProgress | None = None,
    engine: Engine | None = None,
) -> Index:
    """Encode a training corpus into an index directory.

    The directory appears under its name when it is whole. An interrupted build resumes from its finished shards
    when it is run again, and gives the same bytes as an undisturbed one. An index that is there already and was
    made in the same way from the same corpus is returned as it is.

    Args:
        train: the training corpus.
        out: the directory to make.
        method: a method's name (see ``airrep methods``), or an attributor; None: the channels that airrep ships, or
            its encoder alone where *settings* name one.
        settings: settings of the method, unless it is an attributor.
        shard_rows: examples in one shard; what an interruption can lose.
        replace: replace an index that is there and differs.
        progress: called with the number of finished rows.
        engine: where shards are encoded, on one thread each, with the same bytes on every engine; if None in this
            process, on all threads.

    Raises:
        ConfigError: no such method or setting.
        DataError: the corpus is empty, or gives features that are not finite.
        TrainingError: workers of the engine fail again and again.
        ArtifactError: something else is there, another process is writing there, or it cannot be written.
    """
    path = real_path(out)
    check_corpus("train", train)
    if isinstance(method, Attributor) and settings is not None:
        raise ConfigError("settings: belong to a method given by name; this attributor has its own. Leave them out.")
    if len(train) == 0:
        raise DataError("train: the corpus is empty; expected at least one example. Give a file with some.")
    if shard_rows < 1:
        raise ConfigError(f"shard_rows={shard_rows}: expected 1 or more. Correct the value.")
    if not isinstance(method, Attributor):
        method = make_attributor(method or default_method(settings or {}), settings)
    plan = _BuildPlan(method, train, shard_rows, _fit(method, train, progress))
    other = "an unfinished index of other data or settings"
    stage = Stage(path, KIND, "an index made", plan.request, replace, _has_shards, other)
    if not _is_finished(stage):
        _build(stage, plan, progress, engine)
    return Index(path, method)


def check_corpus(where: str, corpus: object) -> None:
    """Refuse anything but a corpus with a ConfigError."""
    if not isinstance(corpus, Corpus):
        raise ConfigError(
            f"{where}: is a {type(corpus).__name__}; expected a Corpus. Use read_corpus or Corpus.from_examples."
        )


def _fit(attributor: Attributor, train: Corpus, progress: OnProgress | None) -> MeasuredCost:
    """Let a method learn from the corpus; its model is loaded before, so that loading does not count."""
    attributor.load()
    with measuring(device_of(attributor.settings)) as meter:
        if isinstance(attributor, SlowFit):
            attributor.fit(train, progress)
        else:
            attributor.fit(train)
    return meter.spent


@dataclass(frozen=True)
class _BuildPlan:
    """Attributor and corpus of an index that is to be built."""

    attributor: Attributor
    train: Corpus
    shard_rows: int
    fit: MeasuredCost
    """Cost of learning from the corpus."""

    @cached_property
    def request(self) -> dict[str, Any]:
        """The JSON object that decides the bytes of the index; equal requests give equal indexes."""
        return {
            "method": self.attributor.name,
            "attributor": self.attributor.fingerprint,
            "execution": dict(self.attributor.execution),
            "corpus": self.train.fingerprint,
            "shard_rows": self.shard_rows,
        }


def _has_shards(partial: Path) -> bool:
    return any((partial / "shards").glob("*/" + SHARD))


def _is_finished(stage: Stage) -> bool:
    """Whether the same index is there already, as it was built."""
    manifest = stage.finished()
    if manifest is not None and manifest["generation"] > 0:
        raise ArtifactError(
            f"{stage.path}: is an index that was changed after it was built; nothing is overwritten. "
            "Give another path, or pass --replace."
        )
    return manifest is not None


def _build(stage: Stage, plan: _BuildPlan, progress: OnProgress | None, engine: Engine | None) -> None:
    with stage.making() as partial:
        (partial / "shards").mkdir(exist_ok=True)
        append_cost(partial, FIT, plan.fit, examples=len(plan.train))
        _save_state(partial, plan.attributor)
        shards = write_shards(partial, plan.attributor, plan.train, plan.shard_rows, progress=progress, engine=engine)
        lineage = {
            "request": stage.request,
            "method": plan.attributor.name,
            "settings": plan.attributor.settings.model_dump(mode="json"),
            "attributor": plan.attributor.fingerprint,
            "corpora": [corpus_entry(plan.attributor, plan.train)],
            "generation": 0,
            **({"caution": plan.attributor.caution} if plan.attributor.caution else {}),
        }
        seal_index(partial, lineage, shards)


def corpus_entry(attributor: Attributor, corpus: Corpus) -> dict[str, Any]:
    """The manifest's entry of a corpus that was encoded."""
    return {"fingerprint": corpus.fingerprint, "rows": len(corpus), **attributor.execution}


def _save_state(folder: Path, attributor: Attributor) -> None:
    state = folder / "state"
    with writing(state):
        shutil.rmtree(state, ignore_errors=True)  # an interrupted build may have left part of it
        state.mkdir()
        attributor.save_state(state)
        if not any(state.iterdir()):  # most methods learn nothing
            state.rmdir()


def write_shards(
    folder: Path,
    attributor: Attributor,
    corpus: Corpus,
    shard_rows: int,
    *,
    first: int = 0,
    progress: OnProgress | None = None,
    engine: Engine | None = None,
) -> list[str]:
    """Write the shards of a corpus that are not there yet; returns the names of all of them, in order.

    *first* is the row number of the first example; the rest is as for :func:`build_index`.
    """
    fingerprint = attributor.fingerprint
    parts = ((first + start, corpus[start : start + shard_rows]) for start in range(0, len(corpus), shard_rows))
    shards = [NewShard(start, shard_name(start, fingerprint, part.fingerprint), part) for start, part in parts]
    missing = [shard for shard in shards if not is_whole(folder / "shards" / shard.name)]
    done = len(corpus) - sum(len(shard.examples) for shard in missing)
    on_rows = count_rows(len(corpus), progress, done)
    if done:  # by an interrupted run; reported at once, before the first shard of this one
        on_rows(0)
    for shard, (features, spent) in encode_shards(attributor, missing, engine, on_rows):
        write_shard(folder / "shards" / shard.name, shard.examples, features, fingerprint)
        append_cost(folder, ENCODE, spent, examples=len(shard.examples), shard=shard.name)
    return [shard.name for shard in shards]


def seal_index(folder: Path, lineage: Mapping[str, Any], shards: Sequence[str], deleted: str | None = None) -> None:
    """Write the manifest, which makes the directory an index in this state.

    *lineage* holds the fields of its origin; *shards* are in the order of rows; *deleted* is the file of deleted rows.
    """
    records = {name: read_record(folder / "shards" / name) for name in shards}
    rows = [record["rows"] for record in records.values()]
    starts = [0, *accumulate(rows)]
    first = records[shards[0]]
    content = {
        **lineage,
        "rows": starts[-1],
        "dimension": first["dimension"],
        "layout": first["layout"],
        "fields": sorted({field for record in records.values() for field in record["fields"]}),
        "shards": [
            {
                "name": name,
                "start": start,
                "rows": record["rows"],
                "empty": record.get("empty", 0),
                "digest": json_digest(record),
            }
            for (name, record), start in zip(records.items(), starts[:-1], strict=True)
        ],
        "deleted": deleted,
        "packages": versions("torch", "numpy", "scikit-learn"),
        "files": _files(folder, records, deleted),
    }
    write_manifest(folder, KIND, content)
    remove_strays(folder, shards, deleted)


def _files(folder: Path, records: Mapping[str, Mapping[str, Any]], deleted: str | None) -> dict[str, Any]:
    state = sorted(f"state/{path.name}" for path in (folder / "state").glob("*"))
    files = describe_files(folder, [REQUEST, *state, *([deleted] if deleted else [])])
    for name, record in records.items():
        files |= {f"shards/{name}/{file}": entry for file, entry in record["files"].items()}
        files |= describe_files(folder, [f"shards/{name}/{SHARD}"])
    return files


def remove_strays(folder: Path, shards: Sequence[str], deleted: str | None) -> None:
    """Remove all shards and deleted rows but those named: interrupted or superseded work left them behind."""
    for path in (folder / "shards").iterdir():
        if path.is_dir() and path.name not in shards:
            shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob("deleted-*.npy"):
        if path.name != deleted:
            path.unlink(missing_ok=True)
