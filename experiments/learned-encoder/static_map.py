"""Train a linear map and a weight for each word piece of a static encoder by Eq. 8, beside the counting channels.

Usage: python experiments/learned-encoder/static_map.py START LABELS ... OUT --lm FOLDER --data FILE [--data FILE ...]

Vectors that learn by themselves know their labels by heart soon; a map and a weight a piece, which are worked into the
vectors, do not. The counting channels are those of the default recipe, and count the tokens of the language model
that the labels are losses of. Weight and temperature are the recipe's. Each time a tenth of the pieces is left out.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import ChannelsSettings, read_channels
from airrep.attributors.sums.channels import channel_pooling
from airrep.corpus.corpus import Corpus, read_corpus
from airrep.encoder.load import load_encoder
from airrep.encoder.static import StaticEncoder
from airrep.evaluation.judging import compact_subsets
from airrep.evaluation.statistics.labels import normalise_losses
from airrep.labels.gather import gather
from airrep.labels.labels import LabelledInstance
from airrep.scoring.groups import Groups
from airrep.training.linear.weights import MemberFeatures
from airrep.training.ranking_loss import ranking_loss

STEPS, QUERIES, SUBSETS, LEFT_OUT = 80, 80, 60, 0.1
RATE_OF_MAP, RATE_OF_WEIGHTS, RATE_OF_SIZES = 1e-3, 2e-2, 2e-2
"""Adam's, warmed up over ten steps, then falling to 0 in a straight line."""
ENCODER = read_channels("text")[2]
"""Its temperature and weight are those of the sum."""


def main() -> None:
    """Read, train, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("start", type=Path)
    parser.add_argument("labels", nargs="+", help="label directories, or some of their instances: DIR#0,1")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, action="append", required=True, help="what the labels were made from")
    parser.add_argument("--lm", required=True, help="language model that the labels are losses of")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--slopes", type=Path, help="OUT of slopes.py, learnt from in place of losses")
    given = parser.parse_args()
    start = load_encoder(str(given.start))
    assert isinstance(start, StaticEncoder)
    corpora = [read_corpus(path) for path in given.data]
    instances = gather(given.labels, corpora)
    if given.slopes is not None:
        instances = [sloped(one, given.slopes / f"{number}.npz") for number, one in enumerate(instances)]
    taught = [Taught(start, one, given.lm) for one in instances]
    matrix = trained(start, taught, given.steps)
    card = replace(start.card, trained_for_attribution=True, trained_group_sizes=group_sizes(taught))
    StaticEncoder("static", replace(start.checkpoint, matrix=matrix, card=card)).save(given.out)
    print(f"{given.out}: {given.steps} steps, {len(taught)} instances")


class Taught:
    """An instance as it is learnt from: shares of pieces, subsets, labels, and what the counting channels say."""

    def __init__(self, start: StaticEncoder, instance: LabelledInstance, lm: str) -> None:
        members, subsets = compact_subsets(instance.subsets)
        self.sizes = np.diff(subsets.offsets)
        self.subsets = subsets.rows.reshape(len(self.sizes), -1)
        shares = [shares_of(start, part) for part in (instance.train.take(members), instance.queries)]
        self.used = np.unique(np.concatenate([part.indices for part in shares]))
        self.members, self.queries = (part[:, self.used].tocsr() for part in shares)
        labels = normalise_losses(instance.losses)
        self.labels, self.kept = torch.from_numpy(labels.labels), np.flatnonzero(labels.kept)
        counted = counted_scores(instance, lm)
        self.counted = torch.from_numpy((counted - counted.mean(axis=1, keepdims=True)).astype(np.float32))
        self.size = torch.tensor(-float(np.log(self.counted[self.kept].std()))).requires_grad_()
        """Logarithm of how far scores tell losses apart: of other language models and texts another."""


def sloped(instance: LabelledInstance, path: Path) -> LabelledInstance:
    """An instance whose subsets are single examples, and whose losses are falls by their slopes."""
    found = np.load(path)
    alone = Groups.from_lists({str(row): [row] for row in range(len(found["rows"]))})
    pool, queries = instance.train.take(found["rows"]), instance.queries.take(found["queries"])
    return LabelledInstance(instance.name, pool, queries, alone, -found["slopes"].T)


def shares_of(start: StaticEncoder, corpus: Corpus) -> csr_array:
    """The share that each word piece has in each text."""
    ids = start.token_ids([start.render(example) for example in corpus])
    lengths = np.array([len(row) for row in ids])
    values = np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32)
    shape = (len(ids), len(start.checkpoint.matrix))
    return csr_array((values, np.concatenate(ids), np.concatenate([[0], np.cumsum(lengths)])), shape)


def counted_scores(instance: LabelledInstance, lm: str) -> np.ndarray:
    """The weighed sum of the counting channels' group scores, ``(q, m)``."""
    total = np.zeros(instance.losses.shape)
    for channel in ChannelsSettings(tokenizer=lm).channels[:2]:
        method = make_attributor(channel.method, channel.settings)
        pooled = MemberFeatures.of(method, instance).pooled(channel_pooling(channel, method))
        total += channel.weight * pooled
    return total


