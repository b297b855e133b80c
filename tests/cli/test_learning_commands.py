"""The learning commands, from files to a trained encoder."""

import json
from pathlib import Path

import pytest
from worlds.commands import Run, done, refused
from worlds.tiny_bert import tiny_folder
from worlds.tiny_lms import tiny_lm
from worlds.trackers import write_trackers

pytestmark = pytest.mark.slow


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Run:
    """A function that runs a command in the folder, where trackers may stand."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder / "trackers"))
    return lambda *arguments: run(*map(str, arguments))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    tiny_folder(folder / "start", ((16, 16, True),))
    tiny_lm(folder / "lm")
    letters = "abcdefghijklmnopqrstuvwxyz"
    prompts = (f"{letters[row % 26]} {letters[row * 7 % 26]} answer{' :' * (row // 26)}" for row in range(100))
    rows = ({"prompt": prompt, "response": letters[row % 5]} for row, prompt in enumerate(prompts))
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return folder


def test_the_next_command_names_the_queries_and_what_removals_are_for(run, folder):
    (folder / "asked.jsonl").write_text("".join((folder / "data.jsonl").read_text().splitlines(keepends=True)[60:70]))
    (folder / "pool.jsonl").write_text("".join((folder / "data.jsonl").read_text().splitlines(keepends=True)[:20]))
    sizes = ["--instances", 1, "--train-count", 8, "--query-count", 4, "--removals", 3]
    sampled = run("sample", "pool.jsonl", "--queries", "asked.jsonl", "--out", "left-out", *sizes)
    following = sampled.err.strip().split("next: airrep ")[1]
    assert following == "label left-out pool.jsonl --queries asked.jsonl --lm MODEL --out LABELS"
    forgotten = run("label", "left-out", "pool.jsonl", "--lm", "lm", "--out", "effects")
    assert "was drawn from other query data" in forgotten.err
    assert "as DATA or with --queries" in forgotten.err
    said = following.replace("MODEL", "lm").replace("LABELS", "effects").split()
    labelled = done(run(*said, "--set", "epochs=1"))
    following = labelled.err.strip().split("next: airrep ")[1]
    assert following == "evaluate INDEX --labels effects --data pool.jsonl --data asked.jsonl"
    done(run("index", "pool.jsonl", "--method", "gte", "--encoder", "start", "--out", "words"))
    judged = done(run(*following.replace("INDEX", "words").split()))
    assert "4 queries and 3 removals" in judged.out


def test_sample_label_and_train_make_an_encoder_that_an_index_uses(run, folder):
    sizes = ["--instances", 3, "--held-out", 2, "--train-count", 20, "--query-count", 5, "--subsets", 4, "--size", 5]
    sampled = done(run("sample", "data.jsonl", "--out", "subsets", *sizes))
    assert "12 subsets of 5, so 12 fine-tunes with one seed; next: airrep label subsets data.jsonl" in sampled.err
    tuning = ["--set", "epochs=1", "--set", "learning_rate=1e-2", "--workers", 2, "--track", "trackio"]
    logged = write_trackers(folder / "trackers")
    labelled = done(run("label", "subsets", "data.jsonl", "--lm", "lm", "--out", "labels", *tuning))
    assert "15 of 15 done" in labelled.err
    entries = [json.loads(line) for line in logged.read_text().splitlines()]
    assert [one[0] for one in entries] == ["init", *["log"] * 15, "finish"]
    assert entries[0][1:3] == ["airrep", "label labels"]
    assert [one[1]["fine-tunes/done"] for one in entries[1:-1]] == list(range(1, 16))
    chosen = ["--start", "start", "--set", "train_layers=1", "--steps", 4, "--set", "warmup_steps=1"]
    parts = ["labels#2", "--held-out", "labels#0", "--test", "labels#1", "--data", "data.jsonl", "--out", "encoder"]
    trained = done(run("train", *parts, *chosen, "--track", "mlflow"))
    entries = [json.loads(line) for line in logged.read_text().splitlines()][len(entries) :]
    assert entries[-1] == ["finish", "FINISHED"]
    steps = [one[1] for one in entries if one[0] == "log"]
    assert [one["training/step"] for one in steps if "training/loss" in one] == [1, 2, 3, 4]
    assert any("training/held_out_lds" in one for one in steps)
    assert "held-out" in trained.out
    assert "test" in trained.out
    card = json.loads((folder / "encoder" / "airrep.json").read_text())
    learnt = card["training"]["best_step"] > 0
    assert card["trained_for_attribution"] is learnt
    assert card["trained_group_sizes"] == ([5, 5] if learnt else None)
    assert ("trained; next: airrep index" in trained.err) is learnt
    done(run("index", "data.jsonl", "--encoder", "encoder", "--out", "index"))
    for made in ("subsets", "labels", "encoder", "index"):
        done(run("show", made, "--verify"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train labels#2 --held-out labels#2 --data data.jsonl --out unfair --start start", ""),
        ("label subsets data.jsonl --lm lm --out x --set gpus=1", "work only with Ray"),
        ("warmup data.jsonl --lm lm --out x --set rank=2", "settings: 'rank' is not a setting here"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(run, words, told):
    refused(run(*words.split()), told)


def test_adapt_refuses_a_budget_that_is_none(run):
    ran = run("adapt", "data.jsonl", "--lm", "lm", "--out", "x", "--budget", "soon")
    assert (ran.status, "budget 'soon': is not a duration" in ran.err) == (1, True)


def test_warmup_makes_an_lm_that_is_found_again_and_serves_as_one(run):
    pytest.importorskip("peft")
    arguments = ["warmup", "data.jsonl", "--lm", "lm", "--out", "warm", "--count", 60, "--set", "checkpoints=2"]
    tuning = ["--set", "learning_rate=1e-2", "--set", "lora_rank=2", "--set", "batch_tokens=512"]
    made = done(run(*arguments, *tuning))
    assert "nats per response token, steps: 4" in made.out
    told = made.err.splitlines()[-1]  # a slow machine tells how far it is before
    assert told == "warm: warmed up; next: airrep index data.jsonl --method less --lm warm --out INDEX"
    again = done(run(*arguments, *tuning, "--json"))
    assert again.err.startswith("warm: was finished already; next: ")
    found = json.loads(again.out)
    assert found["steps"] == 4
    assert found["last_loss"] < found["first_loss"]
    assert found["adapter"] == "warm/adapter"
    assert [Path(each["path"]).stem for each in found["checkpoints"]] == ["step-000002", "step-000004"]
    other = run(*arguments, "--set", "epochs=3")
    assert other.status == 1
    assert other.err.splitlines()[-1].startswith("airrep: error: warm: holds a warm-up made with another fine_tune.")
    done(run("show", "warm", "--verify"))
    done(run("warmup", "data.jsonl", "--lm", "warm", "--out", "warmer", "--count", 10))
