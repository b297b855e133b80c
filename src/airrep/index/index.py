"""An index on disk: opened as memory maps, queried for scores."""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias, overload

import numpy as np

from airrep.arrays import Mask, Rows
from airrep.attributors.base import Attributor, OnProgress, check_spans_read, count_rows
from airrep.attributors.direct import DirectAttributor, RecentScores, is_direct
from airrep.attributors.methods import is_known, make_attributor, packages_of
from airrep.attributors.recipes import Channel, asked_settings
from airrep.attributors.sums.channels import ChannelsAttributor
from airrep.corpus.corpus import Example
from airrep.corpus.inputs import QueriesLike, is_one
from airrep.corpus.schemas.conversations import Pair
from airrep.corpus.schemas.trainers import Trainer, trainer_of
from airrep.errors import ArtifactError, ConfigError
from airrep.index.contrast import Better, Question
from airrep.index.editing import EditableIndex
from airrep.index.results.hits import Hit, Hits
from airrep.index.results.kinds import GroupResult, TopResult, WhatIfResult
from airrep.index.results.result import REMOVAL, Made, Provenance, made_of
from airrep.index.rows import PACKAGES, TEXTS, GroupsLike, IndexRows, RowsLike
from airrep.index.why import Reasons, Scored, check_tokens
from airrep.runtime.artifacts import as_written, check_file, json_digest
from airrep.runtime.hub import NoModelError
from airrep.scoring.asked import Asked, even_pairs, score_blocks
from airrep.scoring.blocks import Block, Span, at_most
from airrep.scoring.group_scores import by_channel
from airrep.scoring.pooling import Pooling, PoolLike
from airrep.scoring.topk import top_k
from airrep.sparse import distinct

Queries = QueriesLike
IDS_SHOWN = 5
"""Most ids in the words for a removal that is not given by a filter."""

MODELS = ("warmed", "lm", "tokenizer", "encoder")
"""Settings that name a model."""
HELD = 2**29
"""Most scores that are cached for later queries, 2 GiB."""

_log = logging.getLogger(__name__)


