"""Fit a static encoder, one vector for each word piece, to what the trained encoder makes of texts.

Usage: python experiments/learned-encoder/static.py DATA.jsonl ... OUT [--unseen FILE ...]

No example is learnt from that has the prompt, or the response where that is a sentence, of one in FILE. Needs torch and
sentence-transformers; OUT does not.

The teacher reads each example as its template has it, and each response by itself. Each kind is centred by itself, as
what all texts share says nothing. The static encoder reads prompt and response, one behind the other. Its vectors begin
as a linear map of the teacher's word embeddings, so that pieces that no text has get a vector as well; a ridge
regression on the means over a text's pieces finds what is to be added. The directions in which texts vary most stay.
Vectors of texts have the same length, so that scores are cosines times a number.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve
from scipy.sparse import csr_array

sys.path.insert(0, str(Path(__file__).parents[1]))
from prepare import telling
from records import count, read

from airrep.corpus.corpus import Example
from airrep.encoder.base import Encoder
from airrep.encoder.cards import Card
from airrep.encoder.folders import read_json
from airrep.encoder.load import load_encoder
from airrep.encoder.static import LinearHead, StaticEncoder, StoredStatic
from airrep.encoder.tokens import PieceTokenizer

MODELS = Path(__file__).parents[2] / "src" / "airrep" / "models"
TEMPLATE = "{prompt} {response}"
PRIOR, RIDGE = 0.1, 0.05
"""On the map of word embeddings, in shares of their mean variance; on what is added to it."""
SCALE = np.float32(5)
"""On the cosines: scores are then as large as the teacher's, so that one temperature and one weight suit both."""


def main() -> None:
    """Read, encode, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("out", type=Path)
    parser.add_argument("--unseen", type=Path, action="append", default=[], help="what must stay unseen")
    parser.add_argument("--dimension", type=count, default=128)
    given = parser.parse_args()
    tokenizer = read_json(MODELS / "default" / "tokenizer.json") | {"truncation": None}
    empty = StaticEncoder.of("static", np.zeros((rows_of(tokenizer), 1), np.float32), tokenizer, Card(TEMPLATE))
    teacher = load_encoder("default", precision="float32", device="cpu")
    whole = learnable(given.data, given.unseen)
    alone = [Example("", response) for response in sorted({example.response for example in whole})]
    wanted = np.concatenate([centred(teacher.encode(part)) for part in (whole, alone)])
    means = means_of([empty.render(example) for example in (*whole, *alone)], tokenizer)
    matrix = fitted(means, wanted, word_embeddings(teacher))
    matrix = matrix @ directions(means[: len(whole)] @ matrix, given.dimension)
    matrix[PieceTokenizer(tokenizer, "tokenizer").unknown] = 0  # so that texts of unknown words are not alike
    card = Card(TEMPLATE, trained_pool="signed-attention")
    head = LinearHead(np.sqrt(SCALE) * np.eye(given.dimension, dtype=np.float32), np.zeros(given.dimension, np.float32))
    made = StoredStatic(matrix.astype(np.float32), tokenizer, card, normalise=True, head=head)
    StaticEncoder("static", made).save(given.out)
    print(f"{given.out}: {len(matrix):,} vectors of {given.dimension} numbers, learnt from {len(wanted):,} texts")


def learnable(paths: list[Path], unseen: list[Path]) -> list[Example]:
    """The different examples of files that nothing in *unseen* gives away."""
    hidden = {text for path in unseen for record in read(path) for text in telling(record)}
    records = [record for path in paths for record in read(path) if hidden.isdisjoint(telling(record))]
    different = dict.fromkeys((one["prompt"], one["response"]) for one in records)
    return [Example(prompt, response) for prompt, response in different]


def rows_of(tokenizer: dict) -> int:
    """How many vectors a tokenizer needs."""
    return 1 + max(PieceTokenizer(tokenizer, "tokenizer").vocabulary.values())


def means_of(texts: list[str], tokenizer: dict) -> csr_array:
    """The share that each word piece has in each text, ``(texts, v)``."""
    pieces = PieceTokenizer(tokenizer, "tokenizer")(texts)
    lengths = np.diff(pieces.offsets)
    shares = np.repeat(1 / np.maximum(lengths, 1), lengths)
    return csr_array((shares, pieces.ids, pieces.offsets), (len(texts), rows_of(tokenizer)))


def centred(features: np.ndarray) -> np.ndarray:
    """Vectors less their mean."""
    wide = features.astype(np.float64)
    return wide - wide.mean(axis=0)


def word_embeddings(teacher: Encoder) -> np.ndarray:
    """Return what the teacher has for each word piece before it reads them together."""
    bert = teacher.sentence_transformer()[0].auto_model
    return bert.get_input_embeddings().weight.detach().numpy().astype(np.float64)


def fitted(means: csr_array, wanted: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    """Vectors whose means over the pieces of texts come near to those wanted, ``(v, d)``."""
    of_texts = means @ embeddings
    centre = of_texts.mean(axis=0)
    spread = (of_texts - centre).T @ (of_texts - centre)
    ridge = PRIOR * np.trace(spread) / len(spread)
    begun = (embeddings - centre) @ solve(spread + ridge * np.eye(len(spread)), (of_texts - centre).T @ wanted)
    alike = (means @ means.T).toarray().astype(np.float32)  # fewer texts than pieces, most of which are in none
    alike[np.diag_indices_from(alike)] += RIDGE
    left = (wanted - means @ begun).astype(np.float32)
    return begun + means.T @ cho_solve(cho_factor(alike, lower=True, overwrite_a=True), left)


def directions(vectors: np.ndarray, dimension: int) -> np.ndarray:
    """The directions in which vectors of unit length have most, ``(d, dimension)``."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return np.linalg.eigh(unit.T @ unit)[1][:, ::-1][:, :dimension]


if __name__ == "__main__":
    main()
