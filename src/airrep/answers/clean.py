"""Training examples that are likely wrong, repeated, odd or harmful; with reasons."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from pydantic import Field

from airrep.answers.likeness.duplicates import find_duplicates
from airrep.answers.likeness.neighbours import Neighbours, disagreement, mostly_unknown, robust_deviations, vote
from airrep.answers.spread import harms, spread_of
from airrep.answers.texts import RecordKeys, Templates, kept_examples, kept_values
from airrep.arrays import Mask, Rows, descending, reaches, unit_rows
from airrep.attributors.base import OnProgress, count_rows
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Example
from airrep.corpus.views import View, seen
from airrep.errors import ConfigError, many, near
from airrep.index.contrast import Better, Question
from airrep.index.index import Index, IndexLike, Queries, as_index
from airrep.index.results.hits import FIELDS, Record, fields_of
from airrep.index.results.result import Answer, Provenance
from airrep.runtime.remote.outputs import check_new_folder, new_folder
from airrep.runtime.settings import Settings
from airrep.scoring.asked import stream_scores

Kind: TypeAlias = Literal["label", "answer", "duplicate", "outlier", "harmful"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_TOLD = ("kind", "value", "reason", "row")
_Reason: TypeAlias = tuple[int, float, str] | tuple[int, float, str, int]
"""Place, value and reason; for some kinds also the place of another example."""
REASONS = "dropped_for"
"""Field of a dropped example with the reasons."""
_Share: TypeAlias = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
_Deviations: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
KEEP, DROP = LISTS = "keep.jsonl", "drop.jsonl"


class CleanSettings(Settings):
    """Thresholds of the findings; the defaults were measured (docs/clean.md)."""

    neighbours: int = Field(10, ge=2)
    """Number of nearest prompts that vote on labels and that answers are compared with."""
    own_share: _Share = 0.2
    """A label is doubted if at most this share of the neighbours' votes is for it, and half or more for another."""
    disagreement: _Deviations = 4.0
    """Robust deviations from which on an answer disagrees with the answers to its nearest prompts."""
    duplicate: _Share = 0.8
    """Jaccard similarity of word 3-grams, without those of templates, from which on an example repeats another.

    Examples of the same words with different signs that carry meaning do not repeat each other."""
    outlier: _Deviations = 5.0
    """Robust deviations from which on an example is far from all others."""
    outlier_neighbours: int = Field(20, ge=2)
    """Number of nearest examples that decide on outliers: as many similar outliers would not be found."""
    harmed: _Share = 0.5
    """Share of the queries from which on an example harms many."""


@dataclass(frozen=True)
class ExampleFinding:
    """One reason to look at a training example."""

    kind: Kind
    value: float
    """By kind: share of votes for the own label; deviations; similarity; deviations; share of the queries harmed."""
    reason: str
    """The reason in words."""
    row: int
    """Row number in the index."""
    example: Record
    other_row: int | None = None
    """Row of the example that a duplicate repeats, or that has the nearest prompt to an answer's; else None."""
    other: Record | None = None
    """The example of :attr:`other_row`."""


