"""A teacher: instances labelled by an index instead of by fine-tunes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from airrep.arrays import Features, Rows
from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError, DataError
from airrep.index.index import Index
from airrep.labels.instance import LabelledInstance, texts_of
from airrep.labels.plan import SamplingSettings
from airrep.labels.sampling import draw_rows
from airrep.labels.subsets import draw_without_repeats
from airrep.runtime.metering import MeasuredCost, device_of, measuring
from airrep.runtime.seeding import stream, stream_seed
from airrep.runtime.settings import Settings
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import AnyPooling

_PREFIX = "teacher_"


class TeacherSettings(Settings):
    """Settings of a teacher's instances and of the training steps on them."""

    steps: int = Field(default=500, ge=1)
    """Most steps on the teacher's labels. They come before those on losses."""
    sizes: tuple[int, ...] = (100,)
    """Sizes of its subsets, such as 1,10,100; 1 ranks single examples. Instance i has the i-th of these, in turn."""
    instances: int = Field(default=20, ge=1)
    """Draws of queries and subsets from the index. Each has its own train pool too."""
    examples: int = Field(default=20_000, ge=4)
    """Most examples that all this is drawn from: a random part of a larger index, and of other queries."""
    query_count: int = Field(default=500, ge=1)
    """Queries of each instance, all different."""
    subsets: int = Field(default=1000, ge=2)
    """Random subsets of each pool; single examples, all different, for size 1."""
    pool: str | None = None
    """How the teacher pools; its method's own if not given."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Of the teacher's attention. The larger, the flatter."""
    members: int | None = Field(default=None, ge=2)
    """About how many members all subsets of a step have; None takes those of a step on the largest subsets."""
    rate: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Learning rates of these steps, as a multiple of those on losses."""
    seed: int = Field(default=0, ge=0)
    """Seed of all draws."""

    @field_validator("sizes", mode="before")
    @classmethod
    def _some_sizes(cls, sizes: object) -> object:
        """``"1,10"`` is (1, 10), as command lines give it."""
        parts = sizes.split(",") if isinstance(sizes, str) else sizes
        listed = parts if isinstance(parts, list | tuple) else [parts]
        found = [int(part) if isinstance(part, str) and part.strip().isdecimal() else part for part in listed]
        if not found or any(type(size) is not int or size < 1 for size in found):
            raise ValueError("expected numbers from 1 up, such as 1,10,100")
        return tuple(found)


def split_teacher_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split settings into those of a training and those of its teacher, which begin with ``teacher_`` and lose it."""
    own = {name.removeprefix(_PREFIX): value for name, value in values.items() if name.startswith(_PREFIX)}
    return {name: value for name, value in values.items() if not name.startswith(_PREFIX)}, own


@dataclass(frozen=True, eq=False)
class Teaching:
    """A teacher's instances, which an encoder learns from first, and settings of these steps."""

    instances: Sequence[LabelledInstance]
    steps: int = 500
    """Most steps on the instances."""
    members: int | None = None
    """About how many members all subsets of a step have; None takes those of a step on the largest subsets."""
    rate: float = 1.0
    """Learning rates, as a multiple of those on labels."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """JSON values for the card: the index and the settings."""
    spent: MeasuredCost | None = None
    """Cost of labelling the instances; None if not measured."""

    def subsets_per_step(self, most: int) -> list[int]:
        """Numbers of subsets in a step on each instance, *most* on the largest subsets.

        All steps have about as many members.
        """
        sizes = [float(instance.subsets.sizes.mean()) for instance in self.instances]
        members = self.members or most * max(sizes)
        return [max(2, round(members / size)) for size in sizes]


def check_teaching(teaching: Teaching) -> None:
    """Refuse a teacher that nothing can be learnt from.

    Raises:
        ConfigError: no instances, no steps, or an impossible rate or number of members.
    """
    possible = teaching.steps >= 1 and 0 < teaching.rate < np.inf and (teaching.members is None or teaching.members > 1)
    if not teaching.instances or not possible:
        raise ConfigError(
            f"teaching: {len(teaching.instances)} instances, steps={teaching.steps}, rate={teaching.rate}, "
            f"members={teaching.members}; expected one or more instances, one or more steps, a rate above 0 and two or "
            "more members. Correct it."
        )


def teach(
    index: Index,
    settings: TeacherSettings | None = None,
    *,
    queries: Corpus | None = None,
    unseen: Sequence[LabelledInstance] = (),
    tell: Callable[[str], None] | None = None,
    progress: OnProgress | None = None,
) -> Teaching:
    """Label random subsets of an index by its own group scores f.

    The losses are −f, so that their labels (Eq. 7) are f brought to mean 0 and deviation 1 over the subsets of an
    instance.

    Instance i depends on (seed, i) alone. Queries and train pool of an instance share no text.

    Args:
        index: the teacher; examples are drawn from those that are not deleted.
        settings: the defaults if None.
        queries: corpus that queries are drawn from; the index's own examples if None, with their stored features if
            the method encodes queries as it encodes training examples.
        unseen: held-out and test instances; examples and queries with one of their texts are left out.
        tell: called with a sentence on the examples that were left out.
        progress: called with the numbers of encoded queries and of all queries.

    Raises:
        ConfigError: a pool that does not exist or does not fit the method.
        DataError: too few examples are left, or a score is not finite.
    """
    chosen = settings or TeacherSettings()
    pooling = index.attributor.pooling(chosen.pool, chosen.temperature)
    with measuring(device_of(index.attributor.settings)) as meter:
        source = _TeacherCorpus.of(index, queries, texts_of(unseen), chosen)
        if tell is not None and source.left_out:
            tell(f"{index.path}: {source.left_out:,} examples are in held-out or test instances and were left out")
        draws = [source.draw(chosen, number) for number in range(chosen.instances)]
        features = source.features(np.unique(np.concatenate([draw.queries for draw in draws])), progress)
        instances = [features.label(draw, pooling, number) for number, draw in enumerate(draws)]
    described = _described(index, source, chosen, pooling)
    return Teaching(instances, chosen.steps, chosen.members, chosen.rate, described, meter.spent)


def _described(
    index: Index, source: "_TeacherCorpus", settings: TeacherSettings, pooling: AnyPooling
) -> dict[str, Any]:
    lm = index.manifest["settings"].get("lm")
    asked = settings.model_dump(mode="json", exclude={"steps", "members", "rate", "pool", "temperature"})
    # The last part of the LM's path alone: cards are published.
    return {
        "method": index.method,
        "index": index.fingerprint,
        "lm": None if lm is None else Path(lm).name,
        "examples": len(source.rows),
        "left_out": source.left_out,
        "pool": pooling.text,
        "temperature": pooling.temperature if pooling.attends else None,
        "asked": asked,
    }


@dataclass(frozen=True, eq=False)
class _TeacherDraw:
    """Rows of one instance."""

    train: Rows
    """Rows ``(n,)`` of the teacher's examples."""
    queries: Rows
    """Rows ``(q,)`` of the teacher's queries."""
    subsets: Groups
    """``(m,)`` groups of rows of the train pool."""


