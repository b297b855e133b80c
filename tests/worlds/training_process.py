"""A program that trains in the planted world, for tests of several processes.

Usage: ``python training_process.py FOLDER``; it may be started by torchrun.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from worlds.training_world import planted, tiny_settings

from airrep.runtime.devices import Team, team_of
from airrep.training.examples import Batches, Collector
from airrep.training.linear.weights import Mixture
from airrep.training.start import load_start, with_trainable_head
from airrep.training.step import add_gradients
from airrep.training.train import train_encoder
from airrep.training.trunk import make_trunk

STEPS = 24


def main(folder: Path) -> None:
    """Write gradients of one step for each choice of layers, and train an encoder."""
    torch.set_num_threads(1)
    settings = tiny_settings(folder, steps=STEPS, checkpoint_every=3, dropout=0.1)
    with team_of("cpu") as team:  # which training takes, too
        for layers in ("all", 1, 0):
            write_gradients(folder, layers, team)
        write_gradients(folder, 1, team, beside=True)
        train_encoder([planted(1, "a"), planted(2, "b")], [planted(3, "h")], folder / "encoder", settings)


def write_gradients(folder: Path, layers: object, team: Team, *, beside: bool = False) -> None:
    """Gradients of the first step, as the first process has them; beside given scores if asked for."""
    settings = tiny_settings(folder, train_layers=layers, dropout=0.1, head_dropout=0.2, chunk_tokens=200)
    start = load_start(settings)
    collector = Collector(start)
    taught = collector.prepare_taught(planted(1, "a"), "std")
    model = with_trainable_head(start.checkpoint.model, settings)
    trunk = make_trunk(model, collector.texts(), settings, team, folder / f"activations-{team.size}")
    if beside:
        given = np.random.default_rng(0).standard_normal((2, *taught.labels.shape)).astype(np.float32)
        taught, trunk = replace(taught, given=given), replace(trunk, beside=Mixture([0.5, 0.1, 2.0]))
    draw = Batches([taught.usable_queries], [taught.usable_subsets], 15, 9, 0).draw(0)
    add_gradients(trunk, taught, draw, settings, 0)
    found = {name: weight.grad for name, weight in trunk.learning() if weight.grad is not None}
    save_file(found, folder / f"gradients-{layers}{'-beside' if beside else ''}-{team.rank}-of-{team.size}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
