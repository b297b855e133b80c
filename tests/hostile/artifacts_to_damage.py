"""Artifacts of every kind, small, each with a question that is answered from its files."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from worlds.made_evaluations import made_evaluation
from worlds.small_world import HashAttributor, make_corpus
from worlds.tiny_bert import TEXTS, tiny_checkpoint, tiny_folder
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld, make_plan

import airrep
from airrep.attributors.recipes import ChannelsSettings, read_channels
from airrep.encoder.tokens import TextTokenizer
from airrep.evaluation.result import Evaluation
from airrep.labels.farm import label
from airrep.labels.labels import Labels
from airrep.labels.plan import open_plan
from airrep.runtime.devices import Team
from airrep.training.examples import Texts
from airrep.training.trunk import Activations, Frozen

CORPUS, ASKED = make_corpus(40), make_corpus(3, "q")
CHANNELS = ({"method": "ngram", "settings": {"tokenizer": "words"}}, {"method": "tfidf", "pool": "mean"})


@dataclass(frozen=True)
class Kind:
    """A kind of artifact."""

    make: Callable[[Path], None]
    """Writes one into a new folder."""
    ask: Callable[[Path], str]
    """A digest of everything that is answered from it."""
    trusted: bool = True
    """Whether its bytes are told from altered ones; others are inputs, of which an altered one may be read."""


def _digest(*parts: object) -> str:
    summed = hashlib.sha256()
    for part in parts:
        summed.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return summed.hexdigest()


def _ask_index(path: Path, attributor: airrep.Attributor | None = None) -> str:
    index = airrep.Index(path, attributor)
    top, group = index.top(ASKED, k=len(index)), index.group_scores(ASKED, by="source")
    change = index.what_if(ASKED, remove="year > 2002")
    hits = [(hit.row, hit.score, hit.example.to_dict()) for hits in top for hit in hits]
    return _digest(hits, group.names, group.scores, change.change, index.values("year"), index.fields)


def _dense(path: Path) -> None:
    airrep.build_index(CORPUS, path, HashAttributor(), shard_rows=16).delete([1, 17])


def _sparse(path: Path) -> None:
    airrep.build_index(CORPUS, path, "tfidf", shard_rows=16)


def _mixed(path: Path) -> None:
    encoder = {"method": "airrep", "settings": {"encoder": str(path.parent / "encoder of it"), "device": "cpu"}}
    tiny_folder(path.parent / "encoder of it")
    airrep.build_index(CORPUS, path, "channels", settings={"channels": [*CHANNELS, encoder]}, shard_rows=16)


def _plan(path: Path) -> None:
    make_plan(path)


def _ask_plan(path: Path) -> str:
    plan = open_plan(path)
    drawn = [plan.instance(number) for number in range(len(plan))]
    return _digest(plan.fingerprint, [(one.name, one.train.tolist(), one.queries.tolist()) for one in drawn])


def _labels(path: Path) -> None:
    label(make_plan(path.parent / "plan of it"), TRAIN, QUERIES, ToyWorld(), FINE_TUNE, path, seeds=2)


def _unfinished(path: Path) -> None:
    label(make_plan(path.parent / "plan of it"), TRAIN, QUERIES, ToyWorld(), FINE_TUNE, path, part="1/2")


def _ask_labels(path: Path) -> str:
    labels = Labels(path)
    found = labels.instances(TRAIN, QUERIES)
    return _digest(labels.fingerprint, *(one.losses for one in found), *(one.base_losses for one in found))


def _ask_unfinished(path: Path) -> str:
    """Damaged results of a ledger are as good as missing: what is there must be right."""
    labels = Labels(path)
    for number in range(len(labels.plan)):
        found, whole = labels.losses(number), WHOLE_LOSSES[number]
        here = ~np.isnan(found)
        assert np.array_equal(found[here], whole[: found.shape[0]][here]), "a loss is another"
    return _digest(labels.plan.fingerprint, labels.seeds)


WHOLE_LOSSES: list[np.ndarray] = []
"""Of the labels that the unfinished ones are a part of."""


def _encoder(path: Path) -> None:
    path.mkdir()
    tiny_folder(path / "encoder")
    airrep.build_index(CORPUS, path / "index", "airrep", settings={"encoder": str(path / "encoder"), "device": "cpu"})


def _ask_encoder(path: Path) -> str:
    """The encoder of an index: one that computes other features is refused by its fingerprint."""
    return _ask_index(path / "index")


def _recipe(path: Path) -> None:
    path.mkdir()
    (path / "channels.yaml").write_text(
        "channels:\n- method: ngram\n  settings: {tokenizer: words}\n  weight: 0.5\n- {method: tfidf, pool: mean}\n"
    )


def _ask_recipe(path: Path) -> str:
    settings = ChannelsSettings.of({"channels": read_channels(str(path))})
    return _digest(settings.model_dump())


def _evaluation(path: Path) -> None:
    made_evaluation().save(path)


def _ask_evaluation(path: Path) -> str:
    found = Evaluation.read(path)
    return _digest(found.to_dict(), *(row.per_query for row in found.rows))


def _result(path: Path) -> None:
    airrep.build_index(CORPUS, path.parent / "index of it", "tfidf").what_if(ASKED, remove=[1, 2]).save(path)


def _ask_result(path: Path) -> str:
    return _digest(airrep.open(path).to_dict())


def _frozen() -> Frozen:
    checkpoint = tiny_checkpoint()
    sequences = TextTokenizer(checkpoint.tokenizer, 24, 40, "tiny")([f"{text} {i}" for i in range(3) for text in TEXTS])
    texts = Texts(np.concatenate(sequences).astype(np.int32), np.cumsum([0, *map(len, sequences)]))
    return Frozen(checkpoint.model, texts, 2, "float32", "float32", 50, Team())


def _activations(path: Path) -> None:
    Activations(path, _frozen())


def _ask_activations(path: Path) -> str:
    """Damaged blocks are computed again."""
    frozen = _frozen()
    return _digest(Activations(path, frozen).means(np.arange(len(frozen.texts))))


KINDS = {
    "dense index": Kind(_dense, lambda path: _ask_index(path, HashAttributor())),
    "sparse index": Kind(_sparse, _ask_index),
    "index of channels": Kind(_mixed, _ask_index),
    "subsets": Kind(_plan, _ask_plan),
    "labels": Kind(_labels, _ask_labels),
    "unfinished labels": Kind(_unfinished, _ask_unfinished),
    "encoder": Kind(_encoder, _ask_encoder),
    "recipe": Kind(_recipe, _ask_recipe, trusted=False),
    "evaluation": Kind(_evaluation, _ask_evaluation),
    "result": Kind(_result, _ask_result),
    "activations": Kind(_activations, _ask_activations),
}


def whole_losses(folder: Path) -> None:
    """Compute the losses that unfinished labels are held against."""
    _labels(folder / "whole")
    labels = Labels(folder / "whole")
    WHOLE_LOSSES[:] = [labels.losses(number) for number in range(len(labels.plan))]
