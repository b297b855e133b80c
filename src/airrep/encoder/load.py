"""Sentence encoders: load one by name; without torch where it needs none."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from airrep.encoder.base import Encoder
from airrep.encoder.cards import choose_prompts, with_template
from airrep.encoder.folders import (
    BUNDLED,
    MODULES,
    SETTINGS,
    Layout,
    find_model,
    parse_json,
    read_layout,
    read_optional,
)
from airrep.encoder.static import StaticEncoder, StoredStatic, cut_after, read_static
from airrep.errors import ConfigError, need
from airrep.runtime.devices import Precision
from airrep.runtime.hub import CODE, check_own_code
from airrep.runtime.remote.hub import pinned


def load_encoder(
    name_or_path: str | Path = "default",
    *,
    precision: Precision = "auto",
    device: str = "auto",
    template: str | None = None,
    max_tokens: int | None = None,
    batch_tokens: int | None = None,
    query_prompt: str | None = None,
    train_prompt: str | None = None,
    trust_remote_code: bool = False,
) -> Encoder:
    """Load an encoder.

    BERT-type encoders with mean pooling and linear or unit-length heads run packed, also those in the published AirRep
    format, where transformers' own tokenizer makes the same tokens; all else that ``sentence_transformers`` can load is
    run by that library. An adapter beside the weights is merged into them.

    Args:
        name_or_path: ``"default"`` (bundled), a folder, ``owner/name`` on the Hub, or ``hf://owner/name@revision``.
        precision: type of large matrix products; ``"auto"`` is bfloat16 where airrep's own code runs on CUDA with it.
        device: ``"auto"`` is CUDA where there is one, else the CPU.
        template: text of an example, with ``{prompt}`` and ``{response}``; the model's when None.
        max_tokens: longest text; the model's when None.
        batch_tokens: tokens that are computed together when packed, which changes no results; None suits the device.
        query_prompt: text before queries, or the name of one of the model's prompts; ``""`` is none, None its own.
        train_prompt: text before each training example, given in the same way; None: the model's own for documents.
        trust_remote_code: run the program code that some models bring; without it, such models are refused.

    Raises:
        ConfigError: a setting that cannot hold, no such model, no encoder, or program code that is not trusted.
        DataError: a model folder that is incomplete, damaged or unsafe to read.

    Example:
        >>> from airrep.encoder.load import load_encoder
        >>> encoder = load_encoder("default")
        >>> encoder.encode_texts(["a text", "another"]).shape
        (2, 384)
    """
    name = pinned(str(name_or_path))
    if batch_tokens is not None and batch_tokens < 1:
        raise ConfigError(f"encoder {name}: batch_tokens is {batch_tokens}; must be at least 1.")
    layout, code = _read_layout(name, trust_remote_code)
    prompts = choose_prompts(layout.folder, name, query_prompt, train_prompt)
    if layout.format == "static":
        return StaticEncoder(name, _read_static(name, layout, template, max_tokens), prompts)
    need(f"encoder {name}", "encoders", "torch")
    from airrep.encoder.networks.packed import load_network  # here, since it takes long to load

    return load_network(
        name,
        layout,
        prompts,
        code,
        precision=precision,
        device=device,
        template=template,
        max_tokens=max_tokens,
        batch_tokens=batch_tokens,
    )


def _read_layout(name: str, trusted: bool) -> tuple[Layout, Sequence[Path]]:
    """How a model's folder is to be read, and its files of program code; refuses what is not an encoder."""
    folder = find_model(name, (CODE,) if trusted else ())
    if name in BUNDLED:  # no other kind of model, and without programs
        return read_layout(folder), []
    refuse_other_kinds(folder)
    layout = read_layout(folder)
    return layout, [] if layout.format == "airrep" else check_own_code("encoder", name, folder, trusted)


def _read_static(name: str, layout: Layout, template: str | None, max_tokens: int | None) -> StoredStatic:
    """A static encoder with the settings that are asked for; precision and device mean nothing to it."""
    stored = read_static(layout)
    tokenizer = stored.tokenizer
    if max_tokens is not None:
        if max_tokens < 1:
            raise ConfigError(f"encoder {name}: max_tokens is {max_tokens}; must be at least 1.")
        tokenizer = cut_after(tokenizer, max_tokens)
    return replace(stored, card=with_template(name, stored.card, template), tokenizer=tokenizer)


_OTHERS = {
    "sparse": "a sparse encoder",
    "splade": "a sparse encoder",
    "multivector": "a multi-vector encoder",
    "colbert": "a multi-vector encoder",
    "pylate": "a multi-vector encoder",
    "maxsim": "a multi-vector encoder",
    "forretrieval": "a multi-vector encoder",
    "crossencoder": "a cross encoder",
    "forsequenceclassification": "a cross encoder or classifier",
    "forcausallm": "a language model",
    "lmheadmodel": "a language model",
    "forconditionalgeneration": "a language model",
}
"""Meanings of parts of a class's name, in lower case without underscores."""


def refuse_other_kinds(folder: Path) -> None:
    """Refuse a folder whose files name another kind of model."""
    for name in _names(folder):
        plain = name.replace("_", "").lower()
        kind = next((kind for part, kind in _OTHERS.items() if part in plain), None)
        if kind is not None:
            raise ConfigError(
                f"{folder}: holds {kind} ({name}), not an encoder that makes one vector from a text. Give the folder "
                "of an encoder: a BERT-type model, or what sentence-transformers saved."
            )


def _names(folder: Path) -> Iterator[str]:
    """Names of classes by which a folder tells what it is: where no modules are listed, the transformer's own."""
    settings = read_optional(folder / SETTINGS)
    yield from (str(settings[key]) for key in ("model_type", "similarity_fn_name") if settings.get(key))
    if not (folder / MODULES).exists():
        yield from map(str, read_optional(folder / "config.json").get("architectures") or ())
    elif isinstance(entries := parse_json(folder / MODULES), list):
        yield from (str(entry.get("type")) for entry in entries if isinstance(entry, dict))
