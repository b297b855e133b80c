"""The folder of a trained encoder: claimed, sealed, opened; its card."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from airrep._version import __version__
from airrep.encoder.base import Encoder
from airrep.encoder.cards import NO_PROMPTS, Prompts, read_card, write_prompts
from airrep.errors import ArtifactError
from airrep.index.results.result import Shown
from airrep.labels.labels import LabelledInstance
from airrep.runtime.artifacts import MANIFEST, REQUEST, canonical_json, partial_path, read_manifest, seal, versions
from airrep.runtime.publishing import writing
from airrep.runtime.stage import Stage
from airrep.training.settings import TrainingSettings

if TYPE_CHECKING:
    from airrep.encoder.networks.packed import Stored

KIND = "encoder"

WORK = "work"
"""Checkpoints and activations of an unfinished run, deleted once it is sealed."""

_EXECUTION = ("device", "memory_budget", "checkpoint_every")
"""Settings that change how training runs, not its result; ``chunk_tokens`` is one too, unless layers have dropout."""

_MOST_SOURCES = 40
"""Sources that a card lists; the rest are counted."""


@dataclass(frozen=True, repr=False)
class TrainingResult(Shown):
    """A finished training run."""

    path: Path
    """A folder that :func:`airrep.encoder.load.load_encoder` and ``SentenceTransformer`` load."""
    training: Mapping[str, Any]
    """Values of the model card: ``results``, ``steps``, ``best_step``, ``scale``, lineage."""

    def _records(self) -> Iterator[dict[str, Any]]:
        for name, found in self.training["results"].items():
            for who, value in found.items():
                if "lds" in value:
                    low, high = value["interval"]
                    yield {"instances": name, "encoder": who, "lds": value["lds"], "low": low, "high": high}

    def summary(self) -> str:
        found = self.held_out_lds
        judged = "" if found is None else f", LDS × 100 on held-out instances {100 * found:.1f}"
        return f"{self.path}, step {self.best_step}{judged}"

    @property
    def best_step(self) -> int:
        """Number of steps after which the weights were taken."""
        return int(self.training["best_step"])

    @property
    def held_out_lds(self) -> float | None:
        """LDS on the held-out instances, between −1 and 1; None without any."""
        found = self.training["results"].get("held_out")
        return None if found is None else float(found["trained"]["lds"])

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of :attr:`held_out_lds`."""
        found = self.training["results"].get("held_out")
        return found and (found["trained"]["interval"][0], found["trained"]["interval"][1])


def open_result(path: Path) -> TrainingResult:
    """Open a finished run (ArtifactError: there is none, or it is unfinished or altered)."""
    read_manifest(path, KIND)
    return TrainingResult(path, read_card(path).training or {})


def training_stage(out: str | Path, request: Mapping[str, Any], replace: bool) -> Stage:
    other = "an unfinished training with other data or settings; nothing is overwritten"
    # Test instances are scored after the last step, so an unfinished run can be resumed with others.
    return Stage(out, KIND, "an encoder trained", request, replace, _has_steps, other, ignoring=("test",))


def _has_steps(partial: Path) -> bool:
    from airrep.training.state import load_state  # here, since finished runs are shown without torch

    begun = load_state(partial / WORK)
    return begun is not None and begun[0].step > 0


def is_sealed(stage: Stage) -> bool:
    """Return True if an earlier run for this request sealed its folder but stopped before the final rename."""
    partial = partial_path(stage.path)
    if not (partial / MANIFEST).is_file():
        return False
    try:
        sealed = read_manifest(partial, KIND)
    except ArtifactError:
        return False
    return bool(sealed["request"] == json.loads(canonical_json(stage.request)))


def finish(stage: Stage, partial: Path, checkpoint: "Stored", prompts: Prompts) -> None:
    """Write the encoder and its card, and seal the unfinished folder.

    The encoder keeps the *prompts* of its start, since training put them before its texts.
    """
    from airrep.training.state import STEPS

    training = checkpoint.card.training or {}
    with writing(stage.path):
        written = _write_model(partial, checkpoint, prompts)
        content = {
            "request": dict(stage.request),
            **{name: training.get(name) for name in ("results", "steps", "best_step")},
            "packages": versions("torch", "numpy", "tokenizers"),
        }
        # Without times and costs, so that equal runs have equal manifests.
        seal(partial, KIND, content, written=(REQUEST, STEPS, *written))
        remove_work(partial)


