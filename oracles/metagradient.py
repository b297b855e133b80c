"""A whole fine-tune followed back: metagradients against `bergson magic`, its program as users run it.

Both follow the same run: AdamW, epochs in airrep's order, last batches that are smaller. Bergson shuffles the rows that
it is given and has batches of one size, so it gets them turned such that its shuffle restores the order, with rows that
have no label in the place of those that a last batch lacks.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bergson.config.config import DataConfig, LRScheduleConfig, QuerySetConfig
from bergson.magic import MagicConfig, run_magic
from datasets import Dataset
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from world import IGNORED, QUERIES, TRAIN, Comparison, World, make_world

from airrep.attributors.gradient.run.metagradient import MetagradientAttributor, Replay
from airrep.attributors.settings import MetagradientSettings
from airrep.corpus.corpus import Corpus
from airrep.lm.network import order_of
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import warm_up

SEED, SHUFFLED = 3, 42
SMOOTH = {"batch_examples": 3, "learning_rate": 0.02, "epsilon": 1e-3, "clip": None}
RUNS: dict[str, dict[str, Any]] = {
    "2 epochs, 6 steps": {},
    "gradients clipped to a norm of 0.05": {"clip": 0.05},
    "linear schedule, decay 0.3, betas 0.6 and 0.8": {"schedule": "linear", "weight_decay": 0.3, "betas": (0.6, 0.8)},
}


def rows_of(documents: Sequence[tuple[Sequence[int], int]]) -> list[dict[str, Any]]:
    """Ids and labels; a label of -100 is no part of a response."""
    return [
        {"input_ids": list(ids), "labels": [IGNORED] * start + list(ids[start:]), "length": len(ids)}
        for ids, start in documents
    ]


def write_stream(world: World, chosen: FineTuneSettings, seed: int, folder: Path) -> None:
    """Write the rows of all steps such that Bergson's shuffle gives them in airrep's order."""
    rows, longest = rows_of(world.train), max(len(ids) for ids, _ in world.train)
    filling = {"input_ids": [0, 0], "labels": [IGNORED] * 2, "length": 2, "doc_ids": [len(rows)] * longest}
    wanted = []
    for step in order_of(len(rows), chosen, seed):
        wanted += [{**rows[row], "doc_ids": [int(row)] * longest} for row in step]
        wanted += [filling] * (chosen.batch_examples - len(step))
    places = Dataset.from_dict({"place": range(len(wanted))}).shuffle(seed=SHUFFLED)["place"]
    turned = sorted(zip(places, wanted, strict=True), key=lambda pair: pair[0])
    Dataset.from_list([row for _, row in turned]).save_to_disk(folder / "stream")


@contextmanager
def quiet(dtype: torch.dtype) -> Iterator[None]:
    """Print nothing; weights of examples are of this type, which Bergson takes from torch's default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield
    finally:
        torch.set_default_dtype(before)


def bergson_scores(world: World, chosen: FineTuneSettings, seed: int, precision: Any) -> np.ndarray:
    """Slopes of the queries' losses ``(n, q)`` by its program; it keeps those of a query before it rounds them."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with quiet(torch.float64 if precision == "fp64" else torch.float32):
            write_stream(world, chosen, seed, folder)
            Dataset.from_list(rows_of(world.queries)).save_to_disk(folder / "queries")
            settings = MagicConfig(
                run_path=str(folder / "run"),
                model=world.folder,
                model_kwargs="attn_implementation=sdpa",  # its default rounds to float32 in the softmax
                precision=precision,
                data=DataConfig(dataset=str(folder / "stream")),
                query=QuerySetConfig(dataset=str(folder / "queries")),
                drop_columns=False,
                batch_size=chosen.batch_examples,
                seed=SHUFFLED,
                lr_schedule=LRScheduleConfig(lr=chosen.learning_rate, lr_scheduler_type=chosen.schedule),
                adam_beta1=chosen.betas[0],
                adam_beta2=chosen.betas[1],
                adam_eps=chosen.epsilon,
                weight_decay=chosen.weight_decay,
                max_grad_norm=chosen.clip,
                wandb_project="",
            )
            with sdpa_kernel(SDPBackend.MATH):
                run_magic(settings)
        kept = [torch.load(folder / "run" / "per_query" / f"q{row}.pt") for row in range(len(world.queries))]
        return torch.stack(kept, 1)[: len(world.train)].double().numpy()


def method_scores(world: World, chosen: FineTuneSettings) -> tuple[np.ndarray, int]:
    """Scores ``(n, q)`` of the method metagradient as users call it, in float32; and the seed of the run's order."""
    settings: dict[str, Any] = {"precision": "float32", "device": "cpu"}
    corpus = Corpus.from_examples(TRAIN)
    with tempfile.TemporaryDirectory() as folder:
        warm = warm_up(corpus, Path(folder) / "warm", LmSettings(lm=world.folder, **settings), chosen)
        method = MetagradientAttributor(MetagradientSettings(lm=str(warm.path), **settings))
        method.fit(corpus)
        return method.score(TRAIN, QUERIES).astype(float), method._seed


def wide_norm(self: LlamaRMSNorm, hidden: torch.Tensor) -> torch.Tensor:
    """The norm of a Llama in the type of its input; transformers' own rounds to float32 on the way, on both sides."""
    return self.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def main() -> int:
    world, held = make_world(), Comparison("bergson")
    LlamaRMSNorm.forward = wide_norm
    for name, changes in RUNS.items():
        chosen = FineTuneSettings.of({**SMOOTH, **changes})
        ours = Replay(world.lm, world.lm.tokenise(TRAIN), chosen, SEED)
        found = ours.influence(world.lm.tokenise(QUERIES))
        held.hold(f"{name}, float64", -found, bergson_scores(world, chosen, SEED, "fp64"), 1e-9)
    chosen = FineTuneSettings.of(SMOOTH)
    scores, seed = method_scores(world, chosen)
    theirs = bergson_scores(world, chosen, seed, "fp32")
    theirs[[0, 7]] = theirs[[0, 7]].mean(0)  # rows of one text have the mean of both
    held.hold("--method metagradient, float32", -scores, theirs, 1e-4)
    return held.status


if __name__ == "__main__":
    sys.exit(main())
