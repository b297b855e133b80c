"""Load an encoder that torch runs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from airrep.encoder.base import Encoder
from airrep.encoder.folders import Layout, read_card, with_template
from airrep.encoder.networks.checkpoints import StoredEncoder, read_checkpoint
from airrep.encoder.networks.packed import PackedEncoder
from airrep.encoder.networks.probe import reads_alike
from airrep.encoder.networks.unpacked import LibraryEncoder
from airrep.encoder.prompts import Prompts, counts_prompt
from airrep.encoder.tokens import check_max_tokens
from airrep.errors import DataError
from airrep.runtime.devices import Precision, resolve_device, resolve_precision


def load_network(
    name: str,
    layout: Layout,
    prompts: Prompts,
    code: Sequence[Path],
    *,
    precision: Precision,
    device: str,
    template: str | None,
    max_tokens: int | None,
    batch_tokens: int | None,
) -> Encoder:
    """Load an encoder of some layout, packed where that is possible; settings are those of ``load_encoder``.

    *code* are the files of program code that it brings and that are trusted.
    """
    device = resolve_device(device)
    # Packed, the mean takes in the tokens of the prompt; a model that leaves them out is the library's to run.
    by_library = layout.format == "library" or bool(code) or bool(prompts and not counts_prompt(layout.folder))
    checkpoint = None if by_library else read_checkpoint(layout)
    if checkpoint is None or not _reads_alike(name, layout, checkpoint):
        card = with_template(name, read_card(layout.folder), template)
        chosen = resolve_precision("float32" if precision == "auto" else precision, device)
        return LibraryEncoder(name, layout, card, max_tokens, chosen, device, prompts, code)
    limit = checkpoint.max_tokens if max_tokens is None else max_tokens
    checkpoint = replace(
        checkpoint,
        card=with_template(name, checkpoint.card, template),
        max_tokens=check_max_tokens(limit, checkpoint.model.shape.positions, f"encoder {name}"),
    )
    tokens = (2048 if device == "cpu" else 32768) if batch_tokens is None else batch_tokens
    return PackedEncoder(name, checkpoint, resolve_precision(precision, device), device, tokens, prompts)


def _reads_alike(name: str, layout: Layout, checkpoint: StoredEncoder) -> bool:
    """True if a packed encoder reads as transformers does; the published format has no other way to be run."""
    alike = reads_alike(layout, checkpoint)
    if layout.format == "airrep" and not alike:
        raise DataError(
            f"encoder {name}: transformers reads texts otherwise than its tokenizer.json says; expected the same "
            "tokens. Write both anew: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    return alike
