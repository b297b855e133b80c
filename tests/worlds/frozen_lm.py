"""A tiny Llama whose weights are sines, and a few examples: outside libraries gave numbers for just these."""

from pathlib import Path

import numpy as np
import torch
from transformers.utils import logging
from worlds.tiny_lms import tiny_network, tiny_tokenizer

from airrep.corpus.corpus import Example

MAPS = tuple(f"model.layers.{layer}.mlp.{part}_proj" for layer in range(2) for part in ("gate", "up", "down"))
"""Its linear maps inside MLPs."""

TRAIN = [
    Example("red", "warm", "t0"), Example("blue", "cold", "t1"), Example("say", "x", "t2"),
    Example("the sky at noon", "blue", "t3"), Example("fire", "red and warm", "t4"), Example("a", "b", "t5"),
    Example("snow falls", "cold, white", "t6"), Example("red", "warm", "t7"),
]  # fmt: skip
QUERIES = [Example("red", "hot", "q0"), Example("ice", "cold", "q1"), Example("?", "!", "q2")]


def frozen_lm(folder: Path) -> str:
    """Write the LM and its tokenizer; returns the folder. No generator of random numbers plays a part."""
    logging.disable_progress_bar()
    model = tiny_network("llama", hidden_size=8, intermediate_size=12)
    with torch.no_grad():
        for number, (_, weight) in enumerate(sorted(model.named_parameters())):
            places = torch.arange(weight.numel(), dtype=torch.float64)
            waves = torch.sin(1.7 * number + 0.37 * places + 0.011 * places**2).reshape(weight.shape)
            weight.copy_(0.4 * waves if weight.ndim == 2 else 1 + 0.1 * waves)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def sine_matrices(name: str, width_in: int, width_out: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Small matrices of a map, ``(width, rank)``: of its inputs and of its output gradients."""
    shift = MAPS.index(name)

    def side(width: int, phase: float) -> torch.Tensor:
        waves = np.sin(shift + phase + 2.3 * np.arange(width * rank) ** 1.5)
        return torch.from_numpy(waves.reshape(width, rank).astype(np.float32))

    return side(width_in, 0.0), side(width_out, 0.5)
