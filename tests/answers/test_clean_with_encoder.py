"""Clean with the encoder that comes with airrep: planted labels and copies, precision and recall."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import airrep
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError

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


def test_texts_that_the_encoder_cannot_read_are_not_judged(examples: list[Example], tmp_path: Path) -> None:
    """All their words are one token: one of another label than the others was told as wrong, all as neighbours."""
    foreign = [
        Example(f"{sign} {sign}?", f"{sign}!", f"f{place}", label=examples[0].label)
        for place, sign in enumerate("😀🎉🚀🍕🍔🌍🎸🐶🐱🌈🔥💧")
    ]
    foreign[0] = replace(foreign[0], label=examples[-1].label)
    corpus = airrep.Corpus.from_examples([*examples, *foreign])
    index = airrep.build_index(corpus, tmp_path / "index", airrep.make_attributor("tfidf"))
    kinds = ["label", "answer", "outlier"]
    found = airrep.clean(index, kinds=kinds)
    assert found.not_judged == dict.fromkeys(kinds, len(foreign))
    told_alone = airrep.clean(index.delete(range(len(examples), len(corpus))), kinds=kinds)
    assert [(one.example.id, one.reason) for one in found.findings] == [
        (one.example.id, one.reason) for one in told_alone.findings
    ]
    unread = airrep.build_index(
        airrep.Corpus.from_examples(foreign), tmp_path / "foreign", airrep.make_attributor("airrep")
    )
    with pytest.raises(ConfigError, match="label: the encoder knows the words of only 0 examples; at least 12"):
        airrep.clean(unread, kinds=["label"])
