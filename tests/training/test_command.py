"""``airrep train`` and ``airrep adapt --labels`` from the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from worlds.commands import Run
from worlds.tiny_bert import tiny_folder
from worlds.toy_farm import FINE_TUNE, ToyWorld

from airrep.corpus.corpus import Corpus, Example
from airrep.labels.farm import label
from airrep.labels.plan import SamplingSettings
from airrep.labels.sampling import sample

Command = Callable[..., tuple[int, str]]

TRAIN = (
    "train", "labels#1", "--held-out", "labels#0", "--data", "data.jsonl", "--start", "tiny", "--steps", "3",
    "--set", "initial_scale=0.1", "--set", "view=response", "--precision", "float32",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command line among data, labels of two instances and a tiny encoder: status, and what it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("airrep.training.train.RESAMPLES", 40)
    data = Corpus.from_examples(
        Example(f"{'abcdefgh'[row % 8]} e{row}", f"{'uvwxyz'[row % 6]} {'ijklm'[row % 5]}", f"e{row}")
        for row in range(120)
    )
    Path("data.jsonl").write_text("".join(json.dumps(example.to_dict()) + "\n" for example in data))
    sizes = {"instances": 2, "train_count": 24, "query_count": 4, "subsets": 12, "size": 6, "held_out": 1}
    label(sample(data, "plan", SamplingSettings(**sizes)), data, None, ToyWorld(), FINE_TUNE, Path("labels"))
    tiny_folder(Path("tiny"), ((16, 16, True),))

    def told(*arguments: str) -> tuple[int, str]:
        ran = run(*arguments)
        return ran.status, ran.out + ran.err

    return told


def test_the_view_is_told(run: Command) -> None:
    status, said = run(*TRAIN, "--set", "learning_rate=3e-2", "--set", "evaluate_every=1", "--out", "encoder")
    assert status == 0, said
    training = json.loads(Path("encoder/airrep.json").read_text())["training"]
    assert training["settings"]["view"] == "response"
    assert "set view=response wherever it is used" in Path("encoder/README.md").read_text()
    assert training["best_step"] == 0 or "--encoder encoder --set view=response --out INDEX" in said


ADAPT = ("adapt", "data.jsonl", "--labels", "labels#1", "--held-out", "labels#0", "--out", "learnt")


def test_weights_are_learnt_from_labels_by_one_command(run: Command) -> None:
    Path("recipe.yaml").write_text("- {method: ngram, settings: {tokenizer: words}}\n- {method: tfidf}\n")
    status, said = run(*ADAPT, "--recipe", "recipe.yaml")
    assert status == 0, said
    assert ("LDS × 100" in said, "learnt: " in said) == (True, True)
    weighed = json.loads(Path("learnt/manifest.json").read_text())["channels"]
    assert {one["method"] for one in weighed} <= {"ngram", "tfidf"}
    assert all(one["weight"] > 0 for one in weighed)
    status, said = run("index", "data.jsonl", "--recipe", "learnt", "--out", "index")
    assert status == 0, said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (ADAPT[:2] + ADAPT[-2:], "no --lm"),
        (ADAPT[:4] + ADAPT[-2:], "--held-out"),
        ((*ADAPT[:2], "--lm", "tiny", *ADAPT[4:]), "only with --labels"),
        ((*ADAPT, "--recipe", "missing.yaml"), "missing.yaml"),
    ],
)
def test_requests_that_cannot_be_are_one_line(run: Command, arguments: tuple[str, ...], words: str) -> None:
    status, said = run(*arguments)
    assert (status, words in said, said.count("\n")) == (1, True, 1), said
