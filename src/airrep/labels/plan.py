"""Subset plans on disk: instances, their queries and subsets.

A plan is a directory of kind ``subsets`` with six arrays, each in the smallest unsigned type that holds its values:

- ``train.npy``, cut by ``train_offsets.npy``: rows of the train corpus in each instance's pool, ascending;
- ``queries.npy``, cut by ``query_offsets.npy``: rows of the query corpus, ascending;
- ``members.npy``, cut by ``offsets.npy``: rows of its pool in each subset, ascending, instance after instance;
  for removals, the rows that each subset leaves out.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import DataError
from airrep.runtime.artifacts import array_digest, as_written, fetched, json_digest, new_artifact, read_manifest
from airrep.runtime.publishing import write_file
from airrep.runtime.seeding import stream_seed
from airrep.runtime.settings import Settings, count_of, count_or_share
from airrep.scoring.groups import Groups
from airrep.shapes import Bool, Int64

KIND = "subsets"
PARTS = ("train", "queries", "members")
CUTS = ("train_offsets", "query_offsets", "offsets")
ONE_ORDER = "one_order"
"""Name of :attr:`SubsetPlan.one_order` in a manifest."""
LITTLE = 0.1 + 1e-9
"""Largest share of a pool that subsets may leave out if they are to be judged by the examples that they leave out."""


class SamplingSettings(Settings):
    """Settings of a draw of cross-validation instances; defaults are the paper's, or less, to fit the data."""

    added = ("removals_by",)

    kind: Literal["random", "removals", "paired"] = "random"
    """'random' draws subsets. 'removals' takes the whole pool, then the pool without a few examples,
    for leave-one-out. 'paired' draws subsets and fine-tunes all subsets of an instance with one seed."""
    instances: int = Field(default=100, ge=1)
    """Number of train/query splits (instances), each with its own subsets; fewer if the data are too few."""
    train_count: int | None = Field(default=100_000, ge=2)
    """Number of training examples in each train/query split, or fewer if the data are too few. Subsets are drawn
    from these examples. None takes every example that may be drawn."""
    query_count: int | None = Field(default=10_000, ge=1)
    """Number of queries in each train/query split; fewer if the data are too few. None takes every query that may be
    drawn."""
    subsets: int = Field(default=100, ge=2)
    """Number of subsets to draw from the training examples of each train/query split."""
    size: int | str = 1_000
    """Size of each subset: a number of examples, or a percentage of the split's training examples, such as 99%. If you
    do not set a size, a subset has at most a fifth of these examples. A size that you give is taken as it is."""
    removals: int | None = Field(default=None, ge=1)
    """Number of removals (fine-tunes without one example) instead of random subsets. Needs kind=removals; no two
    removals share an example."""
    removal_size: int = Field(default=1, ge=1)
    """Number of examples that each removal leaves out."""
    removals_by: Literal["source", "label"] | None = None
    """Leave out each whole source or label in turn, instead of drawing subsets. Needs kind=removals."""
    stratify: Literal["source", "label"] | None = None
    """Keep each source's or label's share in pools, queries and subsets. None draws without regard to either."""
    held_out: int = Field(default=0, ge=0)
    """How many of the random splits (into training data and queries) to keep for testing. They share no text with the
    others."""
    disjoint_instances: bool = False
    """Put no example into two instances."""
    seed: int = Field(default=0, ge=0)
    """Random seed."""

    _size = field_validator("size", mode="before")(count_or_share)

    def size_of(self, pool: int) -> int:
        """Return the number of examples in each subset of a pool with *pool* examples; round a percentage."""
        return count_of(self.size, pool)


@dataclass(frozen=True, eq=False)
class Instance:
    """One cross-validation draw: a train pool, queries that are not in it, and subsets of it."""

    name: str
    """Its number, ``"0"`` and on."""
    train: Int64[np.ndarray, " n"]
    """Rows of the train corpus that form the pool, ``n``, ascending."""
    queries: Int64[np.ndarray, " q"]
    """Rows of the query corpus, ``q``, ascending."""
    subsets: Groups
    """``m`` subsets as rows of the *pool*, 0 to n − 1: row ``r`` is row ``train[r]`` of the train corpus."""


