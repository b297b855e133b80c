"""The learning commands, from files to a trained encoder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from worlds.tiny_bert import tiny_folder
from worlds.tiny_lms import tiny_lm
from worlds.trackers import write_trackers

pytestmark = pytest.mark.slow


def _run(*arguments: object, folder: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "airrep", *map(str, arguments)]
    trackers = os.pathsep.join(filter(None, (str(Path(str(folder)) / "trackers"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": trackers}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    tiny_folder(folder / "start", ((16, 16, True),))
    tiny_lm(folder / "lm")
    letters = "abcdefghijklmnopqrstuvwxyz"
    lines = (
        {
            "prompt": f"{letters[row % 26]} {letters[row * 7 % 26]} answer{' :' * (row // 26)}",
            "response": letters[row % 5],
        }
        for row in range(100)
    )
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder


def test_the_next_command_names_the_queries_and_what_removals_are_for(folder):
    (folder / "asked.jsonl").write_text("".join((folder / "data.jsonl").read_text().splitlines(keepends=True)[60:70]))
    (folder / "pool.jsonl").write_text("".join((folder / "data.jsonl").read_text().splitlines(keepends=True)[:20]))
    sizes = ["--instances", 1, "--train-count", 8, "--query-count", 4, "--removals", 3]
    sampled = _run("sample", "pool.jsonl", "--queries", "asked.jsonl", "--out", "left-out", *sizes, folder=folder)
    following = sampled.stderr.strip().split("next: airrep ")[1]
    assert following == "label left-out pool.jsonl --queries asked.jsonl --lm MODEL --out LABELS"
    forgotten = _run("label", "left-out", "pool.jsonl", "--lm", "lm", "--out", "effects", folder=folder)
    assert "was drawn from another queries corpus" in forgotten.stderr
    assert "as DATA or with --queries" in forgotten.stderr
    said = following.replace("MODEL", "lm").replace("LABELS", "effects").split()
    labelled = _run(*said, "--set", "epochs=1", folder=folder)
    assert labelled.returncode == 0, labelled.stderr
    following = labelled.stderr.strip().split("next: airrep ")[1]
    assert following == "evaluate INDEX --labels effects --data pool.jsonl --data asked.jsonl"
    indexed = _run("index", "pool.jsonl", "--method", "gte", "--encoder", "start", "--out", "words", folder=folder)
    assert indexed.returncode == 0, indexed.stderr
    judged = _run(*following.replace("INDEX", "words").split(), folder=folder)
    assert judged.returncode == 0, judged.stderr
    assert "4 queries and 3 removals" in judged.stdout


def test_sample_label_and_train_make_an_encoder_that_an_index_uses(folder):
    sizes = ["--instances", 3, "--held-out", 2, "--train-count", 20, "--query-count", 5, "--subsets", 4, "--size", 5]
    sampled = _run("sample", "data.jsonl", "--out", "subsets", *sizes, folder=folder)
    assert sampled.returncode == 0, sampled.stderr
    assert "12 subsets of 5, so 12 fine-tunes with one seed; next: airrep label subsets data.jsonl" in sampled.stderr
    tuning = ["--set", "epochs=1", "--set", "learning_rate=1e-2", "--workers", 2, "--track", "trackio"]
    logged = write_trackers(folder / "trackers")
    labelled = _run("label", "subsets", "data.jsonl", "--lm", "lm", "--out", "labels", *tuning, folder=folder)
    assert labelled.returncode == 0, labelled.stderr
    assert "15 of 15 done" in labelled.stderr
    entries = [json.loads(line) for line in logged.read_text().splitlines()]
    assert [one[0] for one in entries] == ["init", *["log"] * 15, "finish"]
    assert entries[0][1:3] == ["airrep", "label labels"]
    assert [one[1]["fine-tunes/done"] for one in entries[1:-1]] == list(range(1, 16))
    chosen = ["--start", "start", "--set", "train_layers=1", "--steps", 4, "--set", "warmup_steps=1"]
    parts = ["labels#2", "--held-out", "labels#0", "--test", "labels#1", "--data", "data.jsonl", "--out", "encoder"]
    trained = _run("train", *parts, *chosen, "--track", "mlflow", folder=folder)
    assert trained.returncode == 0, trained.stderr
    entries = [json.loads(line) for line in logged.read_text().splitlines()][len(entries) :]
    assert entries[-1] == ["finish", "FINISHED"]
    steps = [one[1] for one in entries if one[0] == "log"]
    assert [one["training/step"] for one in steps if "training/loss" in one] == [1, 2, 3, 4]
    assert any("training/held_out_lds" in one for one in steps)
    assert "held-out" in trained.stdout
    assert "test" in trained.stdout
    card = json.loads((folder / "encoder" / "airrep.json").read_text())
    learnt = card["training"]["best_step"] > 0
    assert card["trained_for_attribution"] is learnt
    assert card["trained_group_sizes"] == ([5, 5] if learnt else None)
    assert ("trained; next: airrep index" in trained.stderr) is learnt
    indexed = _run("index", "data.jsonl", "--encoder", "encoder", "--out", "index", folder=folder)
    assert indexed.returncode == 0, indexed.stderr
    for made in ("subsets", "labels", "encoder", "index"):
        shown = _run("show", made, "--verify", folder=folder)
        assert shown.returncode == 0, shown.stderr


def test_labels_of_the_same_examples_cannot_judge(folder):
    parts = ["labels#2", "--held-out", "labels#2", "--data", "data.jsonl", "--out", "unfair", "--start", "start"]
    refused = _run("train", *parts, folder=folder)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("airrep: error: ")


def test_flags_of_ray_are_refused_without_it(folder):
    refused = _run("label", "subsets", "data.jsonl", "--lm", "lm", "--out", "x", "--set", "gpus=1", folder=folder)
    assert refused.returncode == 1
    assert "are only for Ray" in refused.stderr


def test_adapt_refuses_a_budget_that_is_none(folder):
    refused = _run("adapt", "data.jsonl", "--lm", "lm", "--out", "x", "--budget", "soon", folder=folder)
    assert refused.returncode == 1
    assert "budget 'soon': is not a duration" in refused.stderr


def test_warmup_makes_an_lm_that_is_found_again_and_serves_as_one(folder):
    pytest.importorskip("peft")
    arguments = ["warmup", "data.jsonl", "--lm", "lm", "--out", "warm", "--count", 60, "--set", "checkpoints=2"]
    tuning = ["--set", "learning_rate=1e-2", "--set", "lora_rank=2", "--set", "batch_tokens=512"]
    made = _run(*arguments, *tuning, folder=folder)
    assert made.returncode == 0, made.stderr
    assert "nats per response token, in 4 steps" in made.stdout
    told = made.stderr.splitlines()[-1]  # a slow machine tells how far it is before
    assert told == "warm: warmed up; next: airrep index data.jsonl --method less --lm warm --out INDEX"
    again = _run(*arguments, *tuning, "--json", folder=folder)
    assert again.returncode == 0, again.stderr
    assert again.stderr.startswith("warm: was finished already; next: ")
    found = json.loads(again.stdout)
    assert found["steps"] == 4
    assert found["last_loss"] < found["first_loss"]
    assert found["adapter"] == "warm/adapter"
    assert [Path(each["path"]).name for each in found["checkpoints"]] == [
        "step-000002.safetensors",
        "step-000004.safetensors",
    ]
    other = _run(*arguments, "--set", "epochs=3", folder=folder)
    assert other.returncode == 1
    assert other.stderr.splitlines()[-1].startswith("airrep: error: warm: holds a warm-up made with another fine_tune.")
    shown = _run("show", "warm", "--verify", folder=folder)
    assert shown.returncode == 0, shown.stderr
    on = _run("warmup", "data.jsonl", "--lm", "warm", "--out", "warmer", "--count", 10, folder=folder)
    assert on.returncode == 0, on.stderr


def test_warmup_refuses_a_setting_that_nothing_has(folder):
    refused = _run("warmup", "data.jsonl", "--lm", "lm", "--out", "x", "--set", "rank=2", folder=folder)
    assert refused.returncode == 1
    assert "settings: 'rank' is not a setting here" in refused.stderr
