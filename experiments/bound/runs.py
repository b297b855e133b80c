"""Follow fine-tunes on random subsets back, and judge their average by the bound's labels.

Usage: python experiments/bound/runs.py follow POOL.jsonl QUERIES.jsonl LM OUT [OPTIONS]
       python experiments/bound/runs.py judge LABELS OUT EVALUATION [EVALUATION ...]

`follow` writes a file a run: slopes of the queries' losses by the weight of each example of the pool, members and
others, as the method `metagradient` has them of a warm-up of `--count 100`. To be quicker it takes products with
Hessians by differences of gradients (their slopes lie within 1 % of the exact ones), and draws the others' steps anew.
A file that is there is kept. `judge` prints the LDS of averages, beside the rows of evaluations on the same queries
and subsets, and what weights of these rows reach that are learnt from slopes or from labels.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from bound import held, interval
from safetensors.numpy import load_file
from scipy.stats import rankdata

import airrep
from airrep.attributors.gradient.run.metagradient import AdamState, Replay, _put, _Taken
from airrep.lm.attention import PackedDocuments
from airrep.lm.documents import Documents
from airrep.lm.model import load_lm
from airrep.lm.network import token_losses
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import sample_rows
from airrep.runtime.packing import pack
from airrep.runtime.seeding import stream_seed

TUNING = {"epochs": 2, "epsilon": 1e-5}
"""That of the labels, but for AdamW's epsilon."""
COUNT = 100
"""Examples of a run, as of the judged subsets."""
FITTED = 300
"""Subsets whose losses may teach weights; the others judge them."""
SHAKEN = 400
"""Resamples of queries and subsets."""
LENGTH = 0.005
"""Norm of the step behind a difference of gradients."""


