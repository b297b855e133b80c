"""How to mix sources for a target: weights with intervals, and drawn examples."""

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import yaml

from airrep.answers.texts import kept_values
from airrep.arrays import Mask, Rows
from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Example
from airrep.corpus.schemas.conversations import chat_message, chat_of
from airrep.corpus.schemas.forms import KTO, KTO_FIELDS
from airrep.corpus.schemas.values import is_learnt
from airrep.errors import ConfigError, DataError, many
from airrep.index.contrast import Better
from airrep.index.index import Index, IndexLike, Queries, as_index
from airrep.index.results.result import ZERO, Answer, Provenance
from airrep.runtime.remote.outputs import check_new_folder, new_folder
from airrep.runtime.seeding import stream
from airrep.scoring.asked import Asked, stream_scores
from airrep.scoring.contrast import without_worse
from airrep.scoring.topk import top_k
from airrep.sparse import SparseRows

RESAMPLES = 1000
LEAST, ALIKE = 0.025, 1e-9
"""Chance beyond each end of an interval; difference up to which shares are equal."""
DECIMALS = 4
"""Digits of weights in configurations."""
TIED = 1e-6
"""Scores that differ by less, relatively, are ties."""
_NUMBERS = ("examples", "share", "weight", "low", "high", "lift")
UNITS = "share of the examples that help most"
ENTRIES = "datasets.yaml"
_LEARNT = "train"
"""Key of a message by which axolotl decides whether to train on it."""
DRAWN = (ENTRIES, "source-*.jsonl")
"""Patterns of the files in a folder for axolotl."""


@dataclass(frozen=True)
class SourceWeight:
    """One source, and its weight for the target."""

    name: str
    examples: int
    share: float
    """Share of all examples that have a source."""
    weight: float
    """Share of the examples that help most, mean over the queries; all weights add up to 1."""
    low: float
    """Lower end of the 95 % interval, by resampling the queries."""
    high: float
    """Upper end of the interval."""

    @property
    def lift(self) -> float:
        """Weight divided by share: above 1, the target needs more of the source than the data have."""
        return self.weight / self.share


@dataclass(frozen=True, repr=False)
class MixResult(Answer):
    """Weights of sources for a target, the greatest first."""

    by: str
    sources: tuple[SourceWeight, ...]
    queries: int
    top: int
    """Number of examples that count as helping most, for each query."""
    provenance: Provenance
    where: str | None = None
    """Filter that selected the examples; None for all."""
    without: int = 0
    """Number of examples without the field, which no weight counts."""
    kind: ClassVar[str] = "mix"

    def _records(self) -> Iterator[dict[str, Any]]:
        for source in self.sources:
            yield {self.by: source.name, **{name: getattr(source, name) for name in _NUMBERS}}

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        for told, source in zip(values["sources"], self.sources, strict=True):
            told["lift"] = source.lift
        return values

    def to_yaml(self) -> str:
        """Return the weights as YAML: ``by``, and ``weights`` by name."""
        return yaml.safe_dump({"by": self.by, "weights": self._rounded()}, sort_keys=False, allow_unicode=True)

    def to_llama_factory(self) -> str:
        """Return LLaMA-Factory arguments that mix data sets of the sources' names, defined in dataset_info.json.

        ConfigError: a source's name has a comma, or a space at an end, which LLaMA-Factory cannot read.
        """
        weights = {name: weight for name, weight in self._rounded().items() if weight > 0}
        bad = next((name for name in weights if "," in name or name != name.strip()), None)
        if bad is not None:
            told = "contains a comma, or starts or ends with a space, which LLaMA-Factory cannot read"
            raise ConfigError(f"mix: the source '{bad}' {told}. Rename the source.")
        arguments = {
            "dataset": ",".join(weights),
            "mix_strategy": "interleave_under",
            "interleave_probs": ",".join(f"{weight:.{DECIMALS}f}" for weight in weights.values()),
        }
        return yaml.safe_dump(arguments, sort_keys=False, allow_unicode=True, width=10**6)

    def _rounded(self) -> dict[str, float]:
        """Round the weights down, then raise those that lost most until they add up to 1."""
        exact = np.array([source.weight for source in self.sources]) * 10**DECIMALS
        whole = np.floor(exact + ALIKE)
        whole[np.argsort(whole - exact, kind="stable")[: round(10**DECIMALS - whole.sum())]] += 1
        return {source.name: one / 10**DECIMALS for source, one in zip(self.sources, whole.tolist(), strict=True)}