class Index(EditableIndex):
    """An index: the training examples, their features, and the method (attributor) that made the features.

    For rows, filters and groups see :class:`airrep.index.rows.IndexRows`; for ``append``, ``delete`` and ``compact``
    see :class:`airrep.index.editing.EditableIndex`.

    Example:
        >>> hits = index.top("answer 14", k=3, where='source == "books"')
        >>> [hit.rank for hit in hits]
        [1, 2, 3]
    """

    def __init__(
        self, path: str | Path, attributor: Attributor | None = None, *, before: IndexRows | None = None
    ) -> None:
        """Open an index.

        Args:
            path: directory of the index.
            attributor: encodes queries; needed only for methods that airrep does not know by name, or when the model
                has moved.
            before: the index as it was opened earlier; parts that did not change are not read again.

        Raises:
            ArtifactError: not an index, unfinished, of a newer format, or with missing or cut files.
            ConfigError: *attributor* is not an attributor.
        """
        if not isinstance(attributor, Attributor | None):
            raise ConfigError(
                f"{path}: attributor is {attributor!r}; it must be an Attributor, or None to use the method that built "
                "the index."
            )
        super().__init__(path, before=before)
        self.given = attributor
        self._recent = RecentScores(HELD)
        self.changes: Mapping[str, Any] = before.changes if isinstance(before, Index) else {}
        """Settings that were changed since the build, without ``channels`` and ``candidates``."""

    @property
    def attributor(self) -> Attributor:
        """The attributor that made the index, ready to encode queries; its channels may have other weights.

        Raises:
            ArtifactError: the attributor available now is not the one that made the index.
        """
        found = self._attributor
        # A given attributor may have been fitted to another corpus since, or have loaded another index's state.
        if found is self.given and found.fingerprint != self.manifest["attributor"]:
            self._make_ready(found)
        return found

    @classmethod
    def just_built(cls, path: str | Path, attributor: Attributor) -> "Index":
        """Open an index with the attributor that just built it, so that its state is not read back."""
        index = cls(path, attributor)
        vars(index)["_attributor"] = attributor
        return index

    @cached_property
    def _attributor(self) -> Attributor:
        if self._asked is not None:
            built, recipe = self._asked
            self._make_ready(built)
            return built.reweighed(recipe)
        attributor = self.given or self._make_attributor()
        self._make_ready(attributor)
        return attributor

    def _with_new_place(self, error: NoModelError) -> ConfigError:
        """Return the error for a missing model; for one of the build, it tells how to say where the model is now."""
        what, own = str(error).partition(": there is no such folder")[0], self.manifest["settings"]
        read = [own, *(channel["settings"] for channel in own.get("channels", ()))]
        for name in MODELS:
            if any(one.get(name) and what.endswith(f" {one[name]}") for one in read):
                return ConfigError(
                    f"{what}: there is no such folder. If the folder has moved since the index was built, give its new "
                    f"path: --set {name}=FOLDER (in Python index.made_with({{'{name}': FOLDER}}))."
                )
        return error  # another place was given

    @cached_property
    def _asked(self) -> tuple[ChannelsAttributor, tuple[Channel, ...]] | None:
        """The attributor that built the index, and the recipe to score with; None if the recipe does not differ."""
        if not isinstance(self.given, ChannelsAttributor) or self.method != ChannelsAttributor.name:
            return None
        built, recipe = self._make_attributor(self.changes), self.given.channels
        assert isinstance(built, ChannelsAttributor)
        same = [one.title for one in built.channels] == [one.title for one in recipe]
        return None if same and built.weights == self.given.weights else (built.computed_as(recipe), recipe)

    @property
    def made(self) -> Made:
        """Origin of the index: its data, models, method and the channels in use."""
        return made_of(self.manifest, None if self._asked is None else self._asked[1])

    @cached_property
    def fingerprint(self) -> str:
        """64 hex digits over everything that scores depend on, including changed weights of channels."""
        rows = super().fingerprint
        if self._asked is None:
            return rows
        built, recipe = self._asked
        weights = built.weights_of(recipe)
        return rows if weights == built.weights else json_digest({"index": rows, "weights": weights})

    def reopened(self, attributor: Attributor | None = None) -> Self:
        found = type(self)(self.path, attributor or self.given, before=self)
        ready = vars(self).get("_attributor")
        same = attributor in (None, ready) and _learnt(found.manifest) == _learnt(self.manifest)
        if ready is not None and self._asked is None and same:
            vars(found)["_attributor"] = ready  # keeps its loaded model: consecutive appends need it each time
        return found

    def made_with(self, changes: Mapping[str, Any]) -> Self:
        """Return this index with some settings of its method changed, such as the new place of a model that has moved.

        Raises:
            ConfigError: there is no such setting, or the method is not known here.
        """
        index = type(self)(self.path, self._make_attributor(changes))
        index.changes = {name: value for name, value in changes.items() if name not in ("channels", "candidates")}
        return index

    def _make_ready(self, attributor: Attributor) -> None:
        """Load the state that was learnt in the build; ArtifactError unless this attributor made the index."""
        try:
            if (self.path / "state").is_dir():
                for name, entry in self.manifest["files"].items():
                    if name.startswith("state/"):
                        with _state_named(attributor, name):
                            check_file(self.path / name, entry)
                own = type(attributor).__module__.partition(".")[0] == "airrep"  # other packages raise their own errors
                with as_written(self.path / "state") if own else nullcontext():
                    attributor.load_state(self.path / "state")
            now = attributor.fingerprint
        except NoModelError as error:
            raise self._with_new_place(error) from error
        if now != self.manifest["attributor"]:
            packages = packages_of(attributor)
            changed = "".join(
                f"; package {one['name']} {one['version']}, now {packages[name]['version']}"
                for name, one in self.manifest.get(PACKAGES, {}).items()
                if packages.get(name, one) != one
            )
            raise ArtifactError(
                f"{self.path}: was built with another model or other settings of {attributor.name} (fingerprint "
                f"{self.manifest['attributor'][:12]}, now {now[:12]}{changed}). Name the model that built it "
                "(--set lm=FOLDER or encoder=FOLDER), or build the index again with --replace."
            )

    def _make_attributor(self, changes: Mapping[str, Any] | None = None) -> Attributor:
        for name, package in self.manifest.get(PACKAGES, {}).items():
            if not is_known(name):
                raise ConfigError(
                    f"{self.path}: was built by '{name}' of the package {package['name']} {package['version']}, which "
                    "is not installed here. Install it."
                )
        known, others = self.manifest["settings"], changes or {}
        if not is_known(self.method):
            raise ConfigError(
                f"{self.path}: was built by '{self.method}', which airrep does not know. "
                "Open it from Python with Index(path, attributor=...)."
            )
        summed = self.method == ChannelsAttributor.name
        return make_attributor(self.method, asked_settings(known, others) if summed else {**known, **others})

    @overload
    def top(
        self,
        queries: str | Example | Mapping[str, Any],
        k: int = 10,
        *,
        better: Better | None = None,
        least: bool = False,
        where: str | None = None,
        why: bool = False,
        tokens: bool = False,
        progress: OnProgress | None = None,
    ) -> Hits: ...
    @overload
    def top(
        self,
        queries: Queries,
        k: int = 10,
        *,
        better: Better | None = None,
        least: bool = False,
        where: str | None = None,
        why: bool = False,
        tokens: bool = False,
        progress: OnProgress | None = None,
    ) -> TopResult: ...
    def top(
        self,
        queries: Queries,
        k: int = 10,
        *,
        better: Better | None = None,
        least: bool = False,
        where: str | None = None,
        why: bool = False,
        tokens: bool = False,
        progress: OnProgress | None = None,
    ) -> Hits | TopResult:
        """Find the k training examples that help each query most, by exact search; ties by row.

        Args:
            queries: one example, as an :class:`Example`, a dict, or a text, which is the response to an empty prompt;
                or several, as a corpus, a list, a Hugging Face ``Dataset``, a table or the ``Path`` of a file.
            k: how many examples to return for each query; all, if fewer pass the filter.
            better: better answers to the queries' prompts: a text, the name of a field of the queries' records, or
                examples with the same prompts. Then scores are contrasts (:class:`airrep.index.contrast.Question`), and
                the first examples taught the answer instead of the better one.
            least: rank the most harmful examples first; with *better*, examples that teach the better answers most.
            where: a filter; only examples that pass it are ranked.
            why: also say what each channel added to each score, and which words both texts share
                (:class:`airrep.index.why.Why`).
            tokens: as *why*, and also split the score by pairs of words, one of the query and one of the training
                example (:class:`airrep.attributors.by_token.WordScores`). Computes the gradients of the hits again.
            progress: called with the number of encoded queries.

        Raises:
            ConfigError: k is below 1, the filter is invalid or matches no example, a query lacks its better answer, or
                *tokens* is set and no channel can score tokens.
        """
        if is_one(queries):
            how: dict[str, Any] = {"better": better, "least": least, "where": where, "why": why, "tokens": tokens}
            return self.top([queries], k, **how, progress=progress)[0]
        question, keep = self.question(queries, better), self.kept(where)
        k = at_most("top: k", k, int(keep.sum()))
        if tokens:
            check_tokens(self.attributor)
        return self.top_of(question, self.ask(question, progress), keep, k, least=least, why=why, tokens=tokens)

    def top_of(
        self,
        question: Question,
        asked: Asked,
        keep: Mask,
        k: int,
        *,
        least: bool = False,
        why: bool = False,
        tokens: bool = False,
    ) -> TopResult:
        """Rank the rows to *keep*, k or more, as :meth:`top` does, by the queries that :meth:`ask` prepared."""
        found = top_k(question.ranked(asked), k, keep=keep, least=least)
        rows = distinct(found.rows.ravel())
        known = dict(zip(rows.tolist(), self.examples(rows), strict=True))  # read once, even if several queries have it
        pairs = (zip(*pair, strict=True) for pair in zip(found.rows.tolist(), found.scores.tolist(), strict=True))
        rankings = [tuple(Hit(n, score, row, known[row]) for n, (row, score) in enumerate(hits, 1)) for hits in pairs]
        if why or tokens:
            reasons = Reasons(self, self.attributor)
            for place, hits in enumerate(rankings):
                scored = [Scored(hit.row, hit.score) for hit in hits]
                whys = question.reasons(reasons, asked, place, scored, tokens=tokens)
                rankings[place] = tuple(replace(hit, why=one) for hit, one in zip(hits, whys, strict=True))
        provenance = question.told(self.provenance(keep=keep))
        others: Sequence[Example | None] = question.better or [None] * len(rankings)
        told = zip(question.queries, rankings, others, strict=True)
        found_hits = tuple(Hits(query, hits, provenance, least, other) for query, hits, other in told)
        return TopResult(found_hits, provenance, least)

    def question(self, queries: Queries, better: Better | None = None, where: str = "queries") -> Question:
        """Read queries, and better answers if given, as the index's records were read; *where* names them in errors."""
        asked = Question.of(queries, better, self.asking, where)
        rendered = self.rendered if self.reading.forms else None
        if rendered is None or rendered["form"] is None:
            return asked
        return asked.typed_as(rendered["form"], rendered["preamble"], self._trainer)

    def as_trained(self, query: Example) -> Example:
        """Return a query as it would be read as a training example: some trainers learn more of it than the answer."""
        if not query.prompt.strip() or not self._trainer.whole or not self.rendered["whole"]:
            return query
        return replace(query, chat=self._trainer.of_messages(Pair(query.prompt, query.response, chat=query.chat)).chat)

    @property
    def _trainer(self) -> Trainer:
        return trainer_of(self.reading.options.get("trained_with"))

    def scores(
        self, queries: Queries, *, better: Better | None = None, progress: OnProgress | None = None
    ) -> np.ndarray:
        """Compute all influence scores, ``(q, n)`` float32; column *i* is row *i* of the index, NaN for a deleted row.

        All scores are in memory at once, 4 bytes for each query and row. To save memory, read blocks of scores from
        :func:`airrep.scoring.asked.score_blocks`, called with ``index.ask(queries)``.

        Args:
            queries: as for :meth:`top`; one query alone has one row of scores.
            better: as for :meth:`top`.
            progress: called with the number of encoded queries.
        """
        question = self.question(queries, better)
        asked = question.ranked(self.ask(question, progress))
        scores = np.empty((len(question.queries), self.rows), np.float32)
        for start, block in score_blocks(asked):
            scores[:, start : start + block.shape[1]] = block
        scores[:, ~self.live] = np.nan
        return scores

    def group_scores(
        self,
        queries: Queries,
        groups: GroupsLike | None = None,
        pool: PoolLike | None = None,
        *,
        by: str | None = None,
        better: Better | None = None,
        temperature: float = 1.0,
        why: bool = False,
        progress: OnProgress | None = None,
    ) -> GroupResult:
        """Score groups of training examples for each query, ``(q, m)``; higher = more helpful.

        Args:
            queries: as for :meth:`top`.
            groups: a mapping of names to lists of ids, arrays of rows or filters (:meth:`check_rows`); a sequence of
                lists, arrays or filters; or the name of a field, as *by*.
            by: a field (``"source"``, ``"label"`` or a metadata field) whose values are the groups.
            better: better answers, as for :meth:`top`. A score is then the answer's score minus the better answer's.
                The group with the greatest score taught the answer instead of the better one.
            pool: ``"sum"``, ``"mean"``, ``"attention"``, ``"signed-attention"``, ``"order-K"`` or ``"order-inf"``
                (:class:`airrep.scoring.pooling.Pooling`); the method's own when None.
            temperature: temperature of attention; larger is flatter. If *pool* is None, 1 means the method's own.
            why: also say what each channel added. A pool over the sum of channels counts as one channel.
            progress: called with the number of encoded queries.

        Raises:
            ConfigError: an unknown field, id or row, an empty group, a deleted member, or a pool or temperature that
                does not exist or does not fit the method.
            DataError: order-inf has no meaning for these features.
        """
        wanted = by if groups is None else groups
        if wanted is None or (groups is not None and by is not None):
            raise ConfigError("group_scores: pass exactly one of the arguments groups=... and by=...")
        chosen = self.attributor.pooling(pool, temperature)
        members, question = self.groups(wanted), self.question(queries, better)
        found = by_channel(self.ask(question, progress), members, chosen, self.method, examples=len(self))
        parts = {name: question.less_better(part.astype(np.float32)) for name, part in found.items()}
        sizes = tuple(np.diff(members.offsets).tolist())
        provenance = question.told(self._group_provenance(chosen, sizes), pooled=True)
        scores = question.less_better(np.sum(list(found.values()), axis=0).astype(np.float32))
        asked, channels = tuple(question.queries), parts if why else None
        return GroupResult.of(asked, members.names, sizes, scores, provenance, channels, question.better)

    def what_if(
        self,
        queries: Queries,
        *,
        remove: RowsLike | None = None,
        keep: RowsLike | None = None,
        better: Better | None = None,
        pool: PoolLike | None = None,
        temperature: float = 1.0,
        why: bool = False,
        progress: OnProgress | None = None,
    ) -> WhatIfResult:
        """Compute how the corpus's group score changes when part of the corpus is left out, per query (after - before).

        With a pool that takes a mean, the score rises if the removed examples help less than the average. Order-k pools
        score only removals: before is 0, and after is minus the score of the removed examples. With *better*, a change
        below 0 means that the removed examples taught the answers instead of the better ones.

        Args:
            queries: as for :meth:`top`, like *better* and *progress*.
            remove: examples to leave out: rows, ids as text, or a filter such as ``'source == "forum"'``
                (:meth:`check_rows`).
            keep: or the only examples to keep, in the same forms.
            pool: as in :meth:`group_scores`, like *temperature*.
            why: also say how much each channel changes.

        Raises:
            ConfigError: both or neither of *remove* and *keep* are given, no or all examples would be left out, or for
                the same reasons as :meth:`group_scores`.
        """
        chosen, everything = self.attributor.pooling(pool, temperature), np.flatnonzero(self.live)
        kept, question = self._rows_kept(remove, keep), self.question(queries, better)
        if chosen.kind == "order":
            removed = {"removed": self._left_out(kept)}
            result = self.group_scores(
                question.queries, removed, chosen, better=question.better, why=why, progress=progress
            )
            provenance, after = replace(result.provenance, units=f"minus {REMOVAL}"), -result.scores[:, 0]
            before = np.zeros_like(after)
            changes = {name: -part[:, 0] for name, part in (result.channels or {}).items()}
        else:
            both = self.groups({"before": everything, "after": kept})
            found = by_channel(self.ask(question, progress), both, chosen, self.method, exact=True)
            parts = {name: question.less_better(part) for name, part in found.items()}
            provenance = question.told(self._group_provenance(chosen, (len(everything), len(kept))), pooled=True)
            before, after = np.sum(list(parts.values()), axis=0).T
            changes = {name: part[:, 1] - part[:, 0] for name, part in parts.items()}
        return WhatIfResult.of(
            tuple(question.queries),
            before=before,
            after=after,
            removed=len(everything) - len(kept),
            kept=len(kept),
            provenance=provenance,
            channels=changes if why else None,
            removal=self._removal(remove, keep, kept),
            better=question.better,
        )

    def _rows_kept(self, remove: RowsLike | None, keep: RowsLike | None) -> Rows:
        if (remove is None) == (keep is None):
            raise ConfigError("what_if: pass exactly one of the arguments remove=... and keep=...")
        mask = np.zeros(self.rows, dtype=bool)
        for rows in (remove, keep):
            if rows is not None:
                mask[self.check_rows(rows)] = True
        kept = np.flatnonzero(self.live & (mask if remove is None else ~mask))
        if len(kept) in (0, len(self)):
            extent = "no examples" if len(kept) else "all examples"
            raise ConfigError(f"what_if: this would remove {extent}. Choose other rows.")
        return kept

    def _left_out(self, kept: Rows) -> Rows:
        mask = self.live.copy()
        mask[kept] = False
        return np.flatnonzero(mask)

    def _removal(self, remove: RowsLike | None, keep: RowsLike | None, kept: Rows) -> str:
        """Describe what is left out: by its filter, or else by ids."""
        verb, chosen = ("without", remove) if keep is None else ("only", keep)
        if isinstance(chosen, str):
            return f"{verb} {chosen}"
        rows = kept if remove is None else self._left_out(kept)
        more = ", …" if len(rows) > IDS_SHOWN else ""
        return f"{verb} {', '.join(self.example(row).id for row in rows[:IDS_SHOWN].tolist())}{more}"

    def _group_provenance(self, pooling: Pooling, sizes: Sequence[int]) -> Provenance:
        made = self.provenance(pooling)
        trained = self.attributor.trained_groups
        cautions = [made.caution, "" if trained is None else trained.caution(sizes, str(pooling))]
        if pooling.kind == "order":
            cautions.append(f"Scores of {pooling} are in units of the loss only if features are H^(-1/2)·gradient.")
            if pooling.k not in (1, None) and 2 * max(sizes) >= len(self):
                cautions.append("For groups of half the examples or more the series may not converge: use order-inf.")
        return replace(made, caution=" ".join(filter(None, cautions)))

    def provenance(self, pooling: Pooling | None = None, keep: Mask | None = None) -> Provenance:
        """Return the provenance of this index's results; *keep* marks the rows that were ranked."""
        rows = None if keep is None else int(keep.sum())
        caution = self.attributor.caution
        made = Provenance(
            self.method, self.fingerprint, units=self.attributor.units, caution=caution, rows=rows, made=self.made
        )
        if pooling is None:
            return made
        units = REMOVAL if pooling.kind == "order" else made.units
        temperature = pooling.temperature if pooling.attends else None
        return replace(made, pool=pooling.text, temperature=temperature, units=units)

    def ask(self, queries: Queries | Question, progress: OnProgress | None = None) -> Asked:
        """Prepare queries, so that the result can compute their scores of the index's rows.

        With better answers, the answers come first and the better answers after them, and each channel has the same
        weight for both answers of a pair. Methods that store no features score the rows in this call.

        Raises:
            ConfigError: the method did not make one row of features for each query.
        """
        question = queries if isinstance(queries, Question) else self.question(queries)
        examples = list(question.all)
        check_spans_read(self.attributor, examples)
        direct = is_direct(self.attributor, counted=True)
        kept = IndexKept(self, self._recent, progress)
        asked = self.attributor.ask(
            examples, kept, None if direct else count_rows(len(examples), progress, stage="encoding queries")
        )
        return asked if question.better is None else even_pairs(asked)


