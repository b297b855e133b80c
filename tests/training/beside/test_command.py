"""``airrep train --beside`` from the command line, and the index that its recipe makes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from worlds.commands import runner
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
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command line among data, labels of two instances and a tiny encoder: status, and what it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("airrep.training.run.RESAMPLES", 40)
    data = Corpus.from_examples(
        Example(f"{'abcdefgh'[row % 8]} e{row}", f"{'uvwxyz'[row % 6]} {'ijklm'[row % 5]}", f"e{row}")
        for row in range(120)
    )
    Path("data.jsonl").write_text("".join(json.dumps(example.to_dict()) + "\n" for example in data))
    sizes = {"instances": 2, "train_count": 24, "query_count": 4, "subsets": 12, "size": 6, "held_out": 1}
    label(sample(data, "plan", SamplingSettings(**sizes)), data, None, ToyWorld(), FINE_TUNE, Path("labels"))
    tiny_folder(Path("tiny"), ((16, 16, True),))

    plain = runner(capsys, monkeypatch)

    def run(*arguments: str) -> tuple[int, str]:
        ran = plain(*arguments)
        return ran.status, ran.out + ran.err

    return run


def test_an_index_of_the_recipe_is_the_next_step(run: Command) -> None:
    Path("recipe.yaml").write_text(
        "- {method: ngram, settings: {orders: [1]}}\n- {method: ngram, settings: {view: prompt}}\n- {method: airrep}\n"
    )
    status, said = run(*TRAIN, "--beside", "recipe.yaml", "--out", "encoder")
    assert status == 0, said
    assert "of the given channels alone" in said
    assert "airrep index DATA --method channels --set channels=encoder/channels.yaml --out INDEX" in said
    index = ("index", "data.jsonl", "--method", "channels", "--set", "channels=encoder/channels.yaml", "--out", "index")
    status, said = run(*index)
    assert status == 0, said
    status, said = run("top", "index", "data.jsonl", "-k", "2")
    assert status == 0, said
    assert run("show", "encoder", "--verify")[0] == 0


def test_without_others_the_view_is_told(run: Command) -> None:
    status, said = run(*TRAIN, "--set", "learning_rate=3e-2", "--set", "evaluate_every=1", "--out", "encoder")
    assert status == 0, said
    training = json.loads(Path("encoder/airrep.json").read_text())["training"]
    assert training["settings"]["view"] == "response"
    assert "set view=response wherever it is used" in Path("encoder/README.md").read_text()
    assert training["best_step"] == 0 or "--encoder encoder --set view=response --out INDEX" in said


def test_counts_teach_the_encoder(run: Command) -> None:
    assert run("index", "data.jsonl", "--method", "ngram", "--out", "counts")[0] == 0
    teacher = ("--teacher", "counts", "--teacher-sizes", "1,6", "--teacher-instances", "2", "--teacher-steps", "4")
    status, said = run(*TRAIN, *teacher, "--set", "teacher_query_count=9", "--out", "encoder")
    assert status == 0, said
    teacher_of = json.loads(Path("encoder/airrep.json").read_text())["training"]["teacher"]
    assert (teacher_of["method"], teacher_of["pool"]) == ("ngram", "ngram-lm")


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("- method: airrep\n", "recipe.yaml: has no channel but encoders"),
        ("- method: nothing\n", "nothing"),
        ("channels: 3\n", "is no list of channels"),
    ],
)
def test_other_recipes_are_refused_in_one_line(run: Command, recipe: str, words: str) -> None:
    Path("recipe.yaml").write_text(recipe)
    status, said = run(*TRAIN, "--beside", "recipe.yaml", "--out", "encoder")
    assert status == 1
    assert words in said
    assert said.count("\n") == 1
    assert not Path("encoder").exists()