def mix(
    index: IndexLike,
    queries: Queries,
    by: str = "source",
    *,
    better: Better | None = None,
    top: float = 0.01,
    where: str | None = None,
    seed: int = 0,
    progress: OnProgress | None = None,
) -> MixResult:
    """Compute the weights of sources for a target: each source's share of the examples that help a query most.

    For each query the K examples of greatest score count, K being the share *top* of the examples that have a source.
    If several examples have the K-th score, all of them count in equal parts. A weight is the mean over the queries;
    its interval is by 1,000 resamples of the queries. Examples without a source are left out, and counted separately.

    Args:
        index: the index of all sources together; or its path.
        queries: examples of the target.
        by: the field that names the source.
        better: better answers, as for :meth:`airrep.Index.top`. Then the examples count that teach them most in place
            of the queries' answers, except examples that teach a worse answer more than any better one.
        top: the share of the examples that count for a query, above 0 and at most 1.
        where: a filter; only examples that pass it are ranked.
        seed: random seed for the resamples.
        progress: called with the number of encoded queries.

    Raises:
        ConfigError: an unknown field, fewer than two sources, or an invalid share or filter.
        DataError: all scores are 0, or every example teaches a worse answer more than the better one.

    Example:
        >>> weights = airrep.mix(index, queries, by="source")
        >>> sorted(one.name for one in weights.sources)
        ['books', 'forum']
    """
    index = as_index(index)
    if not (isinstance(top, float | int | np.floating) and 0 < top <= 1):
        raise ConfigError(f"mix: top is {top}; it must be above 0 and at most 1.")
    keep = index.kept(where)
    names, codes = _coded(index, keep, by)
    without = int((codes[keep] < 0).sum())
    question = index.question(queries, better)
    asked = question.ranked(index.ask(question, progress), towards=True)
    sizes = np.bincount(codes[codes >= 0], minlength=len(names))
    if better is not None:
        codes[~without_worse(asked, keep)] = -1
    count = min(max(1, round(top * int(sizes.sum()))), int((codes >= 0).sum()))
    if not count:
        raise DataError(
            "mix: no example teaches the better answers (--better) more than the queries' answers. Give other queries."
        )
    shares = _shares(asked, codes, len(names), count)
    weights = _weights(names, sizes, shares, seed, every=count == sizes.sum())
    provenance = changed(question.told(index.provenance(), towards=True), units=UNITS)
    return MixResult(by, weights, len(shares), count, provenance, where, without)


def _coded(index: Index, keep: Mask, by: str) -> tuple[list[str], np.ndarray]:
    """Return the sources' names, and the number of each row's name, ``(n,)``; -1 without a source, or not kept."""
    named = kept_values(index, keep, by)
    names = sorted({name for name in named if name is not None})
    if len(names) < 2:
        raise ConfigError(
            f"mix: the field '{by}' has {many(len(names), 'value')}; at least two are needed. Name another field."
        )
    number: dict[str | None, int] = {name: code for code, name in enumerate(names)}
    codes = np.full(index.rows, -1)
    codes[keep] = [number.get(name, -1) for name in named]
    return names, codes


def _shares(asked: Asked, codes: np.ndarray, sources: int, count: int) -> np.ndarray:
    """Return each source's share of the *count* rows of greatest score, ``(q, sources)``."""
    keep = codes >= 0
    best = top_k(asked, count, keep=keep).scores.astype(np.float64)
    if not best.any():
        raise DataError(f"mix: {ZERO}. Give other queries, or another index.")
    least, near = best[:, -1:], TIED**2 * np.abs(best).max(axis=1, keepdims=True)  # near: in case least is about 0
    above, tied = np.zeros((2, len(asked), sources))
    for rows, scores in stream_scores(asked, keep):
        members = SparseRows.of(np.eye(sources)[codes[rows]]).T
        equal = np.isclose(scores, least, rtol=TIED, atol=near)
        above += (members @ ((scores > least) & ~equal).T.astype(np.float64)).T
        tied += (members @ equal.T.astype(np.float64)).T
    left = count - above.sum(axis=1, keepdims=True)
    return (above + left * tied / tied.sum(axis=1, keepdims=True)) / count


def _weights(
    names: list[str], sizes: np.ndarray, shares: np.ndarray, seed: int, *, every: bool
) -> tuple[SourceWeight, ...]:
    """Return the sources with their intervals; with *every*, all examples count for each query."""
    weights, q = shares.mean(axis=0), len(shares)
    counts = stream(seed, "mix").multinomial(q, np.full(q, 1 / q), size=RESAMPLES)
    apart = (counts @ shares / q - weights) * np.sqrt(q / max(1, q - 1))  # resampling gives (q - 1) / q of the variance
    low, high = (weights + np.quantile(apart, [0.025, 0.975], axis=0)).clip(0.0, 1.0)
    # If all queries agree, no resample varies: take the exact interval of a share.
    known = LEAST ** (1 / q) * np.isclose(shares, shares[0], rtol=0, atol=ALIKE).all(axis=0)
    if every:  # then all queries give the same shares, so nothing is left to chance
        known = np.ones(len(names))
    low = np.where(known > 0, known * weights, low)
    high = np.where(known > 0, known * weights + 1 - known, high)
    order = np.argsort(-weights, kind="stable").tolist()
    columns = (column.tolist() for column in (sizes, sizes / sizes.sum(), weights, low, high))
    found = [SourceWeight(*values) for values in zip(names, *columns, strict=True)]
    return tuple(found[one] for one in order)