def _learnt(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an index's attributor depends on: its fingerprint, settings, and the files of its state."""
    state = {name: entry for name, entry in manifest["files"].items() if name.startswith("state/")}
    return {"attributor": manifest["attributor"], "settings": manifest["settings"], "state": state}


@contextmanager
def _state_named(attributor: Attributor, name: str) -> Iterator[None]:
    """Add the name of the channel to the error for an altered state file."""
    try:
        yield
    except ArtifactError as error:
        number = name.removeprefix("state/").partition("-")[0]
        if not isinstance(attributor, ChannelsAttributor) or not number.isdigit():
            raise
        titles = [channel.title for channel in attributor.channels]
        if int(number) >= len(titles):
            raise
        raise ArtifactError(f"{error} The file belongs to channel (method) '{titles[int(number)]}'.") from error


class IndexKept:
    """The features of an index by channel; scores of methods without features are computed, and cached for a while."""

    def __init__(self, rows: IndexRows, held: RecentScores, progress: OnProgress | None = None) -> None:
        self._index, self._held, self._progress = rows, held, progress

    @property
    def spans(self) -> list[Span]:
        """First row and number of rows of each shard."""
        return [Span(shard.start, shard.rows) for shard in self._index.shards]

    def blocks(self, channel: str) -> Sequence[Block]:
        """Return the features of a channel."""
        return self._index.blocks(channel)

    @property
    def live(self) -> Mask | None:
        """Rows that were not deleted; None for all."""
        return None if self._index.live.all() else self._index.live

    def scores(
        self, channel: str, method: DirectAttributor, queries: Sequence[Example], rows: Rows | None = None
    ) -> np.ndarray:
        """Compute scores ``(q, n)`` of all rows, 0 for deleted rows, which are not read; or of ascending *rows*."""
        if rows is not None:
            these = f"{channel} {hashlib.sha256(rows.tobytes()).hexdigest()}"
            return self._held.of(these, queries, lambda some: self._scored(method, some, rows))

        def of_all(some: Sequence[Example]) -> np.ndarray:
            found = np.zeros((len(some), self._index.rows), np.float32)
            live = np.flatnonzero(self._index.live)
            found[:, live] = self._scored(method, some, live)
            return found

        return self._held.of(channel, queries, of_all)

    def _scored(self, method: DirectAttributor, queries: Sequence[Example], rows: Rows) -> np.ndarray:
        """Compute scores ``(q, len(rows))``."""
        found = np.empty((len(queries), len(rows)), np.float32)
        on_rows = count_rows(len(rows), self._progress, stage="encoding queries")
        for some, score in method.scorers(queries):  # what a scorer holds of its queries serves all shards
            last = some.stop >= len(queries)
            for shard in self._index.shards:
                first, end = np.searchsorted(rows, [shard.start, shard.start + shard.rows]).tolist()
                examples = shard.examples.take(rows[first:end] - shard.start)
                found[some, first:end] = score(examples, on_rows if last else None).T
        return found


IndexLike: TypeAlias = "Index | str | Path"
"""An index, or the path of one."""


def as_index(index: IndexLike, reads: str | None = None) -> Index:
    """Return an index as it is; open it if a path is given. *reads* names what reads its texts.

    ConfigError: *index* is something else, or its texts were left out. ArtifactError: there is no index at the path.
    """
    if isinstance(index, str | Path):
        index = Index(index)
    if not isinstance(index, Index):
        raise ConfigError(f"index has type {type(index).__name__}; it must be an Index or the path of one.")
    if reads is not None and not index.manifest.get(TEXTS, True):
        raise ConfigError(f"{index.path}: its texts were left out, but {reads} reads them. Use an index with texts.")
    return index
