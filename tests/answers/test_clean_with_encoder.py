"""Clean with the encoder that comes with airrep: planted labels and copies, precision and recall."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import airrep
from airrep.corpus.corpus import Example

DATA = Path(airrep.__file__).parent / "data" / "train.jsonl"


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    """Sixty examples of each of five tasks."""
    return list(airrep.read_corpus(DATA))[:: 2000 // 300][:300]


def told(examples: list[Example], kind: str, folder: Path) -> set[str]:
    corpus = airrep.Corpus.from_examples(examples)
    index = airrep.build_index(corpus, folder / "index", airrep.make_attributor("tfidf"))
    return {finding.example.id for finding in airrep.clean(index, kinds=[kind]).findings}


def test_wrong_labels(examples: list[Example], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    names = sorted({str(one.label) for one in examples})
    planted = set()
    changed = list(examples)
    for place in random.choice(len(examples), 20, replace=False).tolist():
        one = examples[place]
        changed[place] = replace(one, label=names[(names.index(str(one.label)) + int(random.integers(1, 5))) % 5])
        planted.add(one.id)
    found = told(changed, "label", tmp_path)
    assert len(found & planted) / len(planted) >= 0.85
    assert len(found & planted) / len(found) >= 0.75


def test_copies(examples: list[Example], tmp_path: Path) -> None:
    long = [one for one in examples if len(one.prompt.split()) >= 40][:20]
    copies = [replace(one, prompt=f"{one.prompt.upper()} Thanks!", id=f"copy of {one.id}") for one in long]
    assert told([*examples, *copies], "duplicate", tmp_path) == {one.id for one in copies}
