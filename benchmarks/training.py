"""One training step: speed, exactness and memory against the per-subset two-pass reference.

Run as ``python benchmarks/training.py``. Process CPU time on one thread, candidates in turns. The reference is the
obvious way to fit a step into memory: with ``transformers``, in padded batches, every subset encodes its own members
twice, first without a graph for the loss, then with one for the gradient. The step has the proportions of 32 subsets
of 150 out of 3,000 examples with 200 queries, smaller by ``--scale``. Where there is a CUDA device, a second table
has wall-clock time of whole steps on it.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from cpu import extra_memory, interleave, verdict
from torch import Tensor, nn

import airrep
from airrep.corpus.corpus import Corpus
from airrep.encoder.folders import MODELS
from airrep.encoder.networks.packed import PackedEncoder
from airrep.labels.labels import LabelledInstance
from airrep.runtime.devices import Team
from airrep.scoring.groups import Groups
from airrep.training.examples import Collector, StepDraw, TaughtInstance, Texts
from airrep.training.ranking_loss import ranking_loss
from airrep.training.settings import TrainingSettings
from airrep.training.start import load_start, with_trainable_head
from airrep.training.step import add_gradients
from airrep.training.trunk import make_trunk

DEMO = Path(airrep.__file__).parent / "data" / "train.jsonl"
SUBSETS, SIZE, POOL, QUERIES = 32, 150, 3000, 200
BATCH = 32


@dataclass
class World:
    """A step's material."""

    start: PackedEncoder
    texts: Texts
    taught: TaughtInstance
    draw: StepDraw

    def step(self, folder: Path, device: str = "cpu", **changes: object) -> "Step":
        """Airrep's way to the gradient, with some settings."""
        settings = TrainingSettings.of({"head_dropout": 0.0, "memory_budget": 1e-9, "device": device} | changes)
        model = with_trainable_head(self.start.checkpoint.model, settings).to(device)
        trunk = make_trunk(model, self.texts, settings, Team(device=device), folder)
        return Step(lambda: add_gradients(trunk, self.taught, self.draw, settings, 0), model)


@dataclass
class Step:
    """One way to the gradient of a step."""

    run: Callable[[], object]
    model: nn.Module

    def __call__(self) -> None:
        self.model.zero_grad(set_to_none=True)
        self.run()


class Reference(nn.Module):
    """The plain encoder and the per-subset two-pass gradient."""

    def __init__(self, world: World) -> None:
        super().__init__()
        from transformers import AutoModel
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.bert = AutoModel.from_pretrained(MODELS / "untrained", add_pooling_layer=False).eval()
        head = world.start.checkpoint.model.heads[-1]
        self.head = nn.Linear(head.in_features, head.out_features)
        self.head.load_state_dict(head.state_dict())
        self.world = world

    def encode(self, rows: np.ndarray) -> Tensor:
        """Features of some texts, in padded batches."""
        return torch.cat([self._batch(rows[i : i + BATCH]) for i in range(0, len(rows), BATCH)])

    def _batch(self, rows: np.ndarray) -> Tensor:
        ids = nn.utils.rnn.pad_sequence([torch.from_numpy(self.world.texts[int(row)]) for row in rows], True)
        lengths = torch.from_numpy(self.world.texts.lengths[rows])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        means = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return self.head(nn.functional.normalize(means, dim=-1))

    def step(self) -> None:
        """Twice through every subset; group scores one subset at a time."""
        world = self.world
        asked = world.taught.queries[world.draw.queries]
        subsets = [world.taught.train[world.taught.subsets.members(int(j))] for j in world.draw.subsets]
        labels = torch.from_numpy(world.taught.labels[np.ix_(world.draw.queries, world.draw.subsets)])
        with torch.no_grad():
            queries = self.encode(asked)
            f = torch.stack([pooled(queries, self.encode(rows)) for rows in subsets], dim=1)
        f.requires_grad_()
        (g,) = torch.autograd.grad(ranking_loss(f, labels), f)
        leaf = queries.requires_grad_()
        for j, rows in enumerate(subsets):
            pooled(leaf, self.encode(rows)).backward(g[:, j])
        self.encode(asked).backward(leaf.grad)


def pooled(queries: Tensor, members: Tensor) -> Tensor:
    """Attention (Eq. 6) of one subset."""
    scores = queries @ members.T
    return (torch.softmax(scores.abs(), dim=1) * scores).sum(dim=1)


def make_world(scale: float, subsets: int = SUBSETS) -> World:
    """A step over the demo's examples, with labels drawn at random."""
    size, pool, queries = (max(2, int(count * scale)) for count in (SIZE, POOL, QUERIES))
    generator = np.random.default_rng(0)
    corpus = airrep.read_corpus(str(DEMO))
    rows = generator.permutation(len(corpus))
    train, asked = corpus.take(rows[:pool]), corpus.take(rows[pool : pool + queries])
    groups = Groups.from_lists({str(j): generator.choice(pool, size, replace=False) for j in range(subsets)})
    losses = generator.standard_normal((queries, subsets)).astype(np.float32)
    return prepare(train, asked, groups, losses)


