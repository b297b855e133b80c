"""Cut the middle layers out of a Llama-type LM, so that as many are left before as after; `airrep warmup` heals it.

Usage: python experiments/smollm2/cut.py MODEL OUT [--layers 8]
"""

import argparse
import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")


def main() -> None:
    """Read, keep the layers, write beside the same tokenizer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=8)
    given = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    depth = model.config.num_hidden_layers
    if not 2 <= given.layers <= depth:
        parser.error(f"--layers {given.layers}: expected 2 to {depth}.")
    after = given.layers // 2
    kept = [*range(given.layers - after), *range(depth - after, depth)]
    model.model.layers = torch.nn.ModuleList(model.model.layers[number] for number in kept)
    model.config.num_hidden_layers = given.layers
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = [model.config.layer_types[number] for number in kept]
    model.save_pretrained(given.out)
    for name in TOKENIZER_FILES:
        if (given.model / name).is_file():
            shutil.copyfile(given.model / name, given.out / name)
    print(f"{given.out}: layers {kept}, {model.num_parameters():,} parameters")


if __name__ == "__main__":
    main()
