"""One setting of the influence function at a time, between LoGra and EK-FAC: LDS × 100 on instance 1 of a role.

Usage: python experiments/gradients/ablate.py ROLE WORK        in the folder of the repository, after `roles` (data)
       python experiments/gradients/ablate.py --print          the tables, from the committed results

WORK is a folder for gradients, some 3 GB a role; what is there is not read from the LM again. Gradients of training
examples are factors of rank 8 for each linear map (`ekfac` with rank=8), those of queries are whole; group scores are
sums. "Mean" divides an example's gradient by its tokens; the curvature is that of the summed loss throughout.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import airrep
from airrep.attributors.gradient.projection import Covariances
from airrep.attributors.gradient.reading import read_gradients
from airrep.attributors.gradient.whole.ekfac import EkfacAttributor
from airrep.attributors.gradient.whole.kept import sizes_of
from airrep.attributors.methods import make_attributor
from airrep.labels.gather import gather
from airrep.labels.instance import LabelledInstance

HERE = Path(__file__).parents[1]
LM = HERE / "work" / "shared" / "models" / "tiny-lm"
RESULTS = Path(__file__).parent / "results"
RANK = 8


class Map(NamedTuple):
    """One linear map, in the eigenbasis of its curvature."""

    name: str
    left: Tensor
    """``(n, o, 8)``, factors of the examples."""
    right: Tensor
    """``(n, i, 8)``."""
    queries: Tensor
    """``(q, o, i)``."""
    corrected: Tensor
    """``(o, i)``: mean squared gradients, EK-FAC's eigenvalues."""
    product: Tensor
    """``(o, i)``: products of the factors' eigenvalues, K-FAC's."""


class Setting(NamedTuple):
    """One way of scoring; the defaults are EK-FAC's."""

    title: str
    part: str = ""
    """Of the names of the linear maps that count."""
    curvature: str = "corrected"
    damping: float = 0.1
    rank: int | None = None
    """Leading eigenvectors kept on both sides; None: all."""
    factors: int = RANK
    """Rank of the factors of an example's gradient."""
    unit: bool = False
    mean: bool = False


SETTINGS = (
    Setting("EK-FAC"),
    Setting("eigenvalues of K-FAC", curvature="product"),
    Setting("no curvature", curvature="none"),
    Setting("attention alone", part="attn"),
    Setting("MLPs alone", part="mlp"),
    *(Setting(f"damping {value:g}", damping=value) for value in (0.01, 1.0, 10.0)),
    Setting("unit length", unit=True),
    Setting("mean of the token losses", mean=True),
    *(Setting(f"projected to rank {rank}", rank=rank) for rank in (8, 16, 32, 64, 128)),
    *(Setting(f"factors of rank {rank}", factors=rank) for rank in (1, 2, 3, 4)),
    Setting("no curvature, unit length", curvature="none", unit=True),
    Setting("LoGra: MLPs, rank 16, K-FAC, unit, mean", "mlp", "product", rank=16, unit=True, mean=True),
    Setting("LoGra of all maps", "", "product", rank=16, unit=True, mean=True),
    Setting("LoGra of all maps, corrected", rank=16, unit=True, mean=True),
    Setting("LoGra of all maps, lengths kept", "", "product", rank=16, mean=True),
    Setting("LoGra of all maps, lengths kept, sum", "", "product", rank=16),
    Setting("LoGra of all maps, no projection", "", "product", unit=True, mean=True),
)


def load(role: str) -> LabelledInstance:
    """Instance 1 of a role."""
    corpus = airrep.read_corpus(HERE / "work" / "data" / role / "judge.jsonl")
    return gather([f"{HERE}/roles/labels/{role}-judge#1"], [corpus])[0]


class Turned:
    """Reads whole gradients of queries in the eigenbasis, map by map."""

    def __init__(self, method: EkfacAttributor) -> None:
        self._factors = method._factors
        self.found: dict[str, Tensor] = {}

    def keep(self, site, inputs, /):
        return inputs @ self._factors[site.name].inward

    def take(self, site, kept, gradients, places, /) -> None:
        self.found[site.name] = places.products(gradients @ self._factors[site.name].outward, kept)