def main() -> None:
    """Follow runs back, or judge them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("follow")
    for name in ("pool", "queries_file", "lm", "out"):
        one.add_argument(name, type=Path)
    one.add_argument("--rate", type=float, default=5e-4, help="learning rate of the fine-tunes")
    one.add_argument("--count", type=int, default=COUNT, help="examples of a run")
    one.add_argument("--batch", type=int, default=32, help="examples of a step")
    one.add_argument("--queries", type=int, default=10)
    one.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 9)))
    one.set_defaults(run=follow)
    other = parts.add_parser("judge")
    for name in ("labels", "out"):
        other.add_argument(name, type=Path)
    other.add_argument("evaluations", type=Path, nargs="+")
    other.set_defaults(run=judge)
    given = parser.parse_args()
    given.run(given)


def follow(given: argparse.Namespace) -> None:
    """Write a file for each run: its members, and slopes ``(n, q)``."""
    pool = airrep.read_corpus(given.pool)
    asked = airrep.read_corpus(given.queries_file).take(np.arange(given.queries))
    lm, tuning = (
        load_lm(LmSettings.named(given.lm)),
        FineTuneSettings.of(TUNING | {"learning_rate": given.rate, "batch_examples": given.batch}),
    )
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in given.seeds:
        path = given.out / f"run-{seed:02}.npz"
        if path.exists():
            continue
        begin, members = time.process_time(), sample_rows(pool, given.count, seed)
        run = Quick(lm, lm.tokenise(pool), tuning, stream_seed(seed, "warm-up"), members)
        others = np.setdiff1d(np.arange(len(pool)), members)
        turns = np.random.default_rng([seed, 7]).permutation(np.arange(len(others)) % len(run._steps))
        run._guests = [others[turns == number] for number in range(len(run._steps))]
        slopes = run.influence(lm.tokenise(asked)).astype(np.float32)
        seconds = time.process_time() - begin
        np.savez_compressed(path, members=members.astype(np.int16), slopes=slopes, cpu_seconds=seconds)
        print(f"{path}: {seconds:.0f} s of CPU", flush=True)


class Quick(Replay):
    """A replay whose products with Hessians are differences of gradients."""

    def _back(
        self, parameters: list[torch.Tensor], taken: _Taken, adjoints: Sequence[AdamState]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        members, guests = self._documents.take(taken.rows), self._documents.take(taken.guests)
        tokens = int(members.response_lengths.sum())
        found, others = (np.zeros((len(each), len(adjoints))) for each in (members, guests))
        before, around = self._sums(members), self._sums(guests)
        for query, adjoint in enumerate(adjoints):
            lead = taken.step.back(adjoint, taken.before, taken.gradients)
            far = LENGTH / float(torch.stack([each.norm() for each in lead]).norm())
            with torch.no_grad():
                for parameter, weight, along in zip(parameters, taken.before.weights, lead, strict=True):
                    torch.add(weight, along, alpha=far, out=parameter)
            found[:, query] = (self._sums(members, tokens) - before) / far / tokens
            others[:, query] = (self._sums(guests) - around) / far / tokens
            with torch.no_grad():
                for own, parameter, gradient in zip(adjoint.weights, parameters, taken.gradients, strict=True):
                    own.add_((parameter.grad - gradient) / far)
                    parameter.grad = None
        _put(parameters, taken.before)
        yield taken.rows, found
        yield taken.guests, others * len(self._steps) * len(taken.rows) / len(self._members)

    def _sums(self, documents: Documents, tokens: int | None = None) -> np.ndarray:
        """Summed losses ``(n,)``; with *tokens*, the gradient of their sum over these is added."""
        found = np.zeros(len(documents))
        for batch in pack(documents.lengths, self._lm.execution.batch_tokens) if len(documents) else ():
            packed = PackedDocuments.from_batch(documents, batch, self._lm.execution.device)
            with torch.set_grad_enabled(tokens is not None):
                losses = token_losses(self._lm.model, packed)
            if tokens is not None:
                torch.autograd.backward(losses.sum() / tokens)
            found[batch.rows] = np.bincount(packed.owners, losses.detach().double(), len(batch.rows))
        return found


def judge(given: argparse.Namespace) -> None:
    """Print LDS x 100 with 95 % intervals over queries."""
    members, losses = held(airrep.open(given.labels))
    runs = [np.load(path) for path in sorted(given.out.glob("run-*.npz"))]
    slopes = np.stack([run["slopes"] for run in runs]).astype(np.float64)
    inside = np.stack([np.isin(np.arange(members.shape[1]), run["members"]) for run in runs])
    queries = slopes.shape[2]
    recipes: dict[str, np.ndarray] = {}
    for folder in given.evaluations:
        saved = load_file(folder / "scores.safetensors")
        key = next(name.split("/", 1)[1] for name in saved if name.startswith("losses/"))
        done = np.isfinite(airrep.open(given.labels).losses(0)[0]).all(axis=0)  # of labels that are not finished
        recipes |= {row.name: saved[f"{place}/{key}"][:, done] for place, row in enumerate(airrep.open(folder).rows)}
    print(f"{len(runs)} runs, {queries} queries, {len(members)} subsets; seconds of CPU a run:", end=" ")
    print(round(float(np.mean([run["cpu_seconds"] for run in runs]))))

    def lds(scores: np.ndarray) -> np.ndarray:
        return correlations(scores, losses.T[: len(scores)])

    best = {name: lds(scores[:queries]) for name, scores in recipes.items()}
    for name, values in best.items():
        print(f"  {name:36} {told(values)}")
    for one, other in combinations(recipes, 2):
        mixed = standard(recipes[one]) + standard(recipes[other])
        print(f"  {f'{one} and {other}':36} {told(lds(mixed))}", end="")
        for name in ("text", "lm-whole"):
            print(f", less {name} {apart(mixed, recipes[name], losses.T)}", end="")
        print()
    size, pool = int(members[0].sum()), members.shape[1]
    both = slopes * np.where(inside, pool / size, pool / (pool - size))[:, :, None] / 2  # as the method weighs them
    count = 1
    while count <= len(runs):
        ways = {
            "of members alone": average(slopes[:count], inside[:count, :, None]),
            "of the others alone": average(slopes[:count], ~inside[:count, :, None]),
            "of both, slopes as they are": slopes[:count].mean(axis=0),
            "of both": both[:count].mean(axis=0),
        }
        found = {name: slope.T @ members.T for name, slope in ways.items()}
        for name, scores in found.items():
            if name == "of both" or not inside.all():
                print(f"  {f'{count} runs, {name}':36} {told(lds(scores))}")
        alone = found["of both"]
        print(f"    {'less slopes as they are':34} {told(lds(alone) - lds(found['of both, slopes as they are']))}")
        for name, values in best.items():
            mixed = lds(standard(recipes[name][:queries]) + standard(alone))
            print(f"    {f'less {name}':34} {told(lds(alone) - values)}")
            print(f"    {f'with {name}':34} {told(mixed)}, less it alone {told(mixed - values)}")
        count = 2 * count if count < 4 else count + 2
    if queries < len(losses.T) and len(losses) > FITTED:
        teach(recipes, both.mean(axis=0).T @ members.T, losses)


def teach(recipes: dict[str, np.ndarray], taught: np.ndarray, losses: np.ndarray) -> None:
    """Learn weights of the recipes' scores from slopes or labels of some queries; judge on the other queries."""
    known = len(taught)
    features = np.stack([standard(scores) for scores in recipes.values()], axis=-1)
    rest, judged = features[known:, FITTED:], losses.T[known:, FITTED:]
    ways = {"slopes": (features[:known], standard(taught))}
    for count in (15, 30, 60, 120, 240):
        ways[f"{count} fine-tunes"] = (features[:known, :count], standard(-losses.T[:known, :count]))
    print("weights of the recipes, learnt from these queries, judged on the other queries and subsets")
    for name, scores in recipes.items():
        print(f"  {name:24} {told(correlations(scores[known:, FITTED:], judged))}")
    best = "lm-whole"
    best_found = correlations(recipes[best][known:, 300:], judged)
    for name, (scores, wanted) in ways.items():
        rows, labels = scores.reshape(-1, scores.shape[-1]), wanted.ravel()
        weights = np.linalg.solve(rows.T @ rows + 0.01 * len(rows) * np.eye(rows.shape[1]), rows.T @ labels)
        found, shown = correlations(rest @ weights, judged), np.round(weights, 2)
        print(f"  {f'weights of {name}':24} {told(found)}, less {best} {told(found - best_found)}   {shown}")


