"""What a trained encoder's card says of its training."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from airrep._version import __version__
from airrep.encoder.base import Encoder
from airrep.labels.instance import LabelledInstance
from airrep.labels.teaching import Teaching
from airrep.training.settings import TrainingSettings

EXECUTION = ("device", "memory_budget", "chunk_tokens", "checkpoint_every")
"""Settings that say how training runs, not what comes of it."""
MOST_SOURCES = 40
"""Sources that a card lists; the rest are counted."""


def describe_instance(instance: LabelledInstance) -> dict[str, Any]:
    """Fingerprints and sizes of an instance, for requests and cards."""
    sizes = instance.subsets.sizes
    return {
        "name": instance.name,
        "train": instance.train.fingerprint,
        "train_examples": len(instance.train),
        "queries": instance.queries.fingerprint,
        "query_examples": len(instance.queries),
        "subsets": len(instance.subsets),
        "subset_sizes": [int(sizes.min()), int(sizes.max())] if len(sizes) else [0, 0],
        "labels": digest_labels(instance),
    }


def describe_teaching(teaching: Teaching) -> dict[str, Any]:
    """What an encoder learns from before labels, for requests and cards."""
    return {
        **teaching.described,
        "steps": teaching.steps,
        "members": teaching.members,
        "rate": teaching.rate,
        "instances": [describe_instance(instance) for instance in teaching.instances],
    }


def deciding(settings: TrainingSettings) -> dict[str, Any]:
    """The settings that decide the result, but for the start, which its fingerprint tells."""
    return settings.model_dump(mode="json", exclude={"start", *EXECUTION})


def digest_labels(instance: LabelledInstance) -> str:
    """64 hex digits over the subsets and the losses of an instance."""
    subsets = instance.subsets
    summed = hashlib.sha256()
    for part in (subsets.rows.astype("<i8"), subsets.offsets.astype("<i8"), instance.losses.astype("<f4")):
        summed.update(f"{part.shape}\n".encode())
        summed.update(part.tobytes())
    return summed.hexdigest()


def group_sizes(instances: Sequence[LabelledInstance]) -> tuple[int, int]:
    """Smallest and largest subset of some instances."""
    sizes = [size for instance in instances for size in instance.subsets.sizes]
    return int(min(sizes)), int(max(sizes))


def sources(instances: Sequence[LabelledInstance]) -> dict[str, int]:
    """Examples of each source (or label, where no source is known), most first."""
    counts: Counter[str] = Counter()
    for instance in instances:
        for corpus in (instance.train, instance.queries):
            named, labels = corpus.table["source"].to_pylist(), corpus.table["label"].to_pylist()
            counts.update(source or label or "(unknown)" for source, label in zip(named, labels, strict=True))
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def lineage_of(
    instances: Sequence[LabelledInstance],
    start: Encoder,
    settings: TrainingSettings,
    extra: Mapping[str, Any],
    teaching: Teaching | None = None,
) -> dict[str, Any]:
    """What an encoder was trained on and how; what came of it is added later."""
    counted = sources([*instances, *(teaching.instances if teaching else ())])
    named = dict(list(counted.items())[:MOST_SOURCES])
    return {
        "airrep": __version__,
        "start": {"name": Path(start.name).name, "fingerprint": start.fingerprint},
        "instances": [describe_instance(instance) for instance in instances],
        "sources": named,
        "other_sources": len(counted) - len(named),
        "settings": deciding(settings),
        **({"teacher": describe_teaching(teaching)} if teaching else {}),
        **extra,
    }


def render_card(training: Mapping[str, Any]) -> str:
    """``README.md`` of a trained encoder: its model card in Markdown."""
    loader = PackageLoader("airrep")
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("encoder_card.md.j2").render(training=training)