def read(instance: LabelledInstance, folder: Path) -> None:
    """Read all gradients into files of the folder, one a linear map and kind."""
    folder.mkdir(parents=True, exist_ok=True)
    method = make_attributor(
        "ekfac", {"lm": str(LM), "precision": "float32", "store": str(folder / "store"), "rank": RANK}
    )
    assert isinstance(method, EkfacAttributor)
    method.fit(instance.train)
    print("fitted", flush=True)
    if not (folder / "examples.pt").exists():
        rows = torch.from_numpy(method.keep(instance.train))
        sizes, layout = sizes_of(method._factors), method._layout
        assert layout is not None
        found = {}
        for name, own in method._factors.items():
            one, other = layout.of(rows, name)
            found[name] = (
                (own.outward.T @ one.float() * sizes[name].sqrt()).half(),
                (own.inward.T @ other.float() * sizes[name].sqrt()).half(),
            )
        save(found, folder / "examples.pt")
        print("examples read", flush=True)
    if not (folder / "curvature.pt").exists():
        sums = Covariances(method.sites)
        for _ in read_gradients(method.lm, method.lm.tokenise(instance.train), method.sites, sums, reduction="sum"):
            pass
        found = {}
        for site in method.sites:
            own, (inputs, outputs) = method._factors[site.name], sums.of(site.name)
            pair = [
                ((basis.T @ each) * basis.T).sum(1) for basis, each in ((own.outward, outputs), (own.inward, inputs))
            ]
            tokens = sums.tokens[site.name] / len(instance.train)
            found[site.name] = (own.eigenvalues, tokens * torch.outer(*(each.clamp(min=0) for each in pair)))
        save(found, folder / "curvature.pt")
        print("curvature read", flush=True)
    if not (folder / "queries.pt").exists():
        reader, whole = Turned(method), {}
        documents = method.lm.tokenise(instance.queries)
        for batch in read_gradients(method.lm, documents, method.sites, reader, reduction="sum"):
            for name, part in reader.found.items():
                room = whole.setdefault(name, torch.zeros(len(documents), *part.shape[1:]))
                room[torch.from_numpy(batch.rows)] = part
        save(whole, folder / "queries.pt")
    documents = method.lm.tokenise(instance.train)
    np.save(folder / "tokens.npy", (documents.offsets[1:] - documents.offsets[:-1]) - documents.starts)


def save(found: object, path: Path) -> None:
    """Write a file that appears under its name when it is whole."""
    torch.save(found, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)


def maps(folder: Path) -> Iterator[Map]:
    """The linear maps, one in memory at a time."""
    examples, queries, curvature = (
        torch.load(folder / f"{name}.pt", mmap=True) for name in ("examples", "queries", "curvature")
    )
    for name, (left, right) in examples.items():
        yield Map(name, left.float(), right.float(), queries[name], *curvature[name])


def inverse(one: Map, chosen: Setting) -> Tensor:
    """1 / (Λ + λ) of the eigenvectors that are kept."""
    if chosen.curvature == "none":
        return torch.ones_like(_leading(one.corrected, chosen))
    values = _leading(getattr(one, chosen.curvature), chosen)
    return 1 / (values + chosen.damping * values.mean())


def _leading(matrix: Tensor, chosen: Setting) -> Tensor:
    """The part of the leading eigenvectors, which come last."""
    return matrix if chosen.rank is None else matrix[..., -chosen.rank :, -chosen.rank :]


def _sides(one: Map, chosen: Setting) -> tuple[Tensor, Tensor]:
    def cut(side: Tensor) -> Tensor:
        return side if chosen.rank is None else side[:, -chosen.rank :]

    return cut(one.left)[:, :, : chosen.factors], cut(one.right)[:, :, : chosen.factors]


