"""Make the bundled encoder of a trained one: only what training changed, in float16, beside the untrained encoder.

Usage: python experiments/learned-encoder/ship.py TRAINED UNTRAINED OUT

OUT and UNTRAINED must be neighbours, as `src/airrep/models/default` and `src/airrep/models/untrained` are: an index of
weights, as models in several files have it, names the file of each tensor.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save

from airrep.encoder.cards import read_card
from airrep.encoder.folders import CARD, INDEX, WEIGHTS, read_json
from airrep.encoder.load import load_encoder
from airrep.runtime.artifacts import canonical_json
from airrep.runtime.remote.outputs import new_folder
from airrep.training.result import render_card

FILES = Path(__file__).parent / "files"
CHANGED = "trained.safetensors"
CAUTION = (
    "The shipped encoder learnt from a language model of 2.6M parameters and was tested on models of up to 135M. "
    "airrep adapt trains an encoder for your model."
)
FRONT = "license: apache-2.0\nbase_model: sentence-transformers/all-MiniLM-L6-v2\n"


def main(trained: Path, untrained: Path, out: Path) -> None:
    """Save in float16, compare, write."""
    with tempfile.TemporaryDirectory() as scratch, new_folder(out) as folder:
        whole = Path(scratch) / "whole"
        load_encoder(trained, precision="float32", device="cpu").save(whole, storage="float16")
        (whole / CARD).write_bytes(canonical_json({**read_json(whole / CARD), "caution": CAUTION}))
        shutil.copytree(whole, folder, dirs_exist_ok=True)
        (folder / WEIGHTS).unlink()
        write_changes(load_file(whole / WEIGHTS), untrained / WEIGHTS, folder)
        card = render_card(read_card(trained).training or {}).replace("---\n", f"---\n{FRONT}", 1)
        (folder / "README.md").write_text(card + (FILES / "README.md").read_text("utf-8"), "utf-8")
        for name in ("LICENSE", "NOTICE"):
            shutil.copyfile(FILES / name, folder / name)


def write_changes(tensors: dict[str, torch.Tensor], base: Path, folder: Path) -> None:
    """Write the tensors that differ from those of a file, and an index that finds all of them."""
    old = load_file(base)
    changed = {name: tensor for name, tensor in tensors.items() if not torch.equal(tensor, old[name])}
    shared = os.path.relpath(base, folder.parent / "encoder").replace(os.sep, "/")
    places = {name: CHANGED if name in changed else shared for name in sorted(tensors)}
    (folder / CHANGED).write_bytes(save(changed, {"format": "pt"}))
    size = sum(tensor.nbytes for tensor in tensors.values())
    content = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{len(changed)} of {len(tensors)} tensors changed")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