def prepare(train: Corpus, asked: Corpus, groups: Groups, losses: np.ndarray) -> World:
    """Tokenise everything; one step sees all queries and subsets."""
    start = load_start(TrainingSettings(start="untrained"))
    collector = Collector(start)
    taught = collector.prepare_taught(LabelledInstance("0", train, asked, groups, losses), "std")
    return World(start, collector.texts(), taught, StepDraw(0, taught.usable_queries, taught.usable_subsets))


def gradient_error(found: Step, reference: Reference, world: World) -> float:
    """Length of the difference of two gradients, relative to the reference's."""
    theirs = {name: weight.grad for name, weight in reference.bert.named_parameters() if weight.grad is not None}
    ours: dict[str, Tensor] = {}
    twin = with_trainable_head(world.start.checkpoint.model, TrainingSettings())
    for (_, to), (_, of) in zip(twin.named_parameters(), found.model.named_parameters(), strict=True):
        to.data = torch.zeros_like(to) if of.grad is None else of.grad
    ours = twin.bert_tensors()
    difference = sum(float((ours[name] - theirs[name]).double().square().sum()) for name in theirs)
    return (difference / sum(float(gradient.double().square().sum()) for gradient in theirs.values())) ** 0.5


def growth(subsets: int, scale: float, budget: float) -> Callable[[], object]:
    """A step in a process of its own, for its memory."""
    torch.set_num_threads(1)
    world = make_world(scale, subsets)
    step = world.step(Path(tempfile.mkdtemp()), memory_budget=budget, chunk_tokens=1024)
    step()  # gradients are held from the first step on
    return step.run


def main() -> None:
    """Measure on the CPU, then on CUDA where there is any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.06)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.device == "cuda":
            measure_cuda(make_world(arguments.scale), Path(folder))
        else:
            measure_cpu(make_world(arguments.scale), Path(folder), arguments.rounds)
            measure_memory(arguments.scale)


def measure_cpu(world: World, folder: Path, rounds: int) -> None:
    """Print process CPU time of one step and the error of its gradient."""
    reference = Reference(world)
    steps = {
        "gradient cache": world.step(folder),
        "single graph": world.step(folder, memory_budget=1e6),
        "gradient cache, bfloat16": world.step(folder, precision="bfloat16"),
        "top 2 layers": world.step(folder, train_layers=2),
        "head alone": world.step(folder, train_layers=0),
    }
    print(describe(world))
    plain = Step(reference.step, reference)
    seconds = interleave({"reference": plain, **steps}, rounds)
    print(f"{'':26}{'seconds':>9}{'ratio':>8}")
    for name, spent in seconds.items():
        print(f"{name:26}{spent:9.3f}{seconds['reference'] / spent:8.2f}")
    plain()
    for name in ("gradient cache", "single graph"):
        steps[name]()
        error = gradient_error(steps[name], reference, world)
        print(
            f"{name}: relative error of the gradient {error:.1e} (ask <= 1e-5: {'met' if error <= 1e-5 else 'MISSED'})"
        )
    print(f"exact step against the reference: {verdict(seconds['reference'] / seconds['gradient cache'], 2.4)}")
    print(f"train_layers=2 against the reference: {verdict(seconds['reference'] / seconds['top 2 layers'], 7)}")


def describe(world: World) -> str:
    """Sizes of the step."""
    members = len(world.draw.subsets) * len(world.taught.subsets.members(0))
    used = np.unique(world.taught.train[world.taught.train >= 0])
    return (
        f"{len(world.draw.queries)} queries, {len(world.draw.subsets)} subsets with {members} members, "
        f"{len(used)} of them different; {np.mean(world.texts.lengths):.0f} tokens a text"
    )


def measure_memory(scale: float) -> None:
    """Print by how much memory grows during a step."""
    for name, budget in (("gradient cache", 1e-9), ("single graph", 1e6)):
        grown = [extra_memory(partial(growth, scale=scale, budget=budget), subsets) for subsets in (4, 32)]
        print(f"{name}: memory grows by {grown[0]:.0f} MiB with 4 subsets, {grown[1]:.0f} MiB with 32")


def measure_cuda(world: World, folder: Path) -> None:
    """Print wall-clock time of one step."""
    print(describe(world))
    for precision in ("float32", "bfloat16"):
        for layers in ("all", 2, 0):
            step = world.step(folder, "cuda", precision=precision, train_layers=layers, memory_budget=60.0)
            step()
            torch.cuda.synchronize()
            start = time.perf_counter()
            step()
            torch.cuda.synchronize()
            print(f"{precision}, train_layers={layers}: {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