def score(instance: LabelledInstance, folder: Path, settings: tuple[Setting, ...]) -> np.ndarray:
    """Group scores ``(settings, q, m)``."""
    n_examples, groups = len(instance.train), instance.subsets
    tokens = torch.from_numpy(np.load(folder / "tokens.npy")).float()
    squares = torch.zeros(len(settings), n_examples)
    for one in maps(folder):
        for place, chosen in enumerate(settings):
            if chosen.unit and chosen.part in one.name:
                left, right = _sides(one, chosen)
                whitening = inverse(one, chosen)
                for rows in torch.arange(n_examples).split(128):
                    squares[place, rows] += ((left[rows] @ right[rows].mT).square_() * whitening).sum((1, 2))
    members = torch.zeros(len(groups), n_examples)
    for number, (start, stop) in enumerate(zip(groups.offsets[:-1], groups.offsets[1:], strict=True)):
        members[number, torch.from_numpy(groups.rows[start:stop].astype(np.int64))] += 1
    found = torch.zeros(len(settings), len(instance.queries), len(groups))
    solvers = {(one.curvature, one.damping, one.rank) for one in settings}
    for one in maps(folder):
        sums: dict[tuple, Tensor] = {}
        for solver in sorted(solvers, key=str):
            alike = [
                n for n, chosen in enumerate(settings) if (chosen.curvature, chosen.damping, chosen.rank) == solver
            ]
            alike = [n for n in alike if settings[n].part in one.name]
            if not alike:
                continue
            solved = (_leading(one.queries, settings[alike[0]]) * inverse(one, settings[alike[0]])).flatten(1)
            for place in alike:
                chosen, weights = settings[place], torch.ones(n_examples)
                if chosen.unit:  # the mean has the same direction
                    weights = torch.where(squares[place] > 0, squares[place].rsqrt(), 0.0)
                elif chosen.mean:
                    weights = 1 / tokens
                key = (chosen.factors, chosen.rank, place if chosen.unit else -1, chosen.mean)
                if key not in sums:
                    sums[key] = _sums(*_sides(one, chosen), members * weights)
                found[place] += solved @ sums[key].flatten(1).T
        print(one.name, flush=True)
    return found.numpy()


def _sums(left: Tensor, right: Tensor, members: Tensor) -> Tensor:
    """Weighed sums of the examples' gradients over groups, ``(m, o, i)``."""
    found = torch.zeros(len(members), left.shape[1], right.shape[1])
    for number, weights in enumerate(members):
        rows = weights.nonzero()[:, 0]
        one = (left[rows] * weights[rows, None, None]).permute(1, 0, 2).flatten(1)
        found[number] = one @ right[rows].permute(0, 2, 1).flatten(0, 1)
    return found


def main() -> None:
    """Read, score and judge, or print."""
    if sys.argv[1:] == ["--print"]:
        show()
        return
    role, folder = sys.argv[1], Path(sys.argv[2]) / sys.argv[1]
    torch.set_num_threads(1)
    instance = load(role)
    read(instance, folder)
    scores = score(instance, folder, SETTINGS)
    table = []
    for chosen, own in zip(SETTINGS, scores, strict=True):
        alone = airrep.metrics.lds(own, instance.losses)
        gap = airrep.metrics.paired(own, scores[0], instance.losses)
        table.append(
            {
                "setting": chosen.title,
                "lds": alone.value,
                "interval": list(alone.interval),
                "difference": gap.difference,
                "difference_interval": list(gap.interval),
            }
        )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{role}.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    show()


def show() -> None:
    """Print the committed results."""
    for path in sorted(RESULTS.glob("*.json")):
        print(f"{path.stem:44}{'LDS × 100':>24}{'minus the first':>26}")
        for row in json.loads(path.read_text(encoding="utf-8")):
            low, high = (100 * end for end in row["interval"])
            least, most = (100 * end for end in row["difference_interval"])
            print(
                f"{row['setting']:44}{100 * row['lds']:8.1f} ({low:.1f} to {high:.1f})"
                f"{100 * row['difference']:10.1f} ({least:.1f} to {most:.1f})"
            )
        print()


if __name__ == "__main__":
    main()