def drawn_counts(result: MixResult) -> dict[str, int]:
    """Count examples to draw from each source, in proportion to the weights: as many as possible without repeats."""
    weighed = [source for source in result.sources if source.weight > 0]
    total = min(source.examples / source.weight for source in weighed)
    return {source.name: max(1, min(source.examples, math.floor(source.weight * total + 1e-9))) for source in weighed}


def drawn_rows(result: MixResult, index: Index, seed: int = 0) -> dict[str, Rows]:
    """Draw rows of each source at random, in proportion to the weights; ascending."""
    keep = index.mask(result.where)
    rows, named = np.flatnonzero(keep), np.array(kept_values(index, keep, result.by), dtype=object)
    return {
        name: np.sort(stream(seed, "mixed", name).choice(rows[named == name], count, replace=False))
        for name, count in drawn_counts(result).items()
    }


def write_axolotl(
    result: MixResult, index: Index, out: str | Path, *, seed: int = 0, replace: bool = False
) -> dict[str, int]:
    """Draw examples in proportion to the weights; write one JSONL file for each source, and axolotl's data-set entries.

    Axolotl reads each data set whole, so weights become numbers of examples: drawn at random, none twice, as many as
    the scarcest source allows. A line holds ``messages``: those of the prompt, then the response as the assistant's.
    ``datasets.yaml`` names the files relative to its folder. With *replace* the folder may exist if it holds only
    such files. Return the numbers of examples by source.

    ArtifactError: the folder exists, or cannot be written. ConfigError: the index is not the one that was mixed, or has
    changed since; its texts were left out; or the examples include answers to avoid.
    """
    if index.fingerprint != result.provenance.index:
        raise ConfigError(
            f"{index.path}: is not the index that `airrep mix` read, or has changed. Repeat `airrep mix`."
        )
    as_index(index, "the export for axolotl")
    _check_targets(index, result.where)
    drawn = drawn_rows(result, index, seed)
    counts = {name: len(rows) for name, rows in drawn.items()}
    digits, entries, told = len(str(len(counts))), [], ""
    check_new_folder(Path(out), DRAWN if replace else ())
    with new_folder(Path(out), replace=replace) as folder:
        for number, (name, rows) in enumerate(drawn.items(), 1):
            file = f"source-{number:0{digits}}.jsonl"  # the name of a source may be invalid as a file name
            lines = (json.dumps(_messages(index.example(row)), ensure_ascii=False) for row in rows.tolist())
            (folder / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            how = {"type": "chat_template", "field_messages": "messages", "message_field_training": _LEARNT}
            entries.append({"path": file, "ds_type": "json", **how})
            told += f"# {file}: {json.dumps(name)}, {many(counts[name], 'example')}\n"
        text = told + yaml.safe_dump({"datasets": entries}, sort_keys=False)
        (folder / ENTRIES).write_text(text, encoding="utf-8")
    return counts


def _check_targets(index: Index, where: str | None) -> None:
    """Refuse answers to avoid, which a trainer would learn: rejected answers, and those labelled false in KTO data."""
    avoided = [("preference", '"rejected"')] if "preference" in index.fields else []
    marked = [name for name in KTO_FIELDS if any(f"{name} false ({KTO}" in form for form in index.reading.forms)]
    avoided += [(name, value) for name in marked for value in KTO_FIELDS[name]]
    for field, value in avoided:
        both = [] if where is None else [f"({where})"]
        count = int(index.mask(" and ".join([*both, f"{field} == {value}"])).sum())
        if count:
            left = " and ".join([*both, f"{field} != {value}"])
            raise ConfigError(
                f"mix: {many(count, 'example has', 'examples have')} the {field} {value}, which marks answers to "
                f"avoid, but a trainer would learn these answers. Leave them out: --where {shlex.quote(left)}."
            )


def _messages(example: Example) -> dict[str, object]:
    """Return the messages of an example, with their tools; other answers than its own are marked as not learnt."""
    chat = example.chat or {}
    asked = chat_of(example.prompt) if example.prompt else []
    messages = chat.get("messages") or [*asked, chat_message("assistant", example.response)]
    others = {"tools": chat.get("tools"), "chat_template_kwargs": chat.get("template")}
    given = {name: value for name, value in others.items() if value}
    return {"messages": list(_marked(messages, alone="turn" in example.metadata)), **given, "id": example.id}


def _marked(messages: Sequence[Mapping[str, Any]], *, alone: bool) -> Iterator[Mapping[str, Any]]:
    """Mark messages that are not learnt: those that say so; with *alone*, all answers but the last."""
    for number, message in enumerate(messages, 1):
        earlier = alone and number < len(messages) and message["role"] == "assistant"
        yield {**message, _LEARNT: False} if earlier or not is_learnt(number, message) else message
