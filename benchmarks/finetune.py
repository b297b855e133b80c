"""Fine-tuning and evaluating the target LM: speed and loss against a plain transformers loop.

Run as ``python benchmarks/finetune.py``. Process CPU time on one thread, candidates in turns, the same token ids
for all. The plain candidate is what one writes first: batches of 32 padded to their longest document, logits at
every token, ``torch.optim.AdamW`` as it comes, transformers' own attention. The LM is a Llama of random weights,
256 wide, 4 layers, 4,096 tokens, on the demo's examples; ``--lm`` and ``--texts`` take others.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from cpu import bfloat16_verdict, interleave, verdict
from transformers.utils import logging

from airrep.corpus.corpus import Example
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.network import order_of
from airrep.lm.settings import FineTuneSettings, LmSettings

ASKED = {"fine-tune": {"float32": 4.0, "bfloat16": 5.5}, "evaluation": {"float32": 4.5, "bfloat16": 7.0}}
SETTINGS = FineTuneSettings(epochs=1, learning_rate=5e-4)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, help="JSON lines with prompt and response")
    parser.add_argument("--lm", help="folder of a causal LM")
    parser.add_argument("--count", type=int, default=128, help="examples, evenly spread over the texts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    arguments = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        lm = arguments.lm or write_lm(Path(folder))
        lms = {kind: load_lm(LmSettings(lm=lm, precision=kind, device="cpu")) for kind in arguments.precisions}
        documents = choose_documents(arguments.texts, arguments.count, lms["float32"])
        print(describe(documents))
        measure(lms, load_plain(lm), documents, arguments.rounds)


def choose_documents(path: Path | None, count: int, lm: TargetLM) -> Documents:
    """Evenly spread lines of a file whose responses fit, or random tokens."""
    if path is None:
        return random_documents(count)
    lines = path.read_text(encoding="utf-8").splitlines()
    records = [json.loads(lines[line]) for line in np.linspace(0, len(lines) - 1, count).astype(int)]
    examples = [Example(record["prompt"], record["response"], str(number)) for number, record in enumerate(records)]
    unusable = lm.unusable(examples)
    return lm.tokenise([example for row, example in enumerate(examples) if row not in unusable])


def random_documents(count: int) -> Documents:
    """Random tokens of log-normal lengths."""
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.lognormal(4.5, 0.8, count), 16, 512).astype(int)
    return Documents.of((generator.integers(3, 4096, length).tolist(), length * 2 // 3) for length in lengths)


def describe(documents: Documents) -> str:
    """Number and lengths of the documents."""
    lengths = documents.lengths
    return (
        f"{len(documents)} examples of {lengths.min()}-{lengths.max()} tokens, mean {lengths.mean():.0f}, of which "
        f"{documents.response_lengths.mean():.0f} response; one thread"
    )


def write_lm(folder: Path) -> str:
    """Save a Llama of random weights with a tokenizer of bytes."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=4096, max_position_embeddings=512, tie_word_embeddings=True, **shape)
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def load_plain(folder: str) -> Any:
    """The LM as transformers loads it."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def padded(documents: Documents, rows: np.ndarray) -> dict[str, torch.Tensor]:
    """A padded batch, as a collator makes it: ids, mask, labels (−100 where nothing is learnt)."""
    longest = int(documents.lengths[rows].max())
    ids, labels = np.zeros((len(rows), longest), np.int64), np.full((len(rows), longest), -100)
    for place, row in enumerate(rows):
        sequence, start = documents.sequence(row), documents.starts[row]
        ids[place, : len(sequence)] = sequence
        labels[place, start : len(sequence)] = sequence[start:]
    mask = np.arange(longest) < documents.lengths[rows][:, None]
    arrays = {"input_ids": ids, "attention_mask": mask.astype(np.int64), "labels": labels}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def plain_fine_tune(model: Any, base: dict[str, torch.Tensor], documents: Documents) -> list[float]:
    """Loss of each step of the plain loop, from the base weights on."""
    model.load_state_dict(base)
    optimizer = torch.optim.AdamW(model.parameters(), lr=SETTINGS.learning_rate)
    losses = []
    for rows in order_of(len(documents), SETTINGS, seed=0):
        loss = model(**padded(documents, rows)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def plain_losses(model: Any, documents: Documents) -> np.ndarray:
    """Mean loss of each document's response, batch after batch of 32."""
    found = []
    with torch.no_grad():
        for first in range(0, len(documents), 32):
            batch = padded(documents, np.arange(first, min(first + 32, len(documents))))
            labels = batch["labels"][:, 1:]
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
            each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
            found.append(each.sum(1) / (labels != -100).sum(1))
    return torch.cat(found).numpy()


def own_fine_tune(lm: TargetLM, documents: Documents) -> list[float]:
    """Loss of each step, from the base weights on."""
    lm.reset()
    return list(lm.fine_tune(documents, SETTINGS, seed=0).loss_per_step)


def measure(lms: dict[str, TargetLM], plain: Any, documents: Documents, rounds: int) -> None:
    """Time both stages, and compare their losses with the plain ones."""
    base = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    stages: dict[str, tuple[Callable[[], Any], dict[str, Callable[[], Any]]]] = {
        "evaluation": (
            partial(plain_losses, plain, documents),
            {kind: partial(lm.losses, documents) for kind, lm in lms.items()},
        ),
        "fine-tune": (
            partial(plain_fine_tune, plain, base, documents),
            {kind: partial(own_fine_tune, lm, documents) for kind, lm in lms.items()},
        ),
    }
    for stage, (reference, candidates) in stages.items():
        report(stage, reference, candidates, int(documents.lengths.sum()), rounds)


def report(
    stage: str, reference: Callable[[], Any], candidates: dict[str, Callable[[], Any]], tokens: int, rounds: int
) -> None:
    """Print one stage: seconds, ratio, greatest difference of a loss."""
    wanted = np.asarray(reference())
    apart = {kind: np.abs(np.asarray(run()) - wanted).max() for kind, run in candidates.items()}
    seconds = interleave({"plain": reference, **candidates}, rounds)
    print(f"\n{stage:12}{'seconds':>9}{'tokens/s':>10}{'ratio':>7}{'loss apart by':>15}")
    print(f"{'plain':12}{seconds['plain']:9.2f}{tokens / seconds['plain']:10.0f}{1:7.2f}")
    for kind in candidates:
        ratio = seconds["plain"] / seconds[kind]
        print(f"{kind:12}{seconds[kind]:9.2f}{tokens / seconds[kind]:10.0f}{ratio:7.2f}{apart[kind]:15.1e}")
    for kind in candidates:
        print(f"{kind} {stage} against plain: {judge(kind, seconds['plain'] / seconds[kind], ASKED[stage][kind])}")


def judge(kind: str, ratio: float, ask: float) -> str:
    """A ratio beside what is asked for."""
    return bfloat16_verdict(ratio, ask) if kind == "bfloat16" else verdict(ratio, ask)


if __name__ == "__main__":
    main()
