"""Labels on disk: losses of queries after fine-tuning on subsets."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from airrep.corpus.corpus import Corpus, of_answers
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.labels.ledger import KIND, Ledger, Quarantined, QueryLosses, keys_name, losses_of, read_state
from airrep.labels.plan import LITTLE, LabelTask, Place, SubsetPlan, list_places, open_plan
from airrep.runtime.artifacts import (
    MANIFEST,
    REQUEST,
    as_written,
    check_digests,
    check_sizes,
    fetched,
    json_digest,
    read_manifest,
)
from airrep.runtime.remote.places import Anchored
from airrep.scoring.groups import Groups
from airrep.shapes import Float32


@dataclass(frozen=True, eq=False)
class LabelledInstance:
    """One cross-validation draw, with the losses of its queries after fine-tuning on each of its subsets."""

    name: str
    """Unique in a run, such as ``"0"``."""
    train: Corpus
    """The train pool, ``n`` examples."""
    queries: Corpus
    """``q`` examples, none of them in the train pool."""
    subsets: Groups
    """``m`` subsets as rows of the train pool."""
    losses: Float32[np.ndarray, "q m"]
    """Mean nats per response token after fine-tuning on each subset, averaged over its seeds; lower = better.
    NaN where a fine-tune is missing."""
    base_losses: Float32[np.ndarray, " q"] | None = None
    """Losses of the language model before any fine-tuning."""
    by_seed: Float32[np.ndarray, "s q m"] | None = None
    """Losses of each seed; None if there is only one seed."""

    def __post_init__(self) -> None:
        expected = (len(self.queries), len(self.subsets))
        if self.losses.shape != expected:
            raise DataError(
                f"instance {self.name} (train/query split): losses has shape {self.losses.shape}, but must be "
                f"{expected}: queries by subsets. Give one loss for each query and subset."
            )

    @property
    def query_texts(self) -> list[str]:
        """Content hash of each query."""
        return [text.decode() for text in self.queries.content_hashes.tolist()]


def is_of_removals(instance: LabelledInstance) -> bool:
    """True if the first subset is the whole pool and each of the others leaves out less than half of the pool."""
    n, sizes = len(instance.train), instance.subsets.sizes
    return bool(len(sizes) > 1 and sizes[0] == n and 2 * min(sizes[1:]) > n)


def leaves_little_out(instance: LabelledInstance) -> bool:
    """True if each subset leaves out some of its pool, but at most a tenth."""
    n, sizes = len(instance.train), instance.subsets.sizes
    return bool(len(sizes) and max(sizes) < n <= min(sizes) / (1 - LITTLE))


def refuse_removals(instance: LabelledInstance) -> None:
    if is_of_removals(instance):
        raise DataError(
            f"instance {instance.name} (train/query split): has removals (fine-tunes without a few examples), but "
            "fine-tunes on random subsets are needed. Give labels (measured losses) made from `airrep sample "
            "--subsets M`."
        )


def check_disjoint(seen: Sequence[LabelledInstance], held_out: Sequence[LabelledInstance]) -> None:
    """Refuse *held_out* with an example or a query that is also in *seen*, by its texts."""
    parts = [part.content_hashes for instance in seen for part in (instance.train, instance.queries)]
    known = np.concatenate([np.empty(0, "S16"), *parts])
    for instance in held_out:
        for part in (instance.train, instance.queries):
            rows = np.flatnonzero(np.isin(part.content_hashes, known))
            if len(rows):
                raise DataError(
                    f"held-out labels (measured losses), instance {instance.name}: example '{part[int(rows[0])].id}' "
                    "is also in the labels that are trained on. Make the held-out labels from other examples."
                )


def identity(instance: LabelledInstance) -> str:
    """64 hex digits over the examples, subsets and losses of an instance."""
    found = sha256(f"{instance.train.fingerprint} {instance.queries.fingerprint}".encode())
    for array in (instance.subsets.rows, instance.subsets.offsets, instance.losses):
        found.update(f" {array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def distinct(instances: Sequence[LabelledInstance]) -> dict[str, str]:
    """Map the :func:`identity` of each instance to its name; refuse two with equal content, which would count twice."""
    found: dict[str, str] = {}
    for instance in instances:
        content = identity(instance)
        if content in found:
            raise ConfigError(
                f"instances (train/query splits) {found[content]} and {instance.name} have the same examples, "
                "subsets and losses, so they would count twice. Remove one of the two."
            )
        found[content] = instance.name
    return found


def shown_json(value: object) -> str:
    """Return a JSON value as text for an error, cut to 60 characters."""
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else f"{text[:60]}…"


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Pattern of the names of files and folders in a request."""
WHOLE = "all"
"""Name of the subset that leaves no source or label out."""


