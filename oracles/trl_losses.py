"""Losses of preferences and their gradients against trl's own trainers, on the same batches.

A tiny LM, and the same after a change of its weights, are policy and reference on both sides. trl's `DPOTrainer`,
`KTOTrainer`, `ORPOTrainer` and `GRPOTrainer` make a batch of rows and its loss; airrep reads the same rows. ORPO is
compared without its log likelihood, of which trl counts the prompt's tokens too; GRPO by its gradient alone, as its
loss is a mean of ratios that are 1 in the first step.
"""

import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import Dataset
from safetensors.torch import load_file, save_file
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, KTOConfig, KTOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from worlds.tiny_lms import tiny_lm

from airrep.corpus.corpus import Corpus
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.network import accumulate, goals_of, order_of
from airrep.lm.settings import FineTuneSettings

TOLERANCE, BETA = 1e-5, 0.7
TEXTS = [
    ("red", " warm", " cold"),
    ("the sea", " blue and deep", " x"),
    ("say", " a", " bcd"),
    ("two", " three", " five"),
]
ALL = FineTuneSettings(batch_examples=len(TEXTS), epochs=1)
ORDER = next(order_of(len(TEXTS), ALL, 0)).tolist()
PAIRS = [dict(zip(("prompt", "chosen", "rejected"), texts, strict=True)) for texts in TEXTS]
ANSWERS = [{"prompt": asked, "completion": good, "label": n % 2 == 0} for n, (asked, good, _) in enumerate(TEXTS)]
WEIGHTS = [1.5, -0.5, 2.0, -1.0]


def main() -> None:
    """Compare; end with 1 where something differs by more than the tolerance."""
    warnings.filterwarnings("ignore")
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny_lm(folder / "lm")
        changed = change(folder)
        worst = 0.0
        for loss, ours, theirs in (
            ("dpo", PAIRS, of_dpo),
            ("kto", ANSWERS, of_kto),
            ("orpo", PAIRS, of_orpo),
            ("weighted", ANSWERS, of_grpo),
        ):
            value, gradient = of_airrep(folder, changed, loss, ours)
            other, its = theirs(folder, changed, [ours[row] for row in ORDER])
            apart = 0.0 if loss == "weighted" else abs(value - other)
            largest = max(float(one.abs().max()) for one in its.values())
            differ = max(float((gradient[key] - its[key]).abs().max()) for key in its) / largest
            apart_by = f"gradients differ by {differ:.1e} of the largest number"
            sys.stdout.write(f"{loss:9} loss {value:.6f}, trl {other:.6f}; {apart_by}\n")
            worst = max(worst, apart, differ)
    sys.stdout.write(f"largest difference {worst:.1e}\n")
    sys.exit(worst > TOLERANCE)


def change(folder: Path) -> Path:
    """The weights of the LM after a change, as a file."""
    weights = load_file(folder / "lm" / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    moved = {key: one + 0.05 * torch.randn(one.shape, generator=generator) for key, one in weights.items()}
    save_file(moved, folder / "changed.safetensors", metadata={"format": "pt"})
    return folder / "changed.safetensors"


Found = tuple[float, dict[str, torch.Tensor]]


def of_airrep(folder: Path, changed: Path, loss: str, rows: Sequence[dict[str, Any]]) -> Found:
    """The loss and its gradient of one step."""
    told = {"lm": str(folder / "lm"), "loss": loss, "beta": BETA, "precision": "float32", "device": "cpu"}
    lm = load_lm(told)
    lm.load_weights(changed)
    weighed = loss == "weighted"
    given = [{**row, **({"advantage": weight} if weighed else {})} for row, weight in zip(rows, WEIGHTS, strict=True)]
    documents = lm.tokenise(Corpus.from_records(given, preferences="pairs"))
    preference = lm.preference(documents)
    assert preference is not None
    (goal,) = goals_of(documents, ALL, 0, preference, lm.likelihoods_before)
    value = accumulate(lm.model, documents.take(ORDER), lm.execution, goal).item()
    gradient = taken(lm)
    if loss == "orpo":  # less the log likelihood of the chosen responses
        chosen = [one.sides[0] for one in Corpus.from_records(given, preferences="pairs")]
        value -= accumulate(lm.model, load_lm({**told, "loss": "sft"}).tokenise(chosen), lm.execution).item()
        plain = taken(lm)
        gradient = {key: one - plain[key] for key, one in gradient.items()}
    return value, gradient


def taken(lm: TargetLM) -> dict[str, torch.Tensor]:
    """The gradients of all weights, which are 0 then."""
    found = {name: weight.grad.clone() for name, weight in lm.model.named_parameters() if weight.grad is not None}
    lm.model.zero_grad()
    return found


def of_trainer(
    make: Callable[..., Any], config: Any, folder: Path, changed: Path, rows: Sequence[dict[str, Any]], **more: Any
) -> Any:
    """A trainer of trl whose policy is the LM after the change."""
    load = transformers.AutoModelForCausalLM.from_pretrained
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "lm")
    tokenizer.pad_token = tokenizer.eos_token
    model = load(folder / "lm")
    model.load_state_dict(load_file(changed), strict=False)
    trainer = make(
        model=model, args=config, train_dataset=Dataset.from_list(list(rows)), processing_class=tokenizer, **more
    )
    trainer.model.eval()
    return trainer