@dataclass(frozen=True, repr=False)
class CleanResult(Answer):
    """Findings, strongest first within each kind, and the settings of the search."""

    findings: tuple[ExampleFinding, ...]
    examples: int
    """Number of examples that were checked."""
    checked: tuple[Kind, ...]
    skipped: dict[str, str]
    """Kinds that could not be checked, and why."""
    settings: CleanSettings
    encoder: str
    """The encoder that compared prompts and answers."""
    where: str | None
    """Filter that chose the examples; None for all."""
    provenance: Provenance
    templates: Templates | None = None
    """Word stretches that did not count as duplicates, because too many examples have them; None without any."""
    not_judged: dict[str, int] = field(default_factory=dict)
    """Examples left out, by kind, because more than half of their text is unknown to the encoder; kinds without any
    are missing."""
    kind: ClassVar[str] = "clean"
    columns = (*_TOLD, *FIELDS)

    def _records(self) -> Iterator[dict[str, Any]]:
        for one in self.findings:
            yield {**{name: getattr(one, name) for name in _TOLD}, **fields_of(one.example)}

    @cached_property
    def rows(self) -> list[int]:
        """Rows with a finding, ascending."""
        return sorted({finding.row for finding in self.findings})

    def count(self, kind: Kind) -> int:
        """Number of findings of a kind."""
        return sum(finding.kind == kind for finding in self.findings)

    def dropped(self, kinds: Sequence[str] | None = None) -> dict[int, list[ExampleFinding]]:
        """Return the rows to drop, ascending, with their findings of some kinds, or of all kinds if None.

        One of several copies stays: a copy without other findings, if there is one.
        """
        chosen = checked_kinds(KINDS if kinds is None else kinds, KINDS)
        wrong = {finding.row for finding in self.findings if finding.kind != "duplicate"}
        stays: dict[int | None, int] = {}
        reasons: defaultdict[int, list[ExampleFinding]] = defaultdict(list)
        for finding in sorted(self.findings, key=lambda one: one.row):
            first = finding.kind == "duplicate" and finding.other_row in wrong and finding.row not in wrong
            if finding.kind not in chosen:
                continue
            if first and stays.setdefault(finding.other_row, finding.row) == finding.row:
                finding = _turned(finding)  # drop the example that it repeats instead
            reasons[finding.row].append(finding)
        return dict(sorted(reasons.items()))

    def write_lists(
        self, index: Index, out: str | Path, *, kinds: Sequence[str] | None = None, replace: bool = False
    ) -> tuple[Path, Path]:
        """Write the examples to keep, and those to drop, as ``keep.jsonl`` and ``drop.jsonl`` in a new folder.

        Both files can be read as training data; dropped examples have their reasons under ``dropped_for``. With
        *replace* the folder may exist, if it holds only such files. Only findings of *kinds* drop examples, of all
        kinds if None (:meth:`dropped`).

        ArtifactError: the folder exists, or cannot be written. ConfigError: the index is not the one that was checked,
        or has changed since; or an unknown kind.
        """
        folder = Path(out)
        check_new_folder(folder, LISTS if replace else ())
        if index.fingerprint != self.provenance.index:
            raise ConfigError(
                f"{index.path}: is not the index that was cleaned, or has changed since. Run clean again."
            )
        dropped = self.dropped(kinds)
        reasons = {
            row: [{"kind": one.kind, "value": one.value, "reason": one.reason} for one in found]
            for row, found in dropped.items()
        }
        lines: dict[str, list[str]] = {KEEP: [], DROP: []}
        for row, example in kept_examples(index, index.mask(self.where)):
            record = {**example.to_dict(), **({REASONS: reasons[row]} if row in reasons else {})}
            lines[DROP if row in reasons else KEEP].append(json.dumps(record, ensure_ascii=False) + "\n")
        with new_folder(folder, replace=replace) as partial:
            for name, written in lines.items():
                (partial / name).write_bytes("".join(written).encode())
        return folder / KEEP, folder / DROP


def clean(
    index: IndexLike,
    queries: Queries | None = None,
    *,
    better: Better | None = None,
    kinds: Sequence[str] = KINDS,
    label: str = "label",
    where: str | None = None,
    encoder: str | Path = "static",
    settings: CleanSettings | Mapping[str, Any] | None = None,
    progress: OnProgress | None = None,
) -> CleanResult:
    """Find training examples with likely wrong labels or answers, repeats, outliers, and examples that harm queries.

    Nothing is changed: findings are reasons to look, and how often they are right depends on the data. Text that many
    examples share, such as a system prompt, does not make them duplicates; neither does being parts of one record. If
    more than half of a text is unknown to the encoder, it gets no finding of kind label, answer or outlier.

    Args:
        index: the index whose examples are checked; or its path.
        queries: examples that the data should help with; needed to find harmful examples.
        better: better answers to the queries' prompts. Then examples are harmful that taught many of the queries'
            answers instead of the better ones.
        kinds: kinds of findings to look for; one kind, or several.
        label: the field of the label; ``"response"`` if the answers are labels.
        where: a filter; only examples that match it are checked, and count as neighbours.
        encoder: sentence encoder that measures how near texts are; ``"static"`` needs no torch.
        settings: thresholds, as settings or a dict.
        progress: called with the number of encoded examples.

    Raises:
        ConfigError: an unknown kind or field, no kind that can be checked, an invalid filter or threshold, or better
                answers without queries.

    Example:
        >>> found = airrep.clean(index, kinds=["duplicate"])
        >>> found.examples, found.checked
        (60, ('duplicate',))
    """
    index, encoder = as_index(index, "clean"), str(encoder)
    kinds = checked_kinds(kinds, KINDS)
    keep = index.kept(where)
    chosen = CleanSettings.given(settings, "clean")
    if queries is None and better is not None:
        raise ConfigError(
            "clean: better answers (--better) are given without queries. Give the file of their queries too."
        )
    question = None if queries is None else index.question(queries, better)
    looking = _Looking(index, keep, chosen, label, question, encoder, progress)
    asked = [kind for kind in KINDS if kind in kinds]
    skipped: dict[str, str] = {kind: why for kind in asked if (why := looking.cannot(kind))}
    checked = tuple(kind for kind in asked if kind not in skipped)
    if not checked:
        why = "; ".join(f"{kind}: {reason}" for kind, reason in skipped.items())
        raise ConfigError(f"clean: nothing can be checked: {why}. Choose another kind, or give what it needs.")
    findings = tuple(finding for kind in checked for finding in looking.look(kind))
    count, made = int(keep.sum()), index.provenance()
    told = looking.templates, looking.not_judged
    return CleanResult(findings, count, checked, skipped, chosen, encoder, where, made, *told)


