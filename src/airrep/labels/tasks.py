"""The fine-tunes that labels are made of, with content keys."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from airrep.corpus.corpus import Corpus, Example
from airrep.labels.plan import SubsetPlan
from airrep.runtime.artifacts.digests import json_digest
from airrep.runtime.seeding import stream_seed

KEY_DIGITS = 16


@dataclass(frozen=True)
class Place:
    """Place of a task's losses: an instance, one of its subsets (None: the LM as it was), a seed."""

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
    """Every place, in the order of work: the first seed of all subsets comes before the second of any."""
    for seed in range(seeds):
        for instance in range(len(plan)):
            if seed == 0:
                yield Place(instance, None, 0)
            for subset in range(plan.subset_count):
                yield Place(instance, subset, seed)


def list_tasks(
    plan: SubsetPlan, train: Corpus, queries: Corpus, settings: Mapping[str, Any], seeds: int
) -> list[LabelTask]:
    """Every task with its key.

    A key is a digest of the LM and the fine-tuning settings, the texts of the subset in order of rows, the texts of
    the queries, and the seed of the fine-tune; it does not depend on how many subsets or instances there are.
    """
    hashes, asked = train.content_hashes, queries.content_hashes
    texts = [_digest(asked[plan.query_rows(number)]) for number in range(len(plan))]
    setting = json_digest(settings)

    def key(place: Place) -> str:
        parts = [setting, texts[place.instance]]
        if place.subset is not None:
            members = hashes[plan.subset_rows(place.instance, place.subset)]
            parts += [_digest(members), str(fine_tune_seed(plan, place))]
        return json_digest(parts)[:KEY_DIGITS]

    return [LabelTask(place, key(place)) for place in list_places(plan, seeds)]


def used_examples(plan: SubsetPlan, train: Corpus, queries: Corpus) -> list[Example]:
    """Every example that is a member of a subset or a query, once."""
    members, asked = np.zeros(len(train), bool), np.zeros(len(queries), bool)
    for i in range(len(plan)):
        asked[plan.query_rows(i)] = True
        for j in range(plan.subset_count):
            members[plan.subset_rows(i, j)] = True
    if plan.queries_from_train:
        return list(train.take(np.flatnonzero(members | asked)))
    return [*train.take(np.flatnonzero(members)), *queries.take(np.flatnonzero(asked))]


def fine_tune_seed(plan: SubsetPlan, place: Place) -> int:
    """The seed of one fine-tune; it fixes the order of its data."""
    subset = 0 if plan.settings.kind == "paired" else place.subset or 0
    return stream_seed(plan.settings.seed, "fine-tune", place.instance, subset, place.seed)


def _digest(hashes: np.ndarray) -> str:
    return hashlib.sha256(hashes.tobytes()).hexdigest()
