"""A planted world: a tiny LM, facts that stand in few examples, and queries that ask for them in other words.

A fact is a key and its answer. A key has three parts, and each of them as many words as the fact has examples, and one
more for the query: none of these words is written twice. That they mean the same is known to the LM alone, whose
embeddings of them are almost equal. Six facts share an answer, and the other words of a prompt are drawn at random, so
that words tell no more than the answer does. The LM first learns the language from prompts without keys, and then, in
a warm-up, the facts, without learning them by heart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from airrep.corpus.corpus import Corpus, Example
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import warm_up

FACTS = 60
EXAMPLES = 5
"""Of each fact in the training data."""
PARTS = 3
ANSWERS = tuple(f"answer{number}" for number in range(10))
FILLERS = tuple(f"word{number}" for number in range(12))

CHANCE = 1 / FACTS
"""Recall of a method that knows nothing."""
CHANCE_BY_ANSWER = len(ANSWERS) / FACTS
"""Recall of a method that knows the answer alone."""

WIDTH = 64
APART = 0.05
"""Noise in the embedding of a word, as a share of what the words for a part have in common."""

_LANGUAGE = FineTuneSettings(epochs=1, batch_examples=20, learning_rate=2e-3)
_FACTS = FineTuneSettings(epochs=3, batch_examples=20, learning_rate=2e-3)
_ADAPTERS = FineTuneSettings(
    epochs=4, batch_examples=20, learning_rate=2e-3, lora_rank=8, lora_targets=("gate_proj", "up_proj", "down_proj")
)

_FISHER = {"damping": 1.0}
"""More than the default, as the raw Fisher matrix of 384 features is seen through 300 examples alone."""
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tracin": ("tracin", {"modules": None}),
    "logra": ("logra", {"modules": None, "rank": 8, "sketch": None, "exponent": 1.0}),
    "trak": ("trak", _FISHER),
    "dsdm": ("dsdm", _FISHER),
    "less": ("less", {}),
    "influence": ("influence", {"modules": ("*.0.mlp.up_proj",), "solver": "cg", "damping": 0.3, "tolerance": 1e-2}),
}
"""What must find the facts: a method and what is set of it, by the name in the table."""
BLIND = ("tfidf", "dsir")
"""Methods that see words."""


@dataclass(frozen=True)
class World:
    """Texts, whose labels name facts, and folders of the LM that was trained on them."""

    train: Corpus
    queries: Corpus
    lm: Path
    """All weights were trained."""
    adapted: Path
    """Low-rank adapters were trained instead, for LESS."""


def plant(folder: Path, seed: int, *, adapters: bool = False) -> World:
    """Write texts and train the LM; the adapters only if they are asked for."""
    generator = np.random.default_rng(seed)
    train, queries = _texts(generator)
    raw = _write_lm(folder / "raw", generator)
    reading = {"template": "{prompt} {response}", "device": "cpu", "precision": "float32"}
    warm_up(_talk(generator), folder / "base", LmSettings.of({"lm": raw, **reading}), _LANGUAGE, seed=seed)
    base = LmSettings.of({"lm": str(folder / "base"), **reading})
    world = World(train, queries, folder / "warm", folder / "adapted")
    warm_up(train, world.lm, base, _FACTS, seed=seed)
    if adapters:
        warm_up(train, world.adapted, base, _ADAPTERS, seed=seed)
    return world


def find(world: World, name: str, folder: Path) -> float:
    """Recall at 5 of a row of the table: the share of each query's five top examples that are of its fact."""
    method, values = METHODS.get(name, (name, None))
    if values is not None:
        lm = world.adapted if method == "less" else world.lm
        values = {"lm": str(lm), "store": str(folder / "store"), "device": "cpu", "precision": "float32", **values}
    return _recall(build_index(world.train, folder / name, method, settings=values), world.queries)


def _recall(index: Index, queries: Corpus) -> float:
    right = [hit.example.label == query.label for query in queries for hit in index.top(query, k=EXAMPLES)]
    return float(np.mean(right))


def _words(fact: int, part: int) -> tuple[str, ...]:
    """The words for one part of a fact's key, one for each example; the last is the query's."""
    return tuple(f"key{fact}part{part}word{number}" for number in range(EXAMPLES + 1))


def _texts(generator: np.random.Generator) -> tuple[Corpus, Corpus]:
    """Training examples in random order, and a query for each fact."""

    def example(fact: int, number: int) -> Example:
        words = [*generator.choice(FILLERS, 2), *(_words(fact, part)[number] for part in range(PARTS))]
        return Example(" ".join(words), ANSWERS[fact % len(ANSWERS)], f"{fact}-{number}", label=str(fact))

    planted = [example(fact, number) for fact in range(FACTS) for number in range(EXAMPLES)]
    train = [planted[row] for row in generator.permutation(len(planted))]
    return Corpus.from_examples(train), Corpus.from_examples(example(fact, EXAMPLES) for fact in range(FACTS))


def _talk(generator: np.random.Generator) -> Corpus:
    """Prompts without a key, each with any answer: they teach the language, and no fact."""
    return Corpus.from_examples(
        Example(" ".join(generator.choice(FILLERS, 2 + PARTS)), ANSWERS[number % len(ANSWERS)], str(number))
        for number in range(1000)
    )


def _write_lm(folder: Path, generator: np.random.Generator) -> str:
    """Write a Llama of random weights whose embeddings of the words for a part are almost equal."""
    logging.disable_progress_bar()
    keys = [word for fact in range(FACTS) for part in range(PARTS) for word in _words(fact, part)]
    words = ["<unknown>", *ANSWERS, *FILLERS, *keys]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    model = _network(len(words), int(generator.integers(2**31)))
    meanings = np.repeat(generator.standard_normal((FACTS * PARTS, WIDTH)), EXAMPLES + 1, axis=0)
    embedded = meanings + APART * generator.standard_normal(meanings.shape)
    others = generator.standard_normal((len(words) - len(keys), WIDTH))
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(torch.from_numpy(np.concatenate([others, embedded])))
    model.save_pretrained(folder)
    return str(folder)


def _network(words: int, seed: int) -> Any:
    shape = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4}
    heads = {"num_key_value_heads": 2, "max_position_embeddings": 16, "tie_word_embeddings": False}
    config = LlamaConfig(vocab_size=words, initializer_range=0.05, eos_token_id=None, **shape, **heads)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
