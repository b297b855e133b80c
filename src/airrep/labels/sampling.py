"""Draws of cross-validation instances from a corpus."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.corpus.table import id_codes
from airrep.errors import ConfigError, DataError, many
from airrep.labels.plan import KIND, PARTS, SamplingSettings, SubsetPlan, lack_little, open_plan, write_plan
from airrep.runtime.seeding import stream
from airrep.runtime.stage import Stage

EXAMPLES_OF_AN_INSTANCE, EXAMPLES_OF_A_QUERY = 1_100, 11
"""Examples of the data for each instance, and for each query of an instance; both ratios are the paper's."""
SIZES_OF_A_POOL = 5
"""Size of a pool in sizes of its subsets, large enough that subsets differ."""
SPARED = 0.9
"""Share of an instance's free examples that its pool takes if instances may not share texts, since some may repeat."""

_compute: Any = pyarrow.compute  # its type stubs refuse large_string


def sample(
    train: CorpusLike,
    out: str | Path,
    settings: SamplingSettings | Mapping[str, Any] | None = None,
    queries: CorpusLike | None = None,
    *,
    replace: bool = False,
) -> SubsetPlan:
    """Draw cross-validation instances and write them as a subset plan.

    Instance i depends on (seed, i) and its subset j on (seed, i, j), so that more instances or subsets leave the
    earlier ones as they are. A text that is a query of an instance is never in its train pool, even where
    examples repeat. An existing plan that was drawn in the same way is returned as it is.

    Args:
        train: the data that train pools are drawn from, in any form that :func:`airrep.build_index` takes.
        out: the directory to make.
        settings: settings of the draw, or a dict of some; the others are chosen to fit the data (:func:`fitted`).
        queries: the data that queries are drawn from; the train corpus if None.
        replace: replace an existing plan that differs.

    Raises:
        ConfigError: settings contradict each other.
        DataError: there are too few examples, subsets are not smaller than their pool, examples lack the source or
            label to stratify or remove by, or pools differ in the number of sources or labels to remove.
        ArtifactError: *out* holds something else, another process writes there, or *out* cannot be written.

    Example:
        >>> settings = {"instances": 1, "train_count": 18, "query_count": 6, "subsets": 4, "size": 4}
        >>> plan = airrep.sample(train, "runs/plan", settings)
        >>> plan.instances[0].name
        '0'
    """
    settings, train = SamplingSettings.given(settings), as_corpus(train)
    origin = train if queries is None else as_corpus(queries, "queries")
    settings = fitted(settings, train, origin)
    _check(settings)
    request = {"train": train.fingerprint, "queries": origin.fingerprint, "settings": settings.model_dump(mode="json")}
    stage = Stage(out, KIND, "subsets drawn", request, replace, shown=_flat)
    if stage.finished() is None:
        rows = draw_rows(train, settings, origin)
        write_plan(stage.path, request, rows, one_order=lack_little(settings, rows), replace=replace)
    return open_plan(stage.path)