def apart(scores: np.ndarray, others: np.ndarray, losses: np.ndarray) -> str:
    """By how much scores are ahead, x 100, with a 95 % interval over queries and subsets."""
    generator, (queries, subsets) = np.random.default_rng(0), losses.shape
    found = []
    for _ in range(SHAKEN):
        drawn = np.ix_(generator.integers(0, queries, queries), generator.integers(0, subsets, subsets))
        found.append(
            100 * (correlations(scores[drawn], losses[drawn]) - correlations(others[drawn], losses[drawn])).mean()
        )
    value = 100 * (correlations(scores, losses) - correlations(others, losses)).mean()
    low, high = np.percentile(found, [2.5, 97.5])
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


def correlations(scores: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Spearman's correlation with −losses, query by query."""
    one, other = (standard(rankdata(values, axis=1)) for values in (scores, -losses))
    found: np.ndarray = (one * other).mean(axis=1)
    return found


def average(slopes: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Mean over the runs that are *chosen* for an example; 0 without one."""
    return (slopes * chosen).sum(axis=0) / np.maximum(chosen.sum(axis=0), 1)


def standard(scores: np.ndarray) -> np.ndarray:
    """Each query's scores less their mean, over their deviation."""
    return (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)


def told(values: np.ndarray) -> str:
    """A mean of queries × 100 and its interval."""
    low, high = interval(values)
    return f"{100 * values.mean():5.1f} ({100 * low:.1f} to {100 * high:.1f})"


if __name__ == "__main__":
    main()