@dataclass(frozen=True, eq=False)
class SubsetPlan:
    """Instances with their queries and subsets, opened from a directory."""

    path: Path
    settings: SamplingSettings
    fingerprint: str
    """Digest of the corpora's fingerprints and of all rows: equal for the same subsets of the same data."""
    train_fingerprint: str
    """Fingerprint of the train corpus."""
    query_fingerprint: str
    """Fingerprint of the query corpus, which is the train corpus if queries were drawn from that."""
    arrays: Mapping[str, np.ndarray]
    """Stored arrays by name."""
    one_order: bool = False
    """True if all fine-tunes of an instance with the same seed use one order of the data; see :func:`lack_little`."""

    def __len__(self) -> int:
        return len(self.arrays["train_offsets"]) - 1

    @property
    def subset_count(self) -> int:
        """Number of subsets of each instance, m; for removals, the whole pool is one of them."""
        return (len(self.arrays["offsets"]) - 1) // len(self)

    @cached_property
    def instances(self) -> list[Instance]:
        """All instances; the rows of their subsets are rows of their pools."""
        return [self.instance(i) for i in range(len(self))]

    def instance(self, i: int) -> Instance:
        """One instance, without reading the others."""
        pool = self.train_rows(i)
        rows = [self._members(i, j, len(pool)) for j in range(self.subset_count)]
        names = tuple(str(j) for j in range(len(rows)))
        groups = Groups(names, np.concatenate(rows), np.cumsum([0, *map(len, rows)]).astype(np.int64))
        return Instance(str(i), pool, self.query_rows(i), groups)

    def train_rows(self, i: int) -> Rows:
        """Rows of the train corpus in the pool of instance *i*, ascending."""
        return self._rows("train", "train_offsets", i)

    def query_rows(self, i: int) -> Rows:
        """Rows of the query corpus in instance *i*, ascending."""
        return self._rows("queries", "query_offsets", i)

    def subset_rows(self, i: int, j: int) -> Rows:
        """Return the rows of the *train corpus* in subset *j* of instance *i*, in the order that a fine-tune gets them.

        The order is ascending; with :attr:`one_order`, it is that of :func:`without`.
        """
        pool = self.train_rows(i)
        members = self._members(i, j, len(pool))
        if self.one_order:
            members = without(len(pool), np.setdiff1d(np.arange(len(pool)), members))
        return pool[members]

    def check_corpora(self, train: Corpus, queries: Corpus | None = None) -> None:
        """Refuse corpora that the plan was not drawn from (DataError); without *queries*, they come from *train*."""
        asked = train if queries is None else queries
        for name, corpus, known in (("train", train, self.train_fingerprint), ("query", asked, self.query_fingerprint)):
            if corpus.fingerprint != known:
                raise DataError(
                    f"{self.path}: was drawn from other {name} data (fingerprint {known[:12]}, now "
                    f"{corpus.fingerprint[:12]}). Give the same {name} data, as DATA or with --queries, or run "
                    "`airrep sample` again."
                )

    def _members(self, i: int, j: int, n: int) -> Rows:
        """Return the rows of a subset in its pool of ``n`` examples."""
        if not 0 <= j < self.subset_count:
            raise IndexError(f"subset {j} of {self.subset_count}")
        stored = self._rows("members", "offsets", i * self.subset_count + j)
        return np.delete(np.arange(n), stored) if self.settings.kind == "removals" else stored

    def _rows(self, part: str, cuts: str, number: int) -> Rows:
        offsets = self.arrays[cuts]
        if not 0 <= number < len(offsets) - 1:
            raise IndexError(f"part {number} of {len(offsets) - 1}")
        return self.arrays[part][offsets[number] : offsets[number + 1]].astype(np.int64)


def open_plan(path: str | Path) -> SubsetPlan:
    """Open a subset plan and check every byte (ArtifactError: it is missing, unfinished, altered, or not a plan)."""
    folder = fetched(path)
    manifest = read_manifest(folder, KIND, verify=True)
    with as_written(folder):
        request, names = manifest["request"], (*PARTS, *CUTS)
        arrays = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in names}
        sums = {name: manifest["files"][f"{name}.npy"]["sha256"] for name in names}
        texts, one_order = (request["train"], request["queries"]), bool(manifest.get(ONE_ORDER))
        return SubsetPlan(
            path=folder,
            settings=SamplingSettings.of(request["settings"], str(folder)),
            fingerprint=json_digest([*texts, request["settings"]["kind"], sums, *([ONE_ORDER] if one_order else [])]),
            train_fingerprint=request["train"],
            query_fingerprint=request["queries"],
            arrays=arrays,
            one_order=one_order,
        )


def write_plan(
    path: Path,
    request: Mapping[str, Any],
    rows: Mapping[str, Sequence[Rows]],
    *,
    one_order: bool = False,
    replace: bool = False,
) -> None:
    """Write a plan; it appears under its name when it is whole.

    *request* has the fingerprints of ``train`` and ``queries``, and ``settings``; *rows* a list for each of
    :data:`PARTS`. *one_order* is written only if it is true, so that older plans keep their fingerprints and labels.
    """
    about = {"request": request, **({ONE_ORDER: True} if one_order else {})}
    with new_artifact(path, KIND, about, replace=replace) as folder:
        for part, cuts in zip(PARTS, CUTS, strict=True):
            lists = rows[part]
            write_file(folder / f"{part}.npy", npy_bytes(_compact(np.concatenate(lists))))
            write_file(folder / f"{cuts}.npy", npy_bytes(_compact(np.cumsum([0, *map(len, lists)]))))