class Labels:
    """The losses of a label directory, finished or not.

    Losses are mean nats per response token, lower = better, NaN where a fine-tune is missing or was given up.

    Example:
        >>> labels = airrep.open("runs/labels")
        >>> [instance.losses.shape for instance in labels.instances(train)]
        [(6, 10), (6, 10)]
    """

    def __init__(self, path: str | Path) -> None:
        """Open a label directory (ArtifactError: it holds no labels, was altered, or lacks files or parts of them)."""
        self._place = Anchored.of(fetched(path, loose=True))
        self.manifest: Mapping[str, Any] | None = None
        if (self.path / MANIFEST).is_file():
            self.manifest = read_manifest(self.path, KIND)
            check_sizes(self.path, self.manifest["files"])
        state = self.manifest or read_state(self.path)
        if state is None:
            raise ArtifactError(f"{self.path}: holds no labels that `airrep label` wrote. Check the path.")
        with as_written(self.path):
            _check_state(state)
        self.state: Mapping[str, Any] = state
        self._arrays: dict[str, np.ndarray] = {}

    @property
    def path(self) -> Path:
        """The label directory, as it was given; an absolute path if the working directory has changed since."""
        return self._place.path

    def __repr__(self) -> str:
        total = len(self.tasks)
        return f"Labels({str(self.path)!r}, {total - len(self.missing) - len(self.quarantined)} of {total} finished)"

    @property
    def complete(self) -> bool:
        """True if the directory is finished: only tasks that were given up and left out are missing."""
        return self.manifest is not None

    @property
    def growing(self) -> bool:
        """True if a run is extending finished labels by seeds, subsets or instances, which do not show yet."""
        wanted = read_state(self.path)
        return self.complete and wanted is not None and wanted["keys"] != self.state["keys"]

    @property
    def seeds(self) -> int:
        """Number of fine-tunes of each subset."""
        return int(self.state["counts"]["seeds"])

    @cached_property
    def fingerprint(self) -> str:
        """64 hex digits over losses, subsets, LM and fine-tuning (ArtifactError: the labels are unfinished)."""
        manifest = self._finished_manifest()
        with as_written(self.path):
            decisive = {name: manifest[name] for name in ("fine_tune", "plan", "files")}
            return json_digest({**decisive, "lm": manifest["lm"]["fingerprint"]})

    @cached_property
    def plan(self) -> SubsetPlan:
        return open_plan(self.path / self.state["plan_folder"])

    @cached_property
    def tasks(self) -> list[LabelTask]:
        """Every fine-tune, finished or not."""
        name = self.state["keys"]
        keys = [key.decode(errors="replace") for key in self._load(name).astype("S16").ravel().tolist()]
        places = list(list_places(self.plan, self.seeds))
        if len(keys) != len(places) or keys_name(keys) != name:
            raise ArtifactError(
                f"{self.path / name}: was altered after it was written. Restore this file, or make the labels "
                "(measured losses) again."
            )
        return [LabelTask(place, key) for place, key in zip(places, keys, strict=True)]

    @cached_property
    def _places(self) -> dict[str, Place]:
        return {task.key: task.place for task in self.tasks}

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self.path, self.state["settings"])

    @cached_property
    def quarantined(self) -> list[Quarantined]:
        """The fine-tunes that were given up, with the reason."""
        if self.manifest is not None:
            with as_written(self.path):
                return [Quarantined(**{**one, "place": Place(**one["place"])}) for one in self.manifest["quarantined"]]
        return self._ledger.given_up(task for task in self.tasks if self.read(task.key) is None)

    @cached_property
    def missing(self) -> list[Place]:
        """The fine-tunes that are neither finished nor given up."""
        if self.manifest is not None:
            return []
        given_up = {entry.place for entry in self.quarantined}
        return [task.place for task in self.tasks if task.place not in given_up and self.read(task.key) is None]

    def summary(self) -> dict[str, Any]:
        """Return the manifest; for unfinished labels, the request and counts of its tasks."""
        if self.manifest is not None:
            return dict(self.manifest)
        finished = len(self.tasks) - len(self.missing) - len(self.quarantined)
        counts = {"tasks": len(self.tasks), "finished": finished, "missing": len(self.missing)}
        return {**self.state, **counts, "quarantined": [asdict(entry) for entry in self.quarantined]}

    def read(self, key: str) -> QueryLosses | None:
        """Return the losses of one task, ``(q,)``; None if they are missing.

        Losses before any fine-tune are NaN if another trainer made the labels and did not measure them.
        """
        place = self._places.get(key)
        if place is None:
            return None
        if self.manifest is None:
            return self._ledger.read(key, len(self.plan.query_rows(place.instance)))
        if place.subset is None:
            found = self._sealed("base", place.instance)
        else:
            found = self._sealed("losses", place.instance)[place.seed, :, place.subset]
        given_up = place.subset is not None or any(entry.place == place for entry in self.quarantined)
        return None if given_up and np.isnan(found).any() else np.ascontiguousarray(found)

    def losses(self, instance: int) -> Float32[np.ndarray, "s q m"]:
        """Return the losses of one instance, by seed, query and subset; NaN where they are missing."""
        if self.manifest is not None:
            return np.array(self._sealed("losses", instance))
        shape = (self.seeds, len(self.plan.query_rows(instance)), self.plan.subset_count)
        return losses_of(self.tasks, instance, shape, lambda task: self.read(task.key))[0]

    def base_losses(self, instance: int) -> Float32[np.ndarray, " q"] | None:
        """Return the losses of one instance's queries before any fine-tune; None if they are missing."""
        key = next(task.key for task in self.tasks if task.place == Place(instance, None, 0))
        found = self.read(key)
        return None if found is None or np.isnan(found).any() else found

    def instances(
        self, train: CorpusLike, queries: CorpusLike | None = None, *, partial: bool = False
    ) -> list[LabelledInstance]:
        """Return every instance with its examples and losses, averaged over its seeds.

        *train* is the data that the subsets were drawn from, in any form that :func:`airrep.build_index` takes. Give
        *queries* if the queries were drawn from other data. *partial* accepts unfinished labels, with NaN where a
        fine-tune is missing. ArtifactError: the labels were made from other data, or are unfinished.
        """
        if not partial:
            self._finished_manifest()
        train = as_corpus(train)
        asked = train if queries is None else as_corpus(queries, "queries", spanned=True)
        self.corpus_of("train", [train])
        asked = self.corpus_of("queries", [asked])
        return [self._instance(number, train, asked) for number in range(len(self.plan))]

    def corpus_of(self, name: Literal["train", "queries"], corpora: Sequence[Corpus]) -> Corpus:
        """Return the corpus that pools or queries were drawn from (ArtifactError: it is not among *corpora*)."""
        wanted = self.state[name]
        asked = map(of_answers, corpora) if name == "queries" else ()  # made only if none of the corpora is it
        found = next((corpus for corpus in chain(corpora, asked) if corpus.fingerprint == wanted), None)
        if found is None:
            given = ", ".join(corpus.fingerprint[:12] for corpus in corpora)
            lacks = f"was made from other {name} data (fingerprint {wanted[:12]}; given: {given})"
            told = lacks if given else f"needs its {name} data (fingerprint {wanted[:12]}), and no data are given"
            raise ArtifactError(f"{self.path}: {told}. Give the file of the {name} data: --data FILE.")
        return found

    def _instance(self, number: int, train: Corpus, queries: Corpus) -> LabelledInstance:
        drawn, by_seed = self.plan.instance(number), self.losses(number)
        pool, by = train.take(drawn.train), self.plan.settings.removals_by
        return LabelledInstance(
            name=drawn.name,
            train=pool,
            queries=queries.take(drawn.queries),
            subsets=drawn.subsets if by is None else _named_by(drawn.subsets, pool, by),
            losses=mean_over_seeds(by_seed),
            base_losses=self.base_losses(number),
            by_seed=by_seed if self.seeds > 1 else None,
        )

    def verify(self) -> None:
        """Check every byte of finished labels (ArtifactError: one was altered, or the labels are unfinished)."""
        check_digests(self.path, self._finished_manifest()["files"])

    def _finished_manifest(self) -> Mapping[str, Any]:
        """Return the manifest; ArtifactError for unfinished labels."""
        if self.manifest is None:
            raise ArtifactError(
                f"{self.path}: is unfinished: of {len(self.tasks):,} fine-tunes and evaluations, {len(self.missing):,} "
                f"did not run and {len(self.quarantined):,} failed for good. To run those that did not, repeat the "
                "command that wrote this folder. To go on without them, add --partial."
            )
        return self.manifest

    def _sealed(self, part: str, instance: int) -> np.ndarray:
        manifest, shape = self._finished_manifest(), (len(self.plan.query_rows(instance)),)
        with as_written(self.path):
            name = manifest["arrays"][instance][part]
            if name not in manifest["files"]:
                raise ValueError
        found = self._load(name)
        if found.dtype != np.float32 or found.shape != (
            shape if part == "base" else (self.seeds, *shape, self.plan.subset_count)
        ):
            raise ArtifactError(f"{self.path / name}: was altered after it was written. Restore it.")
        return found

    def _load(self, name: str) -> np.ndarray:
        """Map an array from the disk; the first time, check its digest if the labels are finished."""
        if name not in self._arrays:
            if self.manifest is not None:
                with as_written(self.path):
                    entry = self.manifest["files"][name]
                check_digests(self.path, {name: entry})
            try:
                self._arrays[name] = np.load(self.path / name, mmap_mode="r", allow_pickle=False)
            except Exception as error:  # damaged headers of arrays raise nearly anything
                raise ArtifactError(
                    f"{self.path / name}: cannot be read as an array ({type(error).__name__}). Restore it from a copy."
                ) from error
        return self._arrays[name]


