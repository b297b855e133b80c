"""A mix as files: examples of each source, drawn to its weight."""

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from airrep.answers.mix import MixResult
from airrep.answers.texts import kept_values
from airrep.arrays import Rows
from airrep.corpus.corpus import Example
from airrep.corpus.schemas.conversations import chat_message, chat_of
from airrep.corpus.schemas.forms import KTO, KTO_FIELDS
from airrep.corpus.schemas.values import is_learnt
from airrep.errors import ConfigError
from airrep.index.index import Index
from airrep.runtime.remote.outputs import check_new_folder, new_folder
from airrep.runtime.seeding import stream

ENTRIES = "datasets.yaml"
_LEARNT = "train"
"""Key of a message that axolotl is told to heed."""
DRAWN = (ENTRIES, "source-*.jsonl")
"""Patterns of the files in a folder for axolotl."""


def drawn_counts(result: MixResult) -> dict[str, int]:
    """Examples of each source, in proportion to the weights: as many as there are without taking one twice."""
    weighed = [source for source in result.sources if source.weight > 0]
    total = min(source.examples / source.weight for source in weighed)
    return {source.name: max(1, min(source.examples, math.floor(source.weight * total + 1e-9))) for source in weighed}


def drawn_rows(result: MixResult, index: Index, seed: int = 0) -> dict[str, Rows]:
    """Rows of the examples of each source that are drawn at random to the weights, ascending."""
    keep = index.mask(result.where)
    rows, named = np.flatnonzero(keep), np.array(kept_values(index, keep, result.by), dtype=object)
    return {
        name: np.sort(stream(seed, "mixed", name).choice(rows[named == name], count, replace=False))
        for name, count in drawn_counts(result).items()
    }


def write_axolotl(
    result: MixResult, index: Index, out: str | Path, *, seed: int = 0, replace: bool = False
) -> dict[str, int]:
    """Write examples drawn to the weights as one JSONL for each source, and the data-set entries of axolotl for them.

    Axolotl takes each of its data sets whole, so weights become numbers of examples: drawn at random, none twice, as
    many as the scarcest source allows. Each line holds ``messages``, those of the prompt and the response as the
    assistant's; ``datasets.yaml`` names the files by their paths from the folder that holds it.

    Args:
        result: the weights.
        index: the index that they were found on.
        out: a new folder.
        seed: of the draw.
        replace: the folder may be there, if it holds nothing but such files.

    Returns:
        Examples written, by source.

    Raises:
        ArtifactError: the folder exists, or it cannot be written.
        ConfigError: the index is not the one that was weighed, or it was changed since; or answers to avoid are among
            the examples.
    """
    if index.fingerprint != result.provenance.index:
        raise ConfigError(f"{index.path}: is not the index that was weighed, or was changed since. Mix again.")
    _check_targets(index, result.where)
    drawn = drawn_rows(result, index, seed)
    counts = {name: len(rows) for name, rows in drawn.items()}
    digits, entries = len(str(len(counts))), []
    check_new_folder(Path(out), DRAWN if replace else ())
    with new_folder(Path(out), replace=replace) as folder:
        for number, rows in enumerate(drawn.values(), 1):
            file = f"source-{number:0{digits}}.jsonl"  # a source's name may be none that a file can have
            lines = (json.dumps(_messages(index.example(row)), ensure_ascii=False) for row in rows.tolist())
            (folder / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            how = {"type": "chat_template", "field_messages": "messages", "message_field_training": _LEARNT}
            entries.append({"path": file, "ds_type": "json", **how})
        told = zip(counts, entries, strict=True)
        names = "".join(f"# {entry['path']}: {json.dumps(name)}, {counts[name]:,} examples\n" for name, entry in told)
        text = names + yaml.safe_dump({"datasets": entries}, sort_keys=False)
        (folder / ENTRIES).write_text(text, encoding="utf-8")
    return counts


def _check_targets(index: Index, where: str | None) -> None:
    """Refuse answers to avoid, which a trainer takes for those to give: rejected, or of label false in KTO data."""
    avoided = [("preference", '"rejected"')] if "preference" in index.fields else []
    marked = [name for name in KTO_FIELDS if any(f"{name} false ({KTO}" in form for form in index.reading.forms)]
    avoided += [(name, value) for name in marked for value in KTO_FIELDS[name]]
    for field, value in avoided:
        both = [] if where is None else [f"({where})"]
        count = int(index.mask(" and ".join([*both, f"{field} == {value}"])).sum())
        if count:
            left = " and ".join([*both, f"{field} != {value}"])
            raise ConfigError(
                f"mix: {count:,} of the examples have the {field} {value}, which marks answers to avoid; a trainer "
                f"would take them for answers to give. Leave them out: --where {shlex.quote(left)}."
            )


def _messages(example: Example) -> dict[str, object]:
    """The messages of an example as its record has them, with their tools; answers that are not its own are marked."""
    chat = example.chat or {}
    asked = chat_of(example.prompt) if example.prompt else []
    messages = chat.get("messages") or [*asked, chat_message("assistant", example.response)]
    others = {"tools": chat.get("tools"), "chat_template_kwargs": chat.get("template")}
    given = {name: value for name, value in others.items() if value}
    return {"messages": list(_marked(messages, alone="turn" in example.metadata)), **given, "id": example.id}


def _marked(messages: Sequence[Mapping[str, Any]], *, alone: bool) -> Iterator[Mapping[str, Any]]:
    """Messages, marked where they are not learnt: by marks of their own; with *alone*, all answers but the last."""
    for number, message in enumerate(messages, 1):
        earlier = alone and number < len(messages) and message["role"] == "assistant"
        yield {**message, _LEARNT: False} if earlier or not is_learnt(number, message) else message
