"""Score the pool by Bergson's and kronfluence's own programs, and write the scores as `precomputed` features.

Usage: python experiments/field/outside.py PROGRAM POOL.jsonl QUERIES.jsonl LM OUT COSTS.jsonl [OPTIONS]

It goes on in the environment of the oracles, which `make oracles` builds, where this one lacks the programs. They get
the token ids and labels that airrep reads.
OUT gets `train.npy`, scores (n, q), and `queries.npy`, the identity (q, q), so that products of both are the scores.
COSTS gets the CPU seconds of the whole process and its children, in place of an earlier line of that name.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

import airrep
from airrep.labels.plan import Place, fine_tune_seed, open_plan
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.network import StepDone, order_of
from airrep.lm.settings import FineTuneSettings, LmSettings

if TYPE_CHECKING:
    from torch.optim import AdamW

IGNORED, SHUFFLED = -100, 42
ORACLES = Path(__file__).resolve().parents[2] / ".venv" / "oracles" / "bin" / "python"
TUNING = FineTuneSettings(learning_rate=5e-4)
"""The fine-tune of the labels."""


def rows_of(documents: Documents) -> list[dict[str, Any]]:
    """Ids and labels of each document; a label of -100 is no part of a response."""
    found = []
    for row in range(len(documents)):
        ids, start = documents.sequence(row).tolist(), int(documents.starts[row])
        found.append({"input_ids": ids, "labels": [IGNORED] * start + ids[start:], "length": len(ids)})
    return found


class Bergson:
    """Bergson's own commands, each a step of a config that its program reads."""

    def __init__(self, given: argparse.Namespace, folder: Path, train: Documents, queries: Documents) -> None:
        from datasets import Dataset

        self.given, self.folder, self.train = given, folder, train
        for name, documents in (("train", train), ("queries", queries)):
            Dataset.from_list(rows_of(documents)).save_to_disk(str(folder / name))
        self.common: dict[str, Any] = {
            "model": str(given.lm),
            "data": {"dataset": str(folder / "train")},
            "precision": "fp32",
            "token_batch_size": 512,
        }
        self.asked = {"dataset": str(folder / "queries"), "aggregation": "none"}

    def run(self, name: str, command: str, **steps: Any) -> np.ndarray:
        """Scores (n, q) of a command, as its store has them."""
        from bergson.data import load_scores

        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"steps": [{command: steps}]}))
        subprocess.run([sys.executable, "-W", "ignore", "-m", "bergson", str(path)], check=True, cwd=self.folder)
        store = load_scores(self.folder / name / "scores")
        assert store.is_written() or command == "magic"
        return np.asarray(store[:], np.float32)

    def index(self, name: str, **more: Any) -> dict[str, Any]:
        """Settings of a run over the pool."""
        return {**self.common, "run_path": str(self.folder / name), **more}

    def stored(self, unit: bool) -> np.ndarray:
        """Inner products, or cosines, of whole gradients: `build` of the queries, then `score` of the pool."""
        from bergson.data import load_scores

        queries = {**self.index("asked"), "data": {"dataset": self.asked["dataset"]}}
        treated = {"unit_normalize": unit}
        steps = [
            {"build": {"index_cfg": queries, "preprocess_cfg": {}}},
            {
                "score": {
                    "score_cfg": {"query_path": str(self.folder / "asked")},
                    "index_cfg": self.index("scored"),
                    "preprocess_cfg": treated,
                }
            },
        ]
        path = self.folder / "stored.yaml"
        path.write_text(yaml.safe_dump({"steps": steps, "run_path": str(self.folder / "both")}))
        subprocess.run([sys.executable, "-W", "ignore", "-m", "bergson", str(path)], check=True, cwd=self.folder)
        return np.asarray(load_scores(self.folder / "scored")[:], np.float32)

    def trackstar(self) -> np.ndarray:
        """Its defaults: projections of 16 × 16 of each map, unit, preconditioned by mixed second moments."""
        more = {"query": self.asked, "preprocess_cfg": {"unit_normalize": True}}
        return self.run("trackstar", "trackstar", index_cfg=self.index("trackstar"), trackstar_cfg=more)

    def ekfac(self, method: str = "kfac", **more: Any) -> np.ndarray:
        """Its defaults of EK-FAC: labels drawn from the model, damping a tenth of the mean eigenvalue."""
        return self.run(
            "ekfac",
            "ekfac",
            index_cfg=self.index("ekfac"),
            hessian_cfg={"method": method, "ev_correction": method == "kfac", **more.pop("hessian", {})},
            score_cfg={},
            preprocess_cfg={},
            hessian_pipeline_cfg={"query": self.asked, **more},
        )

    def source(self) -> np.ndarray:
        """SOURCE with AdamW's second moments: six checkpoints of a fine-tune like the labels', in three segments."""
        steps, folders = [4, 7, 10, 14, 17, 20], []
        lm = load_lm(LmSettings.named(self.given.lm))
        names = [name for name, _ in lm.model.named_parameters()]

        def keep(done: StepDone) -> None:
            if done.step in steps:
                folders.append(_checkpoint(lm, done.optimizer, names, self.folder / f"step-{done.step}"))

        plan = open_plan(self.given.plan)
        count = len(plan.subset_rows(0, 0))
        report = lm.fine_tune(self.train.take(np.arange(count)), TUNING, fine_tune_seed(plan, Place(0, 0, 0)), keep)
        assert report.steps == steps[-1]
        return -self.run(  # its own are slopes of the loss
            "source",
            "approxunrolling",
            index_cfg={**self.index("source"), "model": folders[-1]},
            hessian_cfg={"method": "kfac", "ev_correction": True},
            approx_unrolling_cfg={
                "checkpoints": folders,
                "model_path": str(self.given.lm),
                "segments": 3,
                "lr_list": [TUNING.learning_rate] * 3,
                "step_size_list": [7, 7, 6],
                "use_adam_preconditioner": True,
                "query": self.asked,
            },
        )

    def magic(self, tied: bool) -> np.ndarray:
        """The whole run: AdamW in the order of the first label seed, as many examples as each subset has."""
        count = self._stream()
        model = self.given.lm if tied else _untied(self.given.lm, self.folder / "untied")
        found = self.run(
            "magic",
            "magic",
            run_path=str(self.folder / "magic"),
            model=str(model),
            precision="fp32",
            data={"dataset": str(self.folder / "stream")},
            query=self.asked,
            drop_columns=False,
            batch_size=TUNING.batch_examples,
            num_epochs=1,
            seed=SHUFFLED,
            lr_schedule={"lr": TUNING.learning_rate, "lr_scheduler_type": "constant"},
            adam_beta1=TUNING.betas[0],
            adam_beta2=TUNING.betas[1],
            adam_eps=self.given.epsilon,
            weight_decay=TUNING.weight_decay,
            max_grad_norm=TUNING.clip,
            save_mode="all",
            wandb_project="",
        )
        scores = np.zeros((len(self.train), found.shape[1]), np.float32)
        scores[:count] = -found[:count]  # its own are slopes of the loss
        return scores

    def _stream(self) -> int:
        """Write the examples of all steps such that Bergson's shuffle gives them in order; how many are in the run.

        The last batch of an epoch is smaller here and not there: rows without a label fill it, which change nothing.
        """
        from datasets import Dataset

        plan = open_plan(self.given.plan)
        count = len(plan.subset_rows(0, 0))
        rows, longest = rows_of(self.train), int(self.train.lengths.max())
        filling = {"input_ids": [0, 0], "labels": [IGNORED] * 2, "length": 2}
        wanted = []
        for step in order_of(count, TUNING, fine_tune_seed(plan, Place(0, 0, 0))):
            wanted += [{**rows[row], "doc_ids": [int(row)] * longest} for row in step]
            wanted += [{**filling, "doc_ids": [count] * longest}] * (TUNING.batch_examples - len(step))
        places = Dataset.from_dict({"place": range(len(wanted))}).shuffle(seed=SHUFFLED)["place"]
        turned = sorted(zip(places, wanted, strict=True), key=lambda pair: pair[0])
        Dataset.from_list([row for _, row in turned]).save_to_disk(str(self.folder / "stream"))
        return count