def _turned(finding: ExampleFinding) -> ExampleFinding:
    """Turn a duplicate's finding into a finding on the example that it repeats."""
    assert finding.other_row is not None
    assert finding.other is not None
    reason = f"is repeated by '{finding.example.id}', which stays, as it has no finding"
    example, other = finding.other, finding.example
    return replace(finding, row=finding.other_row, example=example, other_row=finding.row, other=other, reason=reason)


def checked_kinds(kinds: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Return the requested kinds as a list; ConfigError if there is none, or one is unknown."""
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or ())
    unknown = next((kind for kind in kinds if kind not in known), None)
    if unknown is not None or not kinds:
        named = "no kind is given" if unknown is None else f"kind '{unknown}' cannot be chosen here"
        meant = "" if unknown is None else near(unknown, known, "")
        raise ConfigError(f"clean: {named}. Choose from {', '.join(known)}. {meant}".rstrip())
    return kinds


class _Encoded(NamedTuple):
    """Embeddings of one view of the kept examples."""

    units: np.ndarray
    """Embeddings of unit length."""
    known: Mask
    """True if at least half of the text is known to the encoder."""


@dataclass(eq=False)
class _Looking:
    """Search of the kept examples of an index; values that several kinds need are computed once."""

    _index: Index
    _keep: Mask
    _settings: CleanSettings
    _label: str
    _question: Question | None
    _encoder: str
    _progress: OnProgress | None
    _last_near: tuple[Rows, Neighbours] | None = None
    templates: Templates | None = None
    """Templates that :meth:`look` found when it looked for duplicates."""
    not_judged: dict[str, int] = field(default_factory=dict)
    """Number of examples, by kind, that :meth:`look` left out because the encoder does not know their words."""

    @cached_property
    def _rows(self) -> Rows:
        return np.flatnonzero(self._keep)

    def cannot(self, kind: Kind) -> str:
        """Say why a kind cannot be checked; empty if it can."""
        if kind in ("duplicate", "harmful"):
            return "there are no queries" if kind == "harmful" and self._question is None else ""
        outlier = kind == "outlier"
        least = 2 + (self._settings.outlier_neighbours if outlier else self._settings.neighbours)
        if len(self._rows) < least:
            return f"only {many(len(self._rows), 'example')} can be checked; at least {least} are needed"
        if kind == "label" and len(set(self._labels) - {None}) < 2:
            return f"the field '{self._label}' has fewer than two values"
        known = len(self._known(kind))
        told = f"the encoder knows the words of only {many(known, 'example')}; at least {least} are needed"
        return told if known < least else ""

    def look(self, kind: Kind) -> list[ExampleFinding]:
        looks: dict[Kind, Callable[[], Iterator[_Reason]]] = {
            "label": self._wrong_labels,
            "answer": self._wrong_answers,
            "duplicate": self._duplicates,
            "outlier": self._outliers,
            "harmful": self._harmful,
        }
        return [self._finding(kind, *found) for found in looks[kind]()]

    def _finding(self, kind: Kind, place: int, value: float, reason: str, other: int | None = None) -> ExampleFinding:
        row = int(self._rows[place])
        found = ExampleFinding(kind, float(np.float32(value)), reason, row, self._index.example(row))
        if other is None:
            return found
        like = int(self._rows[other])
        return replace(found, other_row=like, other=self._index.example(like))

    @cached_property
    def _examples(self) -> list[Example]:
        return [example for _, example in kept_examples(self._index, self._keep)]

    @cached_property
    def _labels(self) -> list[str | None]:
        return kept_values(self._index, self._keep, self._label)

    @cached_property
    def _prompts(self) -> _Encoded:
        return self._encoded("prompt")

    @cached_property
    def _responses(self) -> _Encoded:
        return self._encoded("response")

    def _encoded(self, view: View) -> _Encoded:
        attributor = make_attributor("gte", {"encoder": self._encoder, "view": view})
        features = attributor.encode_train(
            self._examples, count_rows(len(self._examples), self._progress, stage="encoding examples")
        )
        assert isinstance(features, np.ndarray)
        unknown = mostly_unknown(attributor, [seen(example, view) for example in self._examples])
        return _Encoded(unit_rows(features), ~unknown)

    def _known(self, kind: Kind) -> Rows:
        """Return places of the examples that a kind can be judged on: the encoder knows at least half of their text."""
        known = self._prompts.known if kind == "label" else self._prompts.known & self._responses.known
        return np.flatnonzero(known)

    def _judged(self, kind: Kind) -> Rows:
        """Return :meth:`_known`, and note how many examples are left out."""
        places = self._known(kind)
        if len(places) < len(self._rows):
            self.not_judged[kind] = len(self._rows) - len(places)
        return places

    def _near(self, places: Rows) -> Neighbours:
        if self._last_near is None or not np.array_equal(self._last_near[0], places):
            self._last_near = places, Neighbours.of(self._prompts.units[places], self._settings.neighbours)
        return self._last_near[1]

    def _wrong_labels(self) -> Iterator[_Reason]:
        known = self._judged("label")
        labels = [self._labels[place] for place in known.tolist()]
        votes = vote(labels, self._near(known))
        with np.errstate(invalid="ignore"):
            doubted = np.flatnonzero(reaches(-votes.own, -self._settings.own_share) & reaches(votes.most, 0.5))
        for place in doubted[descending(votes.most[doubted] - votes.own[doubted])].tolist():
            reason = f"of the nearest prompts {votes.most[place]:.0%} have the label '{votes.best[place]}', "
            yield int(known[place]), votes.own[place], f"{reason}{votes.own[place]:.0%} '{labels[place]}'"

    def _wrong_answers(self) -> Iterator[_Reason]:
        known = self._judged("answer")
        nearest = self._near(known)
        odd = robust_deviations(disagreement(self._prompts.units[known], self._responses.units[known], nearest))
        for place in _above(odd, self._settings.disagreement):
            near = int(known[nearest.places[place, 0]])
            reason = f"its answer is unlike the answers to the nearest prompts, such as '{self._examples[near].id}'"
            yield int(known[place]), odd[place], reason, near

    def _outliers(self) -> Iterator[_Reason]:
        known = self._judged("outlier")
        both = np.concatenate([self._prompts.units[known], self._responses.units[known]], axis=1) / np.float32(2**0.5)
        near = Neighbours.of(both, self._settings.outlier_neighbours)
        far = robust_deviations(-near.cosines.astype(np.float64).mean(axis=1))
        for place in _above(far, self._settings.outlier):
            cosine = near.cosines[place].mean()
            reason = f"its mean cosine to the nearest examples is {cosine:.2f}, far lower than usual"
            yield int(known[place]), far[place], reason

    def _duplicates(self) -> Iterator[_Reason]:
        texts = [f"{example.prompt}\n{example.response}" for example in self._examples]
        keys = RecordKeys()
        records = [keys.of(example) for example in self._examples]
        found, self.templates = find_duplicates(texts, self._settings.duplicate, records)
        for place, first, share in sorted(found, key=lambda one: -one.share):
            reason = f"shares {share:.0%} of their combined word 3-grams with '{self._examples[first].id}'"
            yield place, share, reason, first

    def _harmful(self) -> Iterator[_Reason]:
        assert self._question is not None
        asked = self._question.ranked(self._index.ask(self._question), towards=True)
        spread = spread_of(asked, self._keep)
        shares = [harms(scores, spread).mean(axis=0) for _, scores in stream_scores(asked, self._keep)]
        share = np.concatenate(shares)
        for place in _above(share, self._settings.harmed):
            harm = "harms" if self._question.better is None else "taught the answers in place of the better ones for"
            yield place, share[place], f"{harm} {share[place]:.0%} of the queries"


def _above(values: np.ndarray, threshold: float) -> list[int]:
    """Return places of values at or above a threshold, up to rounding, the greatest first; ties by place."""
    order = descending(values)
    return order[reaches(values[order], threshold)].tolist()