def remove_work(partial: Path) -> None:
    """Remove what a training needed to be resumed."""
    shutil.rmtree(partial / WORK, ignore_errors=True)


def _write_model(partial: Path, checkpoint: "Stored", prompts: Prompts) -> list[str]:
    """Write the model in the work folder, then move it, so that no partial file is sealed; return its file names."""
    from airrep.encoder.networks.packed import write_stored

    made = partial / WORK / "encoder"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    write_stored(checkpoint, made)
    if prompts != NO_PROMPTS:
        write_prompts(made, prompts)
    (made / "README.md").write_text(render_card(checkpoint.card.training or {}), encoding="utf-8")
    names = sorted(child.name for child in made.iterdir())
    for name in names:
        child, target = made / name, partial / name
        if target.is_dir():  # a rename cannot replace a folder
            shutil.rmtree(target)
        child.replace(target)
    return names


def describe_instance(instance: LabelledInstance) -> dict[str, Any]:
    """Describe an instance for requests and cards: fingerprints, sizes, and a checksum of its subsets and losses."""
    sizes, summed = instance.subsets.sizes, hashlib.sha256()
    for part in (instance.subsets.rows.astype("<i8"), instance.subsets.offsets.astype("<i8")):
        summed.update(f"{part.shape}\n".encode() + part.tobytes())
    summed.update(f"{instance.losses.shape}\n".encode() + instance.losses.astype("<f4").tobytes())
    return {
        "name": instance.name,
        "train": instance.train.fingerprint,
        "train_examples": len(instance.train),
        "queries": instance.queries.fingerprint,
        "query_examples": len(instance.queries),
        "subsets": len(instance.subsets),
        "subset_sizes": [int(sizes.min()), int(sizes.max())] if len(sizes) else [0, 0],
        "labels": summed.hexdigest(),
    }


def deciding(settings: TrainingSettings) -> dict[str, Any]:
    """Return the settings that decide the result, without the start: requests and cards hold its fingerprint."""
    told = settings.model_dump(mode="json", exclude={"start", *_EXECUTION})
    if not settings.dropout or settings.chunk_tokens is None:  # each chunk draws what it drops
        del told["chunk_tokens"]
    return told


def training_lineage(
    instances: Sequence[LabelledInstance], start: Encoder, settings: TrainingSettings, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Describe data and settings of a training for its card; results are added when they are known."""
    counts: Counter[str] = Counter()  # of sources, or labels where no source is known
    for corpus in (part for one in instances for part in (one.train, one.queries)):
        sources, labels = corpus.table["source"].to_pylist(), corpus.table["label"].to_pylist()
        counts.update(source or label or "(unknown)" for source, label in zip(sources, labels, strict=True))
    named = dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:_MOST_SOURCES])
    return {
        "airrep": __version__,
        "start": {"name": Path(start.name).name, "fingerprint": start.fingerprint},
        "instances": [describe_instance(instance) for instance in instances],
        "sources": named,
        "other_sources": len(counts) - len(named),
        "settings": deciding(settings),
        **extra,
    }


def _plain(value: Any) -> Any:
    """Put a text of a card on one line, without signs that Markdown reads as a cell, a tag or code."""
    if not isinstance(value, str):
        return value
    return " ".join(value.splitlines()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def render_card(training: Mapping[str, Any]) -> str:
    """Render the model card of a trained encoder, its ``README.md``."""
    return render_markdown("encoder_card.md.j2", training=training)


def render_markdown(template: str, /, **values: Any) -> str:
    """Render a card from a template of the package; no text among the *values* becomes markup."""
    loader = PackageLoader("airrep")
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_plain
    )
    return environment.get_template(template).render(values)