def _named_by(subsets: Groups, pool: Corpus, by: Literal["source", "label"]) -> Groups:
    """Name subsets after the source or label that they leave out; the first subset is the whole pool."""
    values, everyone = pool.values(by), np.arange(len(pool))
    gone = [np.setdiff1d(everyone, subsets.members(j))[0] for j in range(1, len(subsets))]
    return replace(subsets, names=(WHOLE, *(f"{by} {values[row]}" for row in gone)))


def _check_state(state: Mapping[str, Any]) -> None:
    """Raise an exception of any type for a request that no label run wrote."""
    texts = ("keys", "plan_folder", "settings", "train", "queries")
    if not all(isinstance(state[name], str) for name in texts) or type(state["counts"]["seeds"]) is not int:
        raise TypeError
    if state["counts"]["seeds"] < 1 or not all(_NAME.fullmatch(state[name]) for name in texts[:3]):
        raise ValueError


def mean_over_seeds(losses: Float32[np.ndarray, "s q m"]) -> Float32[np.ndarray, "q m"]:
    """Return the mean over seeds that are not NaN; NaN where all are."""
    # Not np.nanmean, which warns where all seeds are missing.
    there = ~np.isnan(losses)
    count = there.sum(axis=0)
    total = np.where(there, losses, 0).sum(axis=0, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)


def holds_labels(folder: Path) -> bool:
    """True if a directory holds labels, finished or not (ArtifactError: its manifest was altered)."""
    if (folder / MANIFEST).is_file():
        return bool(read_manifest(folder)["kind"] == KIND)
    return (folder / REQUEST).is_file() and any(folder.glob("keys-*.npy"))
