"""Build an index, or continue an unfinished build."""

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from airrep.arrays import whole_number
from airrep.attributors.base import Attributor, OnProgress, fit_method, parts_of, usable
from airrep.attributors.methods import before_training, make_attributor, packages_of
from airrep.attributors.precomputed import PrecomputedAttributor
from airrep.attributors.recipes import RecipeLike
from airrep.attributors.sums.channels import ChannelsAttributor
from airrep.corpus.corpus import Corpus
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.errors import ArtifactError, ConfigError, DataError, caution
from airrep.index.encoding import corpus_entry, reading_entry, seal_index, write_shards
from airrep.index.index import Index
from airrep.index.rows import KIND, PACKAGES, READING
from airrep.index.shards import SHARD
from airrep.runtime.artifacts import check_digests, real_path
from airrep.runtime.engine import Engine
from airrep.runtime.metering import FIT, MeasuredCost, append_cost, device_of, measuring
from airrep.runtime.publishing import writing
from airrep.runtime.ray_engine import make_engine
from airrep.runtime.stage import Stage

_log = logging.getLogger(__name__)

SHARD_ROWS, LARGEST, SHARDS = 4096, 32768, 12
"""Least and greatest number of examples in a shard; between them, an index has at least this many shards. Many small
shards slow queries down, while an interruption loses at most one shard of work."""


def build_index(
    train: CorpusLike,
    out: str | Path,
    method: str | Attributor | None = None,
    *,
    recipe: RecipeLike | None = None,
    settings: Mapping[str, Any] | None = None,
    skip_invalid: bool = False,
    shard_rows: int | None = None,
    replace: bool = False,
    progress: OnProgress | None = None,
    engine: Engine | str | None = None,
) -> Index:
    """Encode a training corpus into an index directory.

    The directory appears under its name when it is whole. An interrupted build resumes from its finished shards
    when it is run again, and gives the same bytes as an uninterrupted build. An existing index that was made in the
    same way from the same corpus is returned as it is.

    Args:
        train: the training data: a path, a corpus, a Hugging Face ``Dataset``, a table of pandas, polars or pyarrow, a
            dict of columns, or examples or dicts (:func:`airrep.corpus.inputs.as_corpus`).
        out: the directory to make.
        method: a method's name (see ``airrep show methods``), which is a recipe of one line, or an attributor.
        recipe: a recipe's name (``text``, ``lm``, ``lm-warm``, ``lm-whole``, ``lm-whole-warm`` and others), its YAML
            file, or a list of channels, in place of a method. None, without a method: ``text``, ``lm`` where *settings*
            name an LM, ``lm-warm`` where they also name one after a warm-up, or the encoder alone where they name one.
        settings: settings of the method, unless it is an attributor; or of the recipe's channels.
        skip_invalid: leave out examples that the method's language model cannot read; otherwise they are an error.
        shard_rows: examples in one shard, which an interruption can lose; None for a power of 2 from 4,096 to 32,768
            that leaves 12 shards or more.
        replace: replace an existing index that differs.
        progress: called with the number of finished rows.
        engine: where shards are encoded, on one thread each, with the same bytes on every engine: ``"local"``,
            ``"ray"`` or an engine; if None in this process, on all threads.

    Raises:
        ConfigError: no such method or setting, or a method of your own that does not make features of all examples.
        DataError: the corpus is empty, or a feature is not finite.
        TrainingError: workers of the engine fail in every attempt.
        ArtifactError: *out* holds something else, another process is writing there, or it cannot be written.

    Example:
        >>> made = airrep.build_index("train.jsonl", "runs/words", method="tfidf")
        >>> len(made)
        60
    """
    path = real_path(out)
    method, train, shard_rows = checked(train, method, settings, shard_rows, skip_invalid, recipe)
    plan = planned(method, train, shard_rows, progress, partial(index_stage, path, replace=replace))
    stage = index_stage(path, plan.request, replace)
    finished = stage.finished()
    if finished is not None and finished["generation"] > 0:
        raise ArtifactError(
            f"{path}: is an index that was changed after it was built; nothing is overwritten. Give another path, or "
            "pass --replace."
        )
    if finished is None:
        _write(stage, plan, train, shard_rows, progress=progress, engine=make_engine(engine))
    return Index.just_built(path, plan.attributor)


