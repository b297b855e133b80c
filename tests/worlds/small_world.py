"""A small world: examples, an attributor whose features cost nothing, plain scores, words and a published folder."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import airrep
from airrep.arrays import DenseFeatures
from airrep.attributors.base import Attributor, OnRows
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.words import INVISIBLE, UNSPACED
from airrep.runtime.settings import Settings

SOURCES = ("forum", "books", None)


class HashAttributor(Attributor):
    """Features from a hash of the text: quick, and the same everywhere."""

    name = "hash"
    pool = "attention"

    def __init__(self, seed: str = "") -> None:
        self.seed = seed
        self.encoded: list[str] = []

    @property
    def settings(self) -> Settings:
        return Settings()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"hash {self.seed}".encode()).hexdigest()

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        self.encoded += [example.id for example in examples]
        if on_rows is not None:
            on_rows(len(examples))
        return np.array([self._features(example) for example in examples], np.float32).reshape(len(examples), 16)

    def _features(self, example: Example) -> np.ndarray:
        digest = hashlib.sha256(f"{self.seed}{example.prompt}\0{example.response}".encode()).digest()
        return np.frombuffer(digest, np.int16).astype(np.float32) / 2**14


def make_corpus(count: int, prefix: str = "e") -> Corpus:
    """A corpus with labels, sources and metadata."""
    return Corpus.from_examples(
        Example(
            prompt=f"question {prefix} {number}",
            response=f"answer {number * 7 % 31}",
            id=f"{prefix}{number}",
            label=f"label {number % 3}",
            source=SOURCES[number % len(SOURCES)],
            metadata={"year": 2000 + number % 5},
        )
        for number in range(count)
    )


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes, but for costs, never the same twice, and commands, which name it."""
    others = ("costs.jsonl", ".steps.jsonl")
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in others)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}


def stored_scores(index: airrep.Index, queries: airrep.Corpus) -> np.ndarray:
    """All scores of an index of dense features, float64 ``(q, n)``."""
    stored = np.concatenate([np.asarray(block.features, np.float64) for block in index.blocks(index.method)])
    return np.asarray(index.attributor.encode_queries(queries), np.float64) @ stored.T


LETTERS = "abcdefghijklmnop"
TEXTS = Corpus.from_examples(
    Example(
        " ".join(LETTERS[number // 16**k % 16] for k in range(2 + number % 7)), LETTERS[number // 256], f"e{number}"
    )
    for number in range(400)
)


def _worded(row: int) -> Example:
    """Letters, which a tiny encoder tells apart, and a word, which TF-IDF does."""
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    text = " ".join(["answer question"[7 * (row % 2) :], *(alphabet[row * step % 26] for step in (1, 3, 7))])
    return Example(text + " :" * (row // 26), alphabet[row * 5 % 26], str(row))


WORDED = Corpus.from_examples(map(_worded, range(90)))


def write_published(folder: Path, train: Corpus, queries: Corpus, m: int = 6, size: int = 5) -> list[dict[str, list]]:
    """Write the three files; the lines of the third are returned."""
    generator = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, corpus in (("train", train), ("test", queries)):
        lines = (json.dumps({"prompt": one.prompt, "response": one.response}) + "\n" for one in corpus)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    subsets = [
        {
            "train_subset": generator.choice(len(train), size, replace=False).tolist(),
            "test_loss": generator.random(len(queries)).tolist(),
        }
        for _ in range(m)
    ]
    (folder / "lds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in subsets))
    return subsets


def plain_words(text: str, together: bool = False) -> list[str]:
    """Words with their marks, and other signs, each alone or those that stand *together*; equal words are equal."""
    found, before = list[str](), "space"
    for sign in unicodedata.normalize("NFC", without_hidden(text)):
        joins = is_mark(sign) and not re.match(f"[{UNSPACED}]", sign)  # of scripts without spaces each sign is a word
        kind = "word" if is_letter(sign) or (before == "word" and joins) else "sign"
        kind = "space" if sign.isspace() else kind
        if kind == before and (kind == "word" or (kind == "sign" and together)):
            found[-1] += sign
        elif kind != "space":
            found.append(sign)
        before = kind
    return found


def is_letter(sign: str) -> bool:
    """Whether it is a letter, a digit or an underscore."""
    return sign == "_" or sign.isalnum()


def is_mark(sign: str) -> bool:
    """Whether it is an accent or a vowel sign that can be seen."""
    return unicodedata.category(sign) in ("Mn", "Mc") and not is_invisible(sign)


def is_invisible(sign: str) -> bool:
    """Whether nobody sees it."""
    return re.match(f"[{INVISIBLE}]", sign) is not None


def without_hidden(text: str) -> str:
    """Without what is invisible in front of a letter or a mark."""
    shown, after = "", " "
    for sign in reversed(text):
        if is_invisible(sign) and (is_letter(after) or is_mark(after)):
            continue
        shown, after = sign + shown, sign
    return shown
