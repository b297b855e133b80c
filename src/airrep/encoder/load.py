"""Load a sentence encoder by name; without torch if it is static."""

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

    BERT-type encoders with mean pooling and linear or unit-length heads run packed if transformers' own tokenizer makes
    the same tokens; so do encoders in the published AirRep format. Static encoders run without torch. Any other encoder
    is run by ``sentence_transformers``. An adapter beside the weights is merged into them.

    Args:
        name_or_path: ``"default"`` (bundled), a folder, ``owner/name`` on the Hub, or ``hf://owner/name@revision``.
        precision: type of large matrix products; ``"auto"`` is bfloat16 for packed encoders on CUDA, else float32.
        device: ``"auto"`` is CUDA where there is one, else the CPU.
        template: text of an example, with ``{prompt}`` and ``{response}``; the model's own if None.
        max_tokens: longest text; the model's own limit if None.
        batch_tokens: tokens that a packed encoder computes together; affects rounding alone. None suits the device.
        query_prompt: text before queries, or the name of one of the model's prompts; ``""`` is none, None its own.
        train_prompt: text before each training example, given in the same way; None: the model's own for documents.
        trust_remote_code: run the program code that some models bring; without it, such models are refused.

    Raises:
        ConfigError: an invalid setting, no such model, a model that is no encoder, or untrusted program code.
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
    """Return a model's layout and its files of program code (ConfigError: the model is not an encoder)."""
    folder = find_model(name, (CODE,) if trusted else ())
    if name in BUNDLED:  # these are encoders without program code
        return read_layout(folder), []
    refuse_other_kinds(folder)
    layout = read_layout(folder)
    return layout, [] if layout.format == "airrep" else check_own_code("encoder", name, folder, trusted)


def _read_static(name: str, layout: Layout, template: str | None, max_tokens: int | None) -> StoredStatic:
    """Read a static encoder with these settings; precision and device do not apply to it."""
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
"""Kinds of model, by a part of their class's name in lower case without underscores."""


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
    """Yield the class names in a folder's files; those of the transformer only if no modules are listed."""
    settings = read_optional(folder / SETTINGS)
    yield from (str(settings[key]) for key in ("model_type", "similarity_fn_name") if settings.get(key))
    if not (folder / MODULES).exists():
        yield from map(str, read_optional(folder / "config.json").get("architectures") or ())
    elif isinstance(entries := parse_json(folder / MODULES), list):
        yield from (str(entry.get("type")) for entry in entries if isinstance(entry, dict))