def _write(stage: Stage, plan: "BuildPlan", train: Corpus, shard_rows: int, **how: Any) -> None:
    """Write the learnt state, then the shards, and seal the index; continue an interrupted build."""
    with stage.making() as partial:
        (partial / "shards").mkdir(exist_ok=True)
        append_cost(partial, FIT, plan.fit, examples=len(train))
        save_state(partial, plan.attributor)
        seal_index(partial, plan.lineage, write_shards(partial, plan.attributor, train, shard_rows, **how))


def checked(
    train: CorpusLike,
    method: str | Attributor | None,
    settings: Mapping[str, Any] | None,
    shard_rows: int | None,
    skip_invalid: bool,
    recipe: RecipeLike | None = None,
) -> tuple[Attributor, Corpus, int]:
    """Check arguments of :func:`build_index`; return attributor, corpus and rows of a shard. Same errors."""
    train = as_corpus(train)
    if isinstance(method, Attributor) and settings is not None:
        raise ConfigError(
            "settings: cannot be combined with an Attributor object, which has its own settings. Remove the argument "
            "settings, or pass the name of a method."
        )
    if len(train) == 0:
        raise DataError("train: the corpus is empty. Give at least one example.")
    if shard_rows is not None and whole_number("shard_rows", shard_rows) < 1:
        raise ConfigError(f"shard_rows is {shard_rows}; it must be at least 1.")
    if recipe is not None:
        if method is not None:
            raise ConfigError(
                "recipe (list of methods): cannot be combined with method, as a recipe names its methods. Remove one "
                "of them."
            )
        method, settings = ChannelsAttributor.name, {**(settings or {}), "channels": recipe}
    if method is None:
        method = "airrep" if "encoder" in (settings or {}) else ChannelsAttributor.name
    method = before_training(method if isinstance(method, Attributor) else make_attributor(method, settings))
    train = usable(method, train, "train") if skip_invalid else train
    wanted = min(LARGEST, max(SHARD_ROWS, len(train) // SHARDS))
    return method, train, shard_rows or 1 << wanted.bit_length() - 1


def index_stage(path: Path, request: Mapping[str, Any], replace: bool) -> Stage:
    """Return the stage that makes an index for a request."""
    return Stage(
        path, KIND, "an index made", request, replace, has_shards, "an unfinished index of other data or settings"
    )


LEAST_LIKENESS = 0.98
"""Least cosine, or rank correlation, of bfloat16 gradients with float32 for which bfloat16 is used."""


def planned(
    method: Attributor,
    train: Corpus,
    shard_rows: int,
    progress: OnProgress | None,
    stage: Callable[[Mapping[str, Any]], Stage],
) -> "BuildPlan":
    """Let a method learn from its corpus, and plan its index; in float32 if bfloat16 changes gradients too much.

    *stage* makes the stage of a request. If it is finished, other data are refused before anything is learnt; with
    equal data and settings, what the method learnt then is read instead.
    """
    known = {"method": method.name, "corpus": train.fingerprint, "shard_rows": shard_rows}
    early = replaced(stage(known), shown=lambda request: {name: request.get(name) for name in known})
    finished = early.finished()
    own = all(type(one).__module__.startswith("airrep.") for one in parts_of(method))
    # Settings and corpus decide what these methods learn, and their fingerprints all else that they read.
    if finished is not None and own and not any(isinstance(one, PrecomputedAttributor) for one in parts_of(method)):
        before = finished.get("lineage", finished)["settings"]
        if before == method.settings.model_dump(mode="json"):
            return recalled(method, train, shard_rows, early.path, finished["files"])
    half = "bfloat16" in method.execution.values()
    method, noise = _steadied(method, train) if half else (method, {})
    return BuildPlan(method, train, shard_rows, fit(method, train, progress), noise)


def _steadied(method: Attributor, train: Corpus) -> tuple[Attributor, Mapping[str, float]]:
    """Return the method, or a float32 copy if bfloat16 changes gradients too much; and the measured likeness."""
    noise = method.float_noise(train)
    if not noise or min(noise.values()) >= LEAST_LIKENESS:
        return method, noise
    told = ", ".join(f"{name.replace('_', ' ')} {one:.3f}" for name, one in noise.items())
    caution(
        _log,
        f"{method.name}: gradients in bfloat16 differ too much from float32 ({told} on 16 examples; at least "
        f"{LEAST_LIKENESS} is needed). The index uses float32",
    )
    settings = method.settings
    plain = type(settings).of({**settings.model_dump(exclude_unset=True), "precision": "float32"})
    kind: Any = type(method)
    return kind(plain), noise


def fit(attributor: Attributor, train: Corpus, progress: OnProgress | None) -> MeasuredCost:
    """Let a method learn from the corpus; return the cost, without that of loading the model."""
    attributor.load()
    with measuring(device_of(attributor.settings)) as meter:
        fit_method(attributor, train, progress)
    return meter.spent


def recalled(method: Attributor, train: Corpus, shard_rows: int, folder: Path, files: Mapping[str, Any]) -> "BuildPlan":
    """Plan an index whose method uses what an earlier build learnt, by the files of its manifest."""
    state = {name: entry for name, entry in files.items() if name.startswith("state/")}
    check_digests(folder, state)
    method.load()
    if state:
        method.load_state(folder / "state")
    return BuildPlan(method, train, shard_rows, MeasuredCost(0.0, 0.0))


@dataclass(frozen=True)
class BuildPlan:
    """Attributor and corpus of an index to build."""

    attributor: Attributor
    train: Corpus
    shard_rows: int
    fit: MeasuredCost
    """Cost of learning from the corpus."""
    noise: Mapping[str, float] = field(default_factory=dict)
    """See :meth:`Attributor.float_noise`."""

    @cached_property
    def request(self) -> dict[str, Any]:
        """The JSON object that decides the bytes of the index; equal requests give equal indexes.

        Errors name the first difference: the corpus comes before the attributor, which differs too if it learnt.
        """
        return {
            "method": self.attributor.name,
            "corpus": self.train.fingerprint,
            "attributor": self.attributor.fingerprint,
            "execution": dict(self.attributor.execution),
            "shard_rows": self.shard_rows,
            **self.attributor.rendering(self.train),
        }

    @property
    def lineage(self) -> dict[str, Any]:
        """Fields of the manifest on the origin of the index."""
        attributor = self.attributor
        return {
            "request": self.request,
            "method": attributor.name,
            "settings": attributor.settings.model_dump(mode="json"),
            "attributor": attributor.fingerprint,
            "corpora": [corpus_entry(attributor, self.train)],
            "generation": 0,
            **({"caution": attributor.caution} if attributor.caution else {}),
            **({"float_noise": dict(self.noise)} if self.noise else {}),
            **({PACKAGES: packages} if (packages := packages_of(attributor)) else {}),
            **({READING: reading} if (reading := reading_entry(self.train.reading)) else {}),
        }


def has_shards(partial: Path) -> bool:
    """Return whether an unfinished directory has a shard worth keeping."""
    return any((partial / "shards").glob("*/" + SHARD))


def save_state(folder: Path, attributor: Attributor) -> None:
    """Write what a method learnt into ``state/``, if it learnt something."""
    state = folder / "state"
    with writing(state):
        shutil.rmtree(state, ignore_errors=True)  # an interrupted build may have left part of it
        state.mkdir()
        attributor.save_state(state)
        if not any(state.iterdir()):  # most methods learn nothing
            state.rmdir()