def fitted(settings: SamplingSettings, train: Corpus, queries: Corpus) -> SamplingSettings:
    """Fill in the settings that were not given, so that they fit the data.

    Data as large as the paper's get its values: 100 instances of 100,000 examples and 10,000 queries. Smaller data get
    fewer instances: two or more from 2,200 examples on, else one. A single instance takes all examples except its
    queries as its pool. If queries come from the train corpus, at most one example in eleven becomes a query. A subset
    has a fifth of its pool, at most 1,000 examples.
    """
    given = settings.model_dump(include=settings.model_fields_set)
    own, n, paper = queries is train, len(train), SamplingSettings.model_fields
    texts = len(np.unique(queries.content_hashes))
    most = min(settings.instances, n // EXAMPLES_OF_AN_INSTANCE, texts)
    many = given.get("instances") or max(1, settings.held_out, most)
    parts = many if settings.disjoint_instances else settings.held_out + (many > settings.held_out)
    most = min(texts // parts, n // parts // EXAMPLES_OF_A_QUERY) if own else texts // parts
    asked = given.get("query_count", max(1, min(paper["query_count"].default, most)))
    left = n // parts - own * (asked or 0)
    pool = left if parts == 1 else int(SPARED * left)
    largest = paper["train_count"].default
    count = given.get("train_count", None if parts == 1 and n <= largest else max(2, min(largest, pool)))
    size = max(1, min(paper["size"].default, min(pool, count or pool) // SIZES_OF_A_POOL))
    found = {"instances": many, "query_count": asked, "train_count": count}
    if settings.kind != "removals":  # removals have no random subsets
        found["size"] = size
    return SamplingSettings.of({**settings.model_dump(), **found, **given})


def draw_rows(train: Corpus, settings: SamplingSettings, queries: Corpus) -> dict[str, list[Rows]]:
    """Draw the rows that :func:`sample` would write, by parts of a plan; arguments and errors are the same."""
    draw = _Draw(train, queries, settings)
    rows: dict[str, list[Rows]] = {part: [] for part in PARTS}
    for i in range(settings.instances):
        pool, asked = draw.instance(i)
        rows["train"].append(pool)
        rows["queries"].append(asked)
        subsets = list(draw.subsets(i, pool))
        if i and len(subsets) * i != len(rows["members"]):
            raise DataError(
                f"instance {i} (train/query split): has {many(len(subsets) - 1, f'different {settings.removals_by}')}, "
                f"but earlier instances have {len(rows['members']) // i - 1:,}. All must have equally many. Set "
                f"stratify={settings.removals_by}, so that all instances have each {settings.removals_by}, or raise "
                "train_count."
            )
        rows["members"] += subsets
    return rows


def _check(settings: SamplingSettings) -> None:
    counted, parted = settings.removals is not None, settings.removals_by is not None
    if settings.kind == "removals" and not (counted or parted):
        raise ConfigError(
            "kind=removals (fine-tunes that each leave out a few examples) needs removals or removals_by. Set "
            "removals=NUMBER, removals_by=source or removals_by=label."
        )
    if settings.kind != "removals" and (counted or parted):
        name = "removals" if counted else "removals_by"
        given = f"{name}={getattr(settings, name)}: needs kind=removals, but kind is {settings.kind}."
        raise ConfigError(f"{given} Set kind=removals, or remove {name}.")
    if parted and (counted or settings.removal_size != 1):
        raise ConfigError(
            f"removals_by={settings.removals_by}: leaves out one whole {settings.removals_by} at a time, so removals "
            "and removal_size have no effect. Remove removals and removal_size."
        )
    if settings.held_out > settings.instances:
        raise ConfigError(
            f"held_out={settings.held_out}: is more than instances={settings.instances} (train/query splits). Lower "
            "held_out, or raise instances."
        )


def _flat(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with its parts named as users set them, for errors."""
    corpora = {f"{name} corpus": request[name] for name in ("train", "queries")}
    return corpora | dict(request["settings"])


class _Draw:
    """Draws instances, one after the other."""

    def __init__(self, train: Corpus, queries: Corpus, settings: SamplingSettings) -> None:
        self._settings = settings
        self._texts, self._query_texts = _texts(train, queries)
        self._first = np.zeros(len(queries), bool)  # the query is the first with its text
        self._first[np.unique(self._query_texts, return_index=True)[1]] = True
        self._strata, self._query_strata = (
            _codes(corpus, settings.stratify, "stratify") for corpus in (train, queries)
        )
        self._parts = _codes(train, settings.removals_by, "removals_by")  # groups that removals leave out
        # Texts of instances that may not share texts.
        self._taken = np.zeros(max(self._texts.max(), self._query_texts.max()) + 1, bool)

    def instance(self, i: int) -> tuple[Rows, Rows]:
        settings = self._settings
        free, generator = self._first & ~self._taken[self._query_texts], stream(settings.seed, "queries", i)
        queries = _drawn(
            generator, free, settings.query_count, self._query_strata, f"instance {i} (train/query split)", "query"
        )
        asked = np.zeros_like(self._taken)
        asked[self._query_texts[queries]] = True
        free, generator = ~(self._taken | asked)[self._texts], stream(settings.seed, "train", i)
        pool = _drawn(generator, free, settings.train_count, self._strata, f"instance {i} (train/query split)", "train")
        if settings.disjoint_instances or i < settings.held_out:
            self._taken |= asked
            self._taken[self._texts[pool]] = True
        return pool, queries

    def subsets(self, i: int, pool: Rows) -> Iterator[Rows]:
        """Yield the rows that are stored for each subset of one instance."""
        settings, n, where = self._settings, len(pool), f"instance {i} (train/query split)"
        if self._parts is not None:
            yield from _whole_parts(self._parts[pool], where, settings.removals_by)
        elif settings.removals is not None:
            removed = settings.removals * settings.removal_size
            _check_enough(where, settings.removal_size, n, n - 1, "left out of", "removal_size")
            _check_enough(where, removed, n, n, "left out of", "removals or removal_size")
            for j in range(settings.removals + 1):  # subset 0 leaves nothing out
                yield draw_removal(settings.seed, i, j, n, settings.removal_size)
        else:
            size = settings.size_of(n)
            if not size:
                raise DataError(
                    f"{where}: size={settings.size} of {n:,} training examples is less than one example. Raise size."
                )
            _check_enough(where, size, n, n - 1, "drawn from", "size")
            strata = None if self._strata is None else self._strata[pool]
            for j in range(settings.subsets):
                yield draw_subset(settings.seed, i, j, n, size, strata)


def _drawn(
    generator: np.random.Generator, allowed: np.ndarray, count: int | None, strata: np.ndarray | None, *named: str
) -> Rows:
    """Draw *count* of the allowed rows, or all if *count* is None; *named* says for errors where, and from what."""
    rows = np.flatnonzero(allowed)
    if not len(rows) or (count or 0) > len(rows):
        where, name = named
        raise DataError(
            f"{where}: only {many(len(rows), 'example')} of the {name} data can be drawn, but {count or 1:,} are "
            f"needed. Give more examples, or lower {name}_count."
        )
    if count is None:
        return rows
    return rows[draw_without_repeats(generator, len(rows), count, None if strata is None else strata[rows])]


def _whole_parts(parts: np.ndarray, where: str, by: str | None) -> Iterator[Rows]:
    """Yield no row, then the rows of each source or label, in the order of their first examples in the corpus."""
    numbers = np.unique(parts)
    if len(numbers) < 2:
        raise DataError(
            f"{where}: all its training examples have the same {by}, but removals_by={by} needs two or more. "
            f"Give data with more {by}s, or set removals instead."
        )
    yield np.empty(0, np.int64)
    for number in numbers:
        yield np.flatnonzero(parts == number)


def _check_enough(where: str, wanted: int, n: int, most: int, what: str, setting: str) -> None:
    if wanted > most:
        raise DataError(
            f"{where}: {many(wanted, 'example')} cannot be {what} {many(n, 'training example')}; at most {most:,} can. "
            f"Lower {setting}, or raise train_count."
        )


def _texts(train: Corpus, queries: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for each example; examples with equal prompt and response have equal numbers."""
    corpora = (train,) if queries is train else (train, queries)
    nul = pa.scalar("\0", pa.large_string())  # never part of a text
    joined = [
        _compute.binary_join_element_wise(corpus.table["prompt"], corpus.table["response"], nul) for corpus in corpora
    ]
    codes = id_codes(pa.chunked_array([chunk for column in joined for chunk in column.chunks], pa.large_string()))
    return codes[: len(train)], codes[-len(queries) :]


def _codes(corpus: Corpus, by: str | None, setting: str) -> np.ndarray | None:
    """Return a number for each example, equal for examples with equal source or label; None if *by* is None."""
    if by is None:
        return None
    column = corpus.table[by]
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise DataError(
            f"example '{corpus.ids[row].as_py()}': has no {by}, which {setting}={by} needs. Add a {by} to this "
            f"example, leave examples without a {by} out, or remove {setting}={by}."
        )
    return id_codes(column)


def draw_subset(seed: int, instance: int, j: int, n: int, size: int, strata: np.ndarray | None = None) -> Rows:
    """Draw subset *j* of a pool of *n*: rows of the pool, ascending, that depend on (seed, instance, j) alone.

    So more subsets or instances leave the earlier ones as they are. For *strata* see :func:`draw_without_repeats`.
    """
    return draw_without_repeats(stream(seed, "subset", instance, j), n, size, strata)


def draw_removal(seed: int, instance: int, j: int, n: int, size: int) -> Rows:
    """Draw the rows that removal *j* leaves out, ascending: block j − 1 of one shuffled pool; none for j = 0.

    Removals of one instance have no row in common.
    """
    if j == 0:
        return np.empty(0, np.int64)
    shuffled = stream(seed, "removals", instance).permutation(n)
    return np.sort(shuffled[(j - 1) * size : j * size]).astype(np.int64)


def draw_without_repeats(generator: np.random.Generator, n: int, size: int, strata: np.ndarray | None = None) -> Rows:
    """Draw *size* of *n* rows without repeats, ascending; each row is as likely as any other.

    With strata, the ``(n,)`` numbers of the rows' strata, each gets ⌊size · its share⌋ places, and the places left
    over go to different strata by a systematic draw in proportion to the remainders: a stratum's count is always
    within one of its exact share, and rare strata are not shut out.
    """
    if strata is None:
        return np.sort(generator.choice(n, size, replace=False, shuffle=False)).astype(np.int64)
    _, codes, counts = np.unique(strata, return_inverse=True, return_counts=True)
    places = quotas(generator, counts, size)
    # A stratum's sample is its rows with the least random keys.
    order = np.lexsort((generator.random(n), codes))
    rank = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < np.repeat(places, counts)]).astype(np.int64)


def quotas(generator: np.random.Generator, counts: np.ndarray, size: int) -> np.ndarray:
    """Return the number of places of each stratum, ``(strata,)`` int64; they sum to *size*, at most all examples.

    Each stratum gets its exact share, ``size · counts / n``, rounded down or up; the mean over draws is the share.
    """
    n = int(counts.sum())
    whole, remainder = np.divmod(counts.astype(np.int64) * size, n)
    order = generator.permutation(len(counts))
    # One random start, then equal steps along the remainders: a mark at every multiple of n is a place.
    marks = np.concatenate([[0], np.cumsum(remainder[order])]) + generator.integers(n)
    whole[order] += np.diff(marks // n)
    return whole
