"""Encoding: speed and fidelity against ``SentenceTransformer.encode`` of the same folder.

Run as ``python benchmarks/encode.py``. Process CPU time on one thread, candidates in turns; the plain candidate
is ``SentenceTransformer.encode`` as it comes (float32, batches of 32). ``--texts`` takes JSON lines with
``prompt`` and ``response``; the default is a sample of the demo's examples. Where there is a CUDA device, a
second table has wall-clock time on it.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from cpu import bfloat16_verdict, interleave, verdict

import airrep
from airrep.corpus.corpus import Example
from airrep.encoder.base import Encoder
from airrep.encoder.load import load_encoder
from airrep.encoder.networks.packed import PackedEncoder
from airrep.encoder.tokens import TextTokenizer
from airrep.runtime.devices import ResolvedPrecision

DEMO = Path(airrep.__file__).parent / "data" / "train.jsonl"
ASKED: dict[ResolvedPrecision, float] = {"float32": 1.6, "bfloat16": 3.0}


def main() -> None:
    """Measure on the CPU, then on CUDA where there is any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, default=DEMO, help="JSON lines with prompt and response")
    parser.add_argument("--count", type=int, default=256, help="how many of them, evenly spread")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--encoder", default="default")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    encoders = {kind: load_encoder(arguments.encoder, precision=kind, device="cpu") for kind in ASKED}
    texts = read_texts(arguments.texts, arguments.count, encoders["float32"])
    print(describe(texts, encoders["float32"]))
    measure_cpu(texts, encoders, arguments.rounds)
    if torch.cuda.is_available():
        measure_cuda(texts, arguments.encoder)


def read_texts(path: Path, count: int, encoder: Encoder) -> list[str]:
    """Rendered texts of evenly spread lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    chosen = np.linspace(0, len(lines) - 1, min(count, len(lines))).astype(int)
    records = [json.loads(lines[line]) for line in chosen]
    return [encoder.render(Example(record["prompt"], record["response"], "")) for record in records]


def tokenizer_of(encoder: Encoder) -> TextTokenizer:
    """The tokenizer that a packed encoder uses."""
    if not isinstance(encoder, PackedEncoder):
        raise SystemExit(f"{encoder.name} does not run packed: there is nothing to compare.")
    checkpoint = encoder.checkpoint
    return TextTokenizer(checkpoint.tokenizer, encoder.max_tokens, checkpoint.model.shape.vocabulary, encoder.name)


def describe(texts: list[str], encoder: Encoder) -> str:
    """Number and lengths of the texts."""
    lengths = [len(tokens) for tokens in tokenizer_of(encoder)(texts)]
    return (
        f"{len(texts)} texts of {min(lengths)}-{max(lengths)} tokens, mean {np.mean(lengths):.0f}; "
        f"{torch.get_num_threads()} thread(s)"
    )


def measure_cpu(texts: list[str], encoders: Mapping[ResolvedPrecision, Encoder], rounds: int) -> None:
    """Print process CPU time and cosines."""
    plain = encoders["float32"].sentence_transformer()
    tokenize = tokenizer_of(encoders["float32"])
    candidates: dict[str, Callable[[], object]] = {
        "plain": partial(plain.encode, texts, show_progress_bar=False),
        **{kind: partial(encoder.encode_texts, texts) for kind, encoder in encoders.items()},
        "tokenise": partial(tokenize, texts),
    }
    seconds = interleave(candidates, rounds)
    reference = plain.encode(texts, show_progress_bar=False)
    print(f"{'':22}{'texts/s':>9}{'ratio':>8}{'cosine min':>12}{'mean':>10}{'tokenise':>10}")
    print(f"{'SentenceTransformer':22}{len(texts) / seconds['plain']:9.1f}{1:8.2f}")
    for kind, encoder in encoders.items():
        found = cosines(encoder.encode_texts(texts), reference)
        ratio, share = seconds["plain"] / seconds[kind], seconds["tokenise"] / seconds[kind]
        speed = f"{len(texts) / seconds[kind]:9.1f}{ratio:8.2f}"
        print(f"{'airrep ' + kind:22}{speed}{found.min():12.6f}{found.mean():10.6f}{share:10.1%}")
    for kind, ask in ASKED.items():
        print(f"{kind} speed against SentenceTransformer: {judge(kind, seconds['plain'] / seconds[kind], ask)}")


def judge(kind: ResolvedPrecision, ratio: float, ask: float) -> str:
    """A ratio beside what is asked for."""
    return bfloat16_verdict(ratio, ask) if kind == "bfloat16" else verdict(ratio, ask)


def measure_cuda(texts: list[str], name: str, repeats: int = 8) -> None:
    """Print wall-clock time on the first CUDA device, and cosines to float32 on the CPU."""
    many = texts * repeats
    reference = load_encoder(name, precision="float32", device="cpu").encode_texts(texts)
    encoders = {kind: load_encoder(name, precision=kind, device="cuda") for kind in ASKED}
    plain = encoders["float32"].sentence_transformer()
    seconds = wall(partial(plain.encode, many, show_progress_bar=False))
    print(f"CUDA, wall clock: SentenceTransformer {len(many) / seconds:.0f} texts/s")
    for kind, encoder in encoders.items():
        found = cosines(encoder.encode_texts(texts), reference)
        seconds = wall(partial(encoder.encode_texts, many))
        print(f"airrep {kind}: {len(many) / seconds:.0f} texts/s, cosine min {found.min():.6f}")


def wall(run: Callable[[], object], rounds: int = 3) -> float:
    """Least wall-clock seconds of a few rounds, after one that is not counted."""
    run()
    spent = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        spent.append(time.perf_counter() - start)
    return min(spent)


def cosines(features: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Cosine of each row with the same row of the reference, in float64."""
    one, other = features.astype(np.float64), reference.astype(np.float64)
    norms: np.ndarray = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    products: np.ndarray = (one * other).sum(1)
    return products / norms


if __name__ == "__main__":
    main()