@dataclass(frozen=True, eq=False)
class _TeacherCorpus:
    """Examples and queries that instances are drawn from, without held-out and test texts."""

    index: Index
    corpus: Corpus
    """Examples of the index."""
    rows: Rows
    """Rows of the examples in the index."""
    queries: Corpus
    """Queries; the very object of the examples where no others were given."""
    left_out: int
    """Number of examples and queries with a held-out or test text."""

    @classmethod
    def of(
        cls, index: Index, queries: Corpus | None, unseen: np.ndarray, settings: TeacherSettings
    ) -> "_TeacherCorpus":
        """Take the examples without unseen texts, at most as many as the settings say."""
        whole = Corpus(pa.concat_tables([shard.examples.table for shard in index.shards]))
        live = np.flatnonzero(index.live)
        rows = live[~np.isin(whole.content_hashes[live], unseen)]
        if not len(rows):
            raise DataError(f"{index.path}: all examples are held out; expected others. Teach with another index.")
        out, rows = len(live) - len(rows), _part(rows, settings, "examples")
        corpus = whole.take(rows)
        if queries is None:
            return cls(index, corpus, rows, corpus, out)
        kept = np.flatnonzero(~np.isin(queries.content_hashes, unseen))
        if not len(kept):
            raise DataError("teacher queries: all are held out; expected others. Give other queries.")
        taken = queries.take(_part(kept, settings, "queries"))
        return cls(index, corpus, rows, taken, out + len(queries) - len(kept))

    def draw(self, settings: TeacherSettings, number: int) -> _TeacherDraw:
        """Draw one instance."""
        seed, size = stream_seed(settings.seed, "teacher", number), settings.sizes[number % len(settings.sizes)]
        sampling = SamplingSettings(
            instances=1,
            train_count=None,
            query_count=settings.query_count,
            subsets=settings.subsets if size > 1 else 2,  # the fewest: random singles repeat, so others are drawn below
            size=size,
            seed=seed,
        )
        try:
            found = draw_rows(self.corpus, sampling, None if self.queries is self.corpus else self.queries)
        except DataError as error:  # which names settings of `airrep sample`
            problem = str(error).removeprefix("instance 0: ").partition(". ")[0]
            raise DataError(
                f"teacher {self.index.path}: instance {number}: {problem}. Give more examples, or lower "
                f"teacher_query_count (now {settings.query_count:,}) or --teacher-sizes."
            ) from error
        (pool,), (queries,), members = found["train"], found["queries"], found["members"]
        if size == 1:
            singles = stream(seed, "singles").permutation(len(pool))[: settings.subsets]
            members = list(singles[:, None])
        return _TeacherDraw(pool, queries, Groups.from_lists({str(j): rows for j, rows in enumerate(members)}))

    def features(self, rows: Rows, progress: OnProgress | None) -> "_QueryFeatures":
        """Features of some queries: stored ones where they serve, else computed."""
        if self.queries is self.corpus and self.index.attributor.symmetric:
            return _QueryFeatures(self, rows, self.index.features(self.rows[rows]))
        return _QueryFeatures(self, rows, self.index.encode_queries(self.queries.take(rows), progress))


def _part(rows: Rows, settings: TeacherSettings, name: str) -> Rows:
    """All rows, or a random part of them where they are many, ascending."""
    if len(rows) <= settings.examples:
        return rows
    part: Rows = rows[draw_without_repeats(stream(settings.seed, "teacher", name), len(rows), settings.examples)]
    return part


@dataclass(frozen=True, eq=False)
class _QueryFeatures:
    """Features of the queries of all instances."""

    source: _TeacherCorpus
    rows: Rows
    """Rows of the queries, ascending."""
    features: Features

    def label(self, draw: _TeacherDraw, pooling: AnyPooling, number: int) -> LabelledInstance:
        """An instance whose losses are minus the teacher's group scores."""
        source, subsets = self.source, draw.subsets
        places = np.searchsorted(self.rows, draw.queries)
        members = Groups(subsets.names, source.rows[draw.train][subsets.rows], subsets.offsets)
        index = source.index
        scores = group_scores(self.features[places], index.blocks, members, pooling, examples=len(index))
        queries, train = source.queries.take(draw.queries), source.corpus.take(draw.train)
        return LabelledInstance(f"teacher#{number}", train, queries, subsets, -scores)