def lack_little(settings: SamplingSettings, rows: Mapping[str, Sequence[Rows]]) -> bool:
    """True if unpaired subsets, except whole pools, all leave out the same number of examples, at most a tenth.

    So few examples change losses less than another order of the data does, so all fine-tunes should use one order.
    """
    pools, count = np.array(list(map(len, rows["train"]))), len(rows["members"]) // len(rows["train"])
    stored = np.array(list(map(len, rows["members"]))).reshape(len(pools), count)
    gone = stored if settings.kind == "removals" else pools[:, None] - stored
    some = set(gone[gone > 0].tolist())
    return settings.kind != "paired" and len(some) == 1 and bool((gone <= LITTLE * pools[:, None]).all())


def _compact(values: np.ndarray) -> np.ndarray:
    """Return the values in the smallest unsigned type that holds them."""
    return values.astype(np.min_scalar_type(int(values.max()) if len(values) else 0))


def npy_bytes(array: np.ndarray) -> bytes:
    """Return the bytes of an array's ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


KEY_DIGITS = 16


@dataclass(frozen=True)
class Place:
    """Place of a task's losses: an instance, one of its subsets (None: before any fine-tune), a seed."""

    instance: int
    subset: int | None
    seed: int

    def __str__(self) -> str:
        if self.subset is None:
            return f"instance {self.instance}, before any fine-tune"
        return f"instance {self.instance}, subset {self.subset}, seed {self.seed}"


@dataclass(frozen=True)
class LabelTask:
    """One fine-tune and the losses after it."""

    place: Place
    key: str
    """16 hex digits: equal keys give equal losses."""


def list_places(plan: SubsetPlan, seeds: int) -> Iterator[Place]:
    """Yield every place in the order of work: all subsets with the first seed, then all with the second, and so on."""
    for seed in range(seeds):
        for instance in range(len(plan)):
            if seed == 0:
                yield Place(instance, None, 0)
            for subset in range(plan.subset_count):
                yield Place(instance, subset, seed)


def list_tasks(
    plan: SubsetPlan, train: Corpus, queries: Corpus, settings: Mapping[str, Any], seeds: int
) -> list[LabelTask]:
    """List every task with its key.

    A key is a digest of the LM and the fine-tuning settings, the texts of the subset in order of rows, the texts of
    the queries, and the seed of the fine-tune; it does not depend on how many subsets or instances there are.
    """
    hashes, asked = train.content_hashes, queries.content_hashes
    texts = [array_digest(asked[plan.query_rows(number)]) for number in range(len(plan))]
    setting = json_digest(settings)

    def key(place: Place) -> str:
        parts = [setting, texts[place.instance]]
        if place.subset is not None:
            members = hashes[plan.subset_rows(place.instance, place.subset)]
            parts += [array_digest(members), str(fine_tune_seed(plan, place))]
        return json_digest(parts)[:KEY_DIGITS]

    return [LabelTask(place, key(place)) for place in list_places(plan, seeds)]


def without(n: int, gone: Rows) -> Rows:
    """Return rows 0 to n − 1 without those in *gone*; the last rows take their places.

    Two fine-tunes with one seed that leave out equally many rows then see most examples at the same places of the same
    order, so that their losses differ by the examples left out more than by chance.
    """
    left = np.arange(n - len(gone))
    left[gone[gone < len(left)]] = np.setdiff1d(np.arange(len(left), n), gone)
    return left


def members_of(plan: SubsetPlan, count: int) -> Bool[np.ndarray, " n"]:
    """Return a mask of *count* training examples, True for members of any subset."""
    members = np.zeros(count, bool)
    for i in range(len(plan)):
        for j in range(plan.subset_count):
            members[plan.subset_rows(i, j)] = True
    return members


def used_examples(plan: SubsetPlan, train: Corpus, queries: Corpus) -> list[Example]:
    """List every example that is a query or a member of a subset, once."""
    members, asked = members_of(plan, len(train)), np.zeros(len(queries), bool)
    for i in range(len(plan)):
        asked[plan.query_rows(i)] = True
    if queries.fingerprint == train.fingerprint:
        return list(train.take(np.flatnonzero(members | asked)))
    return [*train.take(np.flatnonzero(members)), *queries.take(np.flatnonzero(asked))]


def fine_tune_seed(plan: SubsetPlan, place: Place) -> int:
    """Return the seed of one fine-tune, which decides the order of its data."""
    one = plan.settings.kind == "paired" or plan.one_order
    subset = 0 if one else place.subset or 0
    return stream_seed(plan.settings.seed, "fine-tune", place.instance, subset, place.seed)
