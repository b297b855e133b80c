#!/usr/bin/env bash
# Guess: the folder that model2vec writes, which names the modules for sentence-transformers, gives one vector for a text,
#   whichever of the two libraries reads it; and `max_length`, which is told in tokens, cuts after so many tokens.
# Instead: model2vec leaves unknown words out of the mean, sentence-transformers counts them with the vector of [UNK].
#   And model2vec first cuts each text after max_length times the middle length of a token of the vocabulary, in
#   characters, white space included: of indented lines or long words it reads fewer tokens than it says.
# Versions: model2vec 0.10.0, sentence-transformers 6.2.0, transformers 5.24.0, tokenizers 0.23.3, torch 2.13.0
# Seen on 2026-11-28:
#   "cats purr": cosine of the two libraries 1.000
#   "cats purr" with three unknown words: 0.310
#   of unknown words alone: length 0.00 in model2vec, 3.67 in sentence-transformers
#   100 words on indented lines, max_length=512: tokens that model2vec reads 81, sentence-transformers 100
# For users: vectors that one library wrote must not be searched with vectors of the other. Texts of unknown words alone
#   are all alike in sentence-transformers, and like nothing in model2vec. Pass max_length=None to read all of a text.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip=("$place/venv/bin/pip" --disable-pip-version-check)
"${pip[@]}" install --quiet torch==2.13.0
"${pip[@]}" install --quiet model2vec==0.10.0 sentence-transformers==6.2.0 transformers==5.24.0 tokenizers==0.23.3
cd "$place"
HF_HUB_OFFLINE=1 "$place/venv/bin/python" - <<'PYTHON'
import numpy as np
from model2vec import StaticModel
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers

words = ["[UNK]", "cats", "purr", "dogs", "bark"]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
vectors = np.random.default_rng(0).standard_normal((len(words), 16)).astype(np.float32)
StaticModel(vectors, tokenizer).save_pretrained("model")
one = StaticModel.from_pretrained("model", force_download=False)
other = SentenceTransformer("model", device="cpu")


def both(text):
    """The vectors of both libraries."""
    return one.encode([text])[0], other.encode([text])[0]


def cosine(text):
    first, second = both(text)
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


known, mixed = cosine("cats purr"), cosine("cats purr softly near fires")
print(f'"cats purr": cosine of the two libraries {known:.3f}')
print(f'"cats purr" with three unknown words: {mixed:.3f}')
first, second = map(np.linalg.norm, both("soft fires glow"))
print(f"of unknown words alone: length {first:.2f} in model2vec, {second:.2f} in sentence-transformers")
text = "\n".join([" " * 20 + "cats"] * 50 + [" " * 20 + "bark"] * 50)
share = [float(np.linalg.lstsq(vectors[[1, 4]].T, vector, rcond=None)[0][0]) for vector in both(text)]
read = [round(50 / part) for part in share]  # the share of "cats", of which all are read
print(f"100 words on indented lines, max_length={one.max_length}: tokens that model2vec reads {read[0]}, "
      f"sentence-transformers {read[1]}")
assert known > 0.999 and mixed < 0.99 and first == 0 < second, "both libraries give one vector now"
assert read[0] < 100 == read[1], "model2vec cuts by tokens alone now"
PYTHON