def _checkpoint(lm: TargetLM, optimizer: "AdamW", names: list[str], folder: Path) -> str:
    """Write an LM in training as Bergson reads a checkpoint: weights, and the optimizer's state of each by its name."""
    import torch
    from transformers import AutoTokenizer

    lm.model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(lm.settings.lm).save_pretrained(folder)
    states = optimizer.state_dict()
    for place, name in enumerate(names):
        states["state"][place]["param_name"] = name
    torch.save(states, folder / "optimizer.pt")
    return str(folder)


def _untied(lm: Path, folder: Path) -> Path:
    """Write a copy of the LM whose output layer has weights of its own."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(lm, dtype=torch.float32)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.config.tie_word_embeddings = False
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(lm).save_pretrained(folder)
    return folder


def kronfluence(
    given: argparse.Namespace,
    folder: Path,
    train: Documents,
    queries: Documents,
    empirical: bool = False,
    damping: float | None = 1e-8,
) -> np.ndarray:
    """Its defaults of EK-FAC, all linear maps; losses are sums over the response, as in its example of LMs.

    A damping of None is a tenth of each map's mean eigenvalue.
    """
    import torch
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.arguments import FactorArguments, ScoreArguments
    from kronfluence.task import Task
    from kronfluence.utils.dataset import DataLoaderKwargs
    from torch.nn import functional
    from transformers import AutoModelForCausalLM

    class Responses(Task):
        """The summed loss of a response; drawn labels stand where there is one."""

        def compute_train_loss(self, batch: Any, model: Any, sample: bool = False) -> torch.Tensor:
            ids, mask, labels = batch
            logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float().flatten(0, 1)
            labels = labels[:, 1:].flatten()
            if sample:
                with torch.no_grad():
                    drawn = torch.multinomial(logits.detach().softmax(-1), 1).flatten()
                labels = torch.where(labels == IGNORED, labels, drawn)
            return functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")

        def compute_measurement(self, batch: Any, model: Any) -> torch.Tensor:
            return self.compute_train_loss(batch, model)

        def get_attention_mask(self, batch: Any) -> torch.Tensor:
            return batch[1]

    def padded(rows: Sequence[dict[str, Any]]) -> tuple[torch.Tensor, ...]:
        longest = max(row["length"] for row in rows)

        def filled(name: str, value: int) -> torch.Tensor:
            return torch.tensor([row[name] + [value] * (longest - row["length"]) for row in rows])

        mask = torch.tensor([[1] * row["length"] + [0] * (longest - row["length"]) for row in rows])
        return filled("input_ids", 0), mask, filled("labels", IGNORED)

    torch.manual_seed(0)
    model, task = AutoModelForCausalLM.from_pretrained(given.lm, dtype=torch.float32).eval(), Responses()
    analyzer = Analyzer("field", prepare_model(model, task), task, cpu=True, output_dir=str(folder), disable_tqdm=True)
    analyzer.set_dataloader_kwargs(DataLoaderKwargs(collate_fn=padded))
    own: Any = FactorArguments(strategy="ekfac", use_empirical_fisher=empirical)
    analyzer.fit_all_factors("factors", rows_of(train), per_device_batch_size=16, factor_args=own)
    sizes: Any = {"per_device_query_batch_size": 40, "per_device_train_batch_size": 8}
    sizes["score_args"] = ScoreArguments(damping_factor=damping)
    analyzer.compute_pairwise_scores("scores", "factors", rows_of(queries), rows_of(train), **sizes)
    return analyzer.load_pairwise_scores("scores")["all_modules"].float().numpy().T


PROGRAMS: dict[str, Callable[..., np.ndarray]] = {
    "bergson-gradients": lambda *all: Bergson(*all).stored(unit=False),
    "bergson-cosine": lambda *all: Bergson(*all).stored(unit=True),
    "bergson-trackstar": lambda *all: Bergson(*all).trackstar(),
    "bergson-ekfac": lambda *all: Bergson(*all).ekfac(),
    "bergson-shampoo": lambda *all: Bergson(*all).ekfac("shampoo"),
    "bergson-source": lambda *all: Bergson(*all).source(),
    "bergson-magic": lambda *all: Bergson(*all).magic(tied=True),
    "bergson-magic-untied": lambda *all: Bergson(*all).magic(tied=False),
    "kronfluence": kronfluence,
    "kronfluence-empirical": lambda *all: kronfluence(*all, empirical=True),
    "kronfluence-empirical-damped": lambda *all: kronfluence(*all, empirical=True, damping=None),
}


def go_where_they_are() -> None:
    """Go on in the environment of the oracles, unless this one has the programs."""
    if all(find_spec(name) for name in ("bergson", "kronfluence")):
        return
    if not ORACLES.exists():
        sys.exit(f"{ORACLES}: is not there; Bergson and kronfluence are expected in it. Run: make oracles")
    os.execv(ORACLES, [str(ORACLES), *sys.argv])


def seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(sum(each.ru_utime + each.ru_stime for each in used), 1)


@contextmanager
def workplace(kept: Path | None) -> Iterator[Path]:
    """A folder that goes when all is done; or one that stays."""
    if kept is not None:
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        yield kept.resolve()
        return
    with TemporaryDirectory() as folder:
        yield Path(folder)


def main() -> None:
    """Score, write."""
    go_where_they_are()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    for name in ("pool", "queries_file", "lm", "out", "costs"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--plan", type=Path, help="subsets whose fine-tunes MAGIC's run is like")
    parser.add_argument("--queries", type=int, help="so many alone, the first ones")
    parser.add_argument("--epsilon", type=float, default=1e-5, help="of the AdamW that MAGIC follows back")
    parser.add_argument("--kept", type=Path, help="a folder for what the program writes")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    given.lm = given.lm.resolve()
    lm: TargetLM = load_lm(LmSettings.named(given.lm))
    asked = airrep.read_corpus(given.queries_file)
    asked = asked.take(np.arange(given.queries or len(asked)))
    with workplace(given.kept) as folder:
        train = lm.tokenise(airrep.read_corpus(given.pool))
        scores = PROGRAMS[given.program](given, folder, train, lm.tokenise(asked))
    assert scores.shape == (len(train), len(asked)), scores.shape
    assert np.isfinite(scores).all()
    given.out.mkdir(parents=True, exist_ok=True)
    np.save(given.out / "train.npy", scores)
    np.save(given.out / "queries.npy", np.eye(len(asked), dtype=np.float32))
    line = {"name": given.program, "queries": len(asked), "top_seconds": seconds()}
    earlier = given.costs.read_text().splitlines() if given.costs.exists() else []
    kept = [one for one in earlier if json.loads(one)["name"] != given.program]
    given.costs.write_text("\n".join([*kept, json.dumps(line)]) + "\n")
    print(line)


if __name__ == "__main__":
    main()