def trained(start: StaticEncoder, taught: list[Taught], steps: int) -> np.ndarray:
    """The vectors after so many steps, each on one instance."""
    rng, stored = np.random.default_rng(0), start.checkpoint
    scale = 1.0 if stored.head is None else float(stored.head.weight[0, 0]) ** 2
    vectors = torch.from_numpy(stored.matrix)
    linear = torch.eye(vectors.shape[1]).requires_grad_()
    weights = torch.zeros(len(vectors)).requires_grad_()
    rates = [([linear], RATE_OF_MAP), ([weights], RATE_OF_WEIGHTS), ([one.size for one in taught], RATE_OF_SIZES)]
    adam = torch.optim.Adam([{"params": params, "lr": rate} for params, rate in rates], betas=(0.9, 0.99))
    shape = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: min(1, (step + 1) / 10) * (1 - step / steps))
    for step in range(steps):
        one = taught[rng.integers(len(taught))]
        own = vectors[one.used] * weights[one.used].exp()[:, None] @ linear
        loss = loss_of(one, own, scale, rng)
        adam.zero_grad()
        loss.backward()
        adam.step()
        shape.step()
        print(f"step {step + 1}: {loss.item():.4f}", flush=True)
    with torch.no_grad():
        return (vectors * weights.exp()[:, None] @ linear).numpy()


def loss_of(one: Taught, vectors: torch.Tensor, scale: float, rng: np.random.Generator) -> torch.Tensor:
    """The ranking loss of the sum, of some queries and subsets."""
    asked, chosen = rng.permutation(one.kept)[:QUERIES], rng.permutation(len(one.subsets))[:SUBSETS]
    rows, places = np.unique(one.subsets[chosen], return_inverse=True)
    members, queries = (
        torch.nn.functional.normalize(Mean.apply(vectors, thinned(part, rng)), dim=1)
        for part in (one.members[rows], one.queries[asked])
    )
    scores = scale * (queries @ members.T)[:, torch.from_numpy(places.reshape(len(chosen), -1))]
    pooled = (torch.softmax(scores / ENCODER.temperature, dim=2) * scores).sum(dim=2)
    summed = one.size.exp() * (one.counted[asked][:, chosen] + ENCODER.weight * pooled)
    return ranking_loss(summed, one.labels[asked][:, chosen])


def thinned(shares: csr_array, rng: np.random.Generator) -> csr_array:
    """Return the same without a tenth of the pieces."""
    kept = shares.copy()
    kept.data *= rng.random(len(kept.data)) >= LEFT_OUT
    return kept


class Mean(torch.autograd.Function):
    """Shares times vectors."""

    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor, shares: csr_array) -> torch.Tensor:
        """The means."""
        ctx.shares = shares
        return torch.from_numpy(shares @ vectors.detach().numpy())

    @staticmethod
    def backward(ctx: Any, *of_means: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return what each vector gets of the means that it is in."""
        return torch.from_numpy(ctx.shares.T.tocsr() @ of_means[0].numpy()), None


def group_sizes(taught: list[Taught]) -> tuple[int, int]:
    """The smallest and the largest subset."""
    sizes = np.concatenate([one.sizes for one in taught])
    return int(sizes.min()), int(sizes.max())


if __name__ == "__main__":
    main()