def told(folder: Path, **more: Any) -> dict[str, Any]:
    """Arguments that all trainers take."""
    usual = {
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "per_device_train_batch_size": len(TEXTS),
    }
    return {"output_dir": str(folder / "out"), "gradient_checkpointing": False, **usual, **more}


def stepped(trainer: Any, loss: torch.Tensor) -> Found:
    """A loss and its gradient."""
    trainer.model.zero_grad()
    loss.backward()
    found = {name: one.grad for name, one in trainer.model.named_parameters() if one.grad is not None}
    return loss.item(), found


def of_dpo(folder: Path, changed: Path, rows: Sequence[dict[str, Any]]) -> Found:
    """By `DPOTrainer`."""
    config = DPOConfig(**told(folder, beta=BETA))
    before = transformers.AutoModelForCausalLM.from_pretrained(folder / "lm")
    trainer = of_trainer(DPOTrainer, config, folder, changed, rows, ref_model=before)
    batch = trainer.data_collator([trainer.train_dataset[row] for row in range(len(rows))])
    return stepped(trainer, trainer.compute_loss(trainer.model, batch))


def of_kto(folder: Path, changed: Path, rows: Sequence[dict[str, Any]]) -> Found:
    """By `KTOTrainer`."""
    config = KTOConfig(**told(folder, beta=BETA, train_sampling_strategy="sequential"))
    before = transformers.AutoModelForCausalLM.from_pretrained(folder / "lm")
    trainer = of_trainer(KTOTrainer, config, folder, changed, rows, ref_model=before)
    batch = trainer.data_collator([trainer.train_dataset[row] for row in range(len(rows))])
    return stepped(trainer, trainer.compute_loss(trainer.model, batch))


def of_orpo(folder: Path, changed: Path, rows: Sequence[dict[str, Any]]) -> Found:
    """By `ORPOTrainer`, its log likelihood left out."""
    trainer = of_trainer(ORPOTrainer, ORPOConfig(**told(folder, beta=BETA)), folder, changed, rows)
    batch = trainer.data_collator([trainer.train_dataset[row] for row in range(len(rows))])
    forward = trainer.concatenated_forward

    def without(model: Any, inputs: Any) -> tuple[Any, ...]:
        found = list(forward(model, inputs))
        found[4] = torch.zeros(())
        return tuple(found)

    trainer.concatenated_forward = without
    return stepped(trainer, trainer.compute_loss(trainer.model, batch))


def of_grpo(folder: Path, changed: Path, rows: Sequence[dict[str, Any]]) -> Found:
    """By `GRPOTrainer`, in its first step: ratios are 1, and no KL term counts."""
    config = GRPOConfig(**told(folder, beta=0.0, loss_type="bnpo", num_generations=len(rows)))
    trainer = of_trainer(
        GRPOTrainer,
        config,
        folder,
        changed,
        [{"prompt": row["prompt"]} for row in rows],
        reward_funcs=lambda **_: [0.0],
    )
    tokenizer = trainer.processing_class
    asked = [tokenizer(row["prompt"])["input_ids"] for row in rows]
    said = [
        tokenizer(row["completion"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] for row in rows
    ]
    prompts, prompt_mask = filled(asked, front=True)
    answers, answer_mask = filled(said, front=False)
    inputs = {
        "prompt_ids": prompts,
        "prompt_mask": prompt_mask,
        "completion_ids": answers,
        "completion_mask": answer_mask,
    }
    inputs |= {"advantages": torch.tensor([WEIGHTS[row] for row in ORDER]), "num_items_in_batch": answer_mask.sum()}
    trainer.current_gradient_accumulation_steps = 1
    return stepped(trainer, trainer._compute_loss(trainer.model, inputs))


def filled(rows: Sequence[list[int]], *, front: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of one length, and which are no padding."""
    longest = max(map(len, rows))
    spare = [[2] * (longest - len(row)) for row in rows]
    ids = [more + row if front else row + more for row, more in zip(rows, spare, strict=True)]
    kept = [
        [0] * len(more) + [1] * len(row) if front else [1] * len(row) + [0] * len(more)
        for row, more in zip(rows, spare, strict=True)
    ]
    return torch.tensor(ids), torch.tensor(kept)


if __name__ == "__main__":
    main()
