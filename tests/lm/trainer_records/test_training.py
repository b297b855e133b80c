"""Settings of fine-tunes are read from what trainers leave, as they wrote it."""

import json
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import TrainingArguments

from airrep.errors import ConfigError
from airrep.lm.settings import FineTuneSettings
from airrep.lm.trainer_records.training import TrainingRead, read_training, training_beside

GIVEN: dict[str, Any] = {
    "learning_rate": 3e-4, "num_train_epochs": 4, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
    "lr_scheduler_type": "cosine", "weight_decay": 0.1, "adam_beta2": 0.95, "max_grad_norm": 0.5,
}  # fmt: skip
WANTED = FineTuneSettings(
    learning_rate=3e-4,
    epochs=4,
    batch_examples=8,
    schedule="cosine",
    weight_decay=0.1,
    betas=(0.9, 0.95),
    clip=0.5,
    warmup_ratio=0.1,
)
LORA = {"lora_rank": 16, "lora_alpha": 32.0, "lora_targets": ("q_proj", "v_proj")}


def written(folder: Path, name: str, content: str | dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder / name


def pickled(folder: Path, **changes: Any) -> Path:
    """Arguments as transformers' Trainer saves them."""
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {**GIVEN, "warmup_steps": 0.1, "use_cpu": True, **changes}
    torch.save(TrainingArguments(output_dir=str(folder), report_to=[], **values), folder / "training_args.bin")
    return folder / "training_args.bin"


def state(folder: Path, **changes: Any) -> Path:
    steps = 40
    rates = {
        step: FineTuneSettings(learning_rate=2e-3, schedule="linear").rate_at(step - 1, steps) for step in (1, 20, 40)
    }
    lines = [{"step": step, "learning_rate": rate, "loss": 2.0} for step, rate in rates.items()]
    content = {"log_history": [*lines, {"step": 40, "train_loss": 2.0}], "max_steps": steps, "global_step": steps}
    return written(folder, "trainer_state.json", content | {"epoch": 2.0, "train_batch_size": 4} | changes)


def adapters(folder: Path, **changes: Any) -> None:
    LoraConfig(r=16, lora_alpha=32, target_modules=["v_proj", "q_proj"], **changes).save_pretrained(folder)


def test_enumerations_are_read_as_each_python_pickles_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11.0 to 3.11.3 write a member by its name, others by its value."""
    read = read_training(pickled(tmp_path / "by value", lr_scheduler_type="cosine"))
    monkeypatch.setattr(Enum, "__reduce_ex__", lambda member, _: (getattr, (type(member), member.name)))
    by_name = read_training(pickled(tmp_path / "by name", lr_scheduler_type="cosine"))
    assert (by_name.fine_tune, by_name.unfollowed) == (read.fine_tune, read.unfollowed)
    assert read.fine_tune.schedule == "cosine"


def test_pickled_arguments_are_read_from_the_file_its_folder_and_the_last_checkpoint(tmp_path: Path) -> None:
    file = pickled(tmp_path / "out" / "checkpoint-10")
    pickled(tmp_path / "out" / "checkpoint-9", learning_rate=1.0)
    for path in (file, file.parent, tmp_path / "out"):
        read = read_training(path)
        assert read.fine_tune == WANTED
        assert read.batch == "4 x 2 accumulation"
        assert read.path == file
    pickled(tmp_path / "up")
    (tmp_path / "up" / "checkpoint-3").mkdir()
    assert read_training(tmp_path / "up" / "checkpoint-3").fine_tune == WANTED


def test_a_logged_rate_above_that_of_the_arguments_was_the_rate_of_the_run(tmp_path: Path) -> None:
    """A resumed run trains at the rate of its checkpoint, whatever rate its own arguments give."""
    pickled(tmp_path, learning_rate=1e-5)
    state(tmp_path)  # logs rates up to 2e-3
    read = read_training(tmp_path)
    assert read.fine_tune.learning_rate == 2e-3
    assert "learning_rate 1e-05 (0.002 in the log)" in read.sentence
    pickled(tmp_path, learning_rate=3e-3)  # the log may lack the first steps
    read = read_training(tmp_path)
    assert read.fine_tune.learning_rate == 3e-3
    assert "learning_rate" not in " ".join(read.unfollowed)


def test_nothing_of_a_pickle_runs(tmp_path: Path) -> None:
    made = tmp_path / "made"

    class Bad:
        def __init__(self, call: Any, *arguments: Any) -> None:
            self.call, self.arguments = call, arguments

        def __reduce__(self) -> Any:
            return self.call, self.arguments

    import os

    for number, bad in enumerate((Bad(os.mkdir, str(made)), Bad(exec, f"import os; os.mkdir({str(made)!r})"))):
        path = tmp_path / f"{number}.bin"
        torch.save({"learning_rate": bad} if number else bad, path)
        with pytest.raises(ConfigError, match=str(path)):
            read_training(path)
    assert not made.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("args.json", GIVEN | {"tuner_type": "full", "warmup_ratio": 0.1, "global_world_size": 1}),
        ("training_args.json", GIVEN | {"warmup_steps": 0.1}),
        (
            "args.json",
            GIVEN
            | {"tuner_type": "full", "warmup_ratio": 0.1, "per_device_train_batch_size": 1, "global_world_size": 4},
        ),
        (
            "run.yml",
            (
                "base_model: b\nlearning_rate: 3e-4\nnum_epochs: 4\nmicro_batch_size: 4\n"
                "gradient_accumulation_steps: 2\nweight_decay: 0.1\nadam_beta2: 0.95\nmax_grad_norm: 0.5\n"
                "warmup_ratio: 0.1\n"
            ),
        ),
        (
            "sft.yaml",
            (
                "model_name_or_path: b\nstage: sft\nfinetuning_type: full\nlearning_rate: 3.0e-4\n"
                "num_train_epochs: 4.0\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 2\n"
                "lr_scheduler_type: cosine\n"
                "weight_decay: 0.1\nadam_beta2: 0.95\nmax_grad_norm: 0.5\nwarmup_ratio: 0.1\n"
            ),
        ),
        (
            "trl.yaml",
            (
                "model_name_or_path: b\nlearning_rate: 3e-4\nnum_train_epochs: 4\nper_device_train_batch_size: 4\n"
                "gradient_accumulation_steps: 2\nlr_scheduler_type: cosine\nweight_decay: 0.1\nadam_beta2: 0.95\n"
                "max_grad_norm: 0.5\nwarmup_steps: 0.1\n"
            ),
        ),
    ],
)
def test_each_trainers_config_says_the_same(tmp_path: Path, name: str, content: Any) -> None:
    path = written(tmp_path, name, content)
    written(tmp_path, "another.yaml", "- a list: {{ and a template }}")
    assert read_training(path).fine_tune == WANTED
    assert read_training(tmp_path).fine_tune == WANTED


@pytest.mark.parametrize(
    "content",
    [
        {"tuner_type": "lora", "lora_rank": 16, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]},
        {
            "base_model": "b",
            "adapter": "qlora",
            "lora_r": 16,
            "lora_alpha": 32,
            "lora_target_modules": ["v_proj", "q_proj"],
        },
        {"stage": "sft", "lora_rank": 16, "lora_target": "q_proj, v_proj"},
        {"use_peft": True, "lora_r": 16, "lora_alpha": 32, "lora_target_modules": ["q_proj", "v_proj"]},
        {"stage": "sft", "lora_rank": 16, "lora_alpha": 8, "use_rslora": True, "lora_target": "q_proj,v_proj"},
    ],
)
def test_low_rank_adapters_of_a_config_are_those_of_the_fine_tunes(tmp_path: Path, content: dict[str, Any]) -> None:
    tuning = read_training(written(tmp_path, "config.json", {"learning_rate": "1e-4", **content})).fine_tune
    assert tuning.model_dump(include=set(LORA)) == LORA


def test_a_config_of_trl_leaves_out_the_defaults_of_trl(tmp_path: Path) -> None:
    read = read_training(written(tmp_path, "sft.yaml", "dataset_name: d\nuse_peft: true\nnum_train_epochs: 2\n"))
    found = read.fine_tune
    assert (found.learning_rate, found.lora_rank, found.lora_alpha, found.lora_targets) == (2e-5, 16, 32, None)
    assert read.unfollowed[0].startswith("the target modules that peft chooses")
    assert "lora_dropout 0.05" in read.unfollowed
    named = "use_peft: true\nlora_r: 8\nlora_target_modules: [q_proj]\nlora_dropout: 0.0\nlearning_rate: 1.0"
    found = read_training(written(tmp_path, "named.yaml", named)).fine_tune
    assert (found.learning_rate, found.lora_rank, found.lora_alpha, found.lora_targets) == (1, 8, 32, ("q_proj",))
    whole = read_training(written(tmp_path, "whole.yaml", "dataset_name: d\nnum_train_epochs: 2\n"))
    assert (whole.fine_tune.learning_rate, whole.fine_tune.lora_rank, whole.unfollowed) == (2e-5, None, ())
    least = read_training(written(tmp_path, "least.yaml", "dataset_name: d\nuse_peft: true\nlearning_rate: null\n"))
    assert (least.fine_tune.learning_rate, least.fine_tune.lora_rank, least.fine_tune.epochs) == (2e-5, 16, 3)
    factory = "stage: sft\nmodel_name_or_path: b\ndatasets: d\nnum_train_epochs: 2\n"
    found = read_training(written(tmp_path, "factory.yaml", factory)).fine_tune
    assert (found.learning_rate, found.lora_rank, found.lora_alpha) == (5e-5, 8, 16)


def test_adapters_beside_arguments_count(tmp_path: Path) -> None:
    pickled(tmp_path)
    adapters(tmp_path, lora_dropout=0.05)
    read = read_training(tmp_path)
    assert read.fine_tune == WANTED.model_copy(update=LORA)
    assert read.unfollowed == ("lora_dropout 0.05",)
    adapters(tmp_path, use_rslora=True)
    assert read_training(tmp_path).fine_tune.lora_alpha == 32 * 4  # alpha / √16, as alpha' / 16


@pytest.mark.parametrize("target", ["all-linear", "all", None])
def test_adapters_on_all_linear_maps_have_no_names(tmp_path: Path, target: str | None) -> None:
    said = {"learning_rate": 1e-4, "tuner_type": "lora", "target_modules": target}
    assert read_training(written(tmp_path, "args.json", said)).fine_tune.lora_targets is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"neftune_noise_alpha": 5}, "neftune_noise_alpha 5"),
        ({"assistant_only_loss": True}, "the chat template that trl has for assistant_only_loss"),
        ({"packing": True}, "packing"),
        ({"loss_type": "dft"}, "loss_type dft"),
        ({"optim": "adamw_8bit"}, "optim adamw_8bit (AdamW here)"),
        ({"lr_scheduler_type": "inverse_sqrt"}, "lr_scheduler_type inverse_sqrt (linear here)"),
        ({"lr_scheduler_type": "cosine_with_restarts"}, "lr_scheduler_type cosine_with_restarts (cosine here)"),
        ({"num_train_epochs": 2.5}, "2.5 epochs (2 here)"),
        ({"max_steps": 500}, "max_steps 500 (1 epoch here)"),
        ({"warmup_steps": 20}, "warmup_steps 20 of an unknown number of steps"),
        ({"stage": "dpo"}, "stage dpo"),
        ({"stage": "sft", "finetuning_type": "freeze"}, "finetuning_type freeze (all weights here)"),
        ({"tuner_type": "lora", "target_modules": ["all-linear"], "use_dora": True}, "use_dora"),
        (
            {"tuner_type": "lora", "target_modules": "model.*(q|v)_proj"},
            "target_modules model.*(q|v)_proj (all linear maps here)",
        ),
        ({"cutoff_len": 512}, "a length of 512 (--set max_tokens=512)"),
    ],
)
def test_what_cannot_be_followed_is_named(tmp_path: Path, content: dict[str, Any], told: str) -> None:
    read = read_training(written(tmp_path, "args.json", {"learning_rate": 1e-4, **content}))
    assert told in read.unfollowed
    assert read.sentence.endswith(f"; not followed: {', '.join(read.unfollowed)}")


def test_the_loss_of_other_trainers_is_named(tmp_path: Path) -> None:
    assert not read_training(pickled(tmp_path)).unfollowed


def test_a_state_alone_tells_the_highest_rate_the_fall_and_the_epochs(tmp_path: Path) -> None:
    read = read_training(state(tmp_path))
    assert read.fine_tune == FineTuneSettings(learning_rate=2e-3, epochs=2, batch_examples=4, schedule="linear")
    assert "without accumulation" in read.sentence
    assert read_training(state(tmp_path, epoch=1.0, global_step=20)).fine_tune.epochs == 2  # of the whole run


def test_a_state_tells_how_long_a_warm_up_in_steps_and_a_run_in_steps_are(tmp_path: Path) -> None:
    pickled(tmp_path, warmup_steps=4, max_steps=40, learning_rate=2e-3)
    state(tmp_path)
    assert read_training(tmp_path).fine_tune == WANTED.model_copy(update={"epochs": 2, "learning_rate": 2e-3})


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("trainer_state.json", {"log_history": [{"step": 1, "loss": 2.0}]}, "does not contain the learning rate"),
        ("trainer_state.json", {"log_history": None}, "does not contain the learning rate"),
        ("trainer_state.json", "{", "cannot be read as JSON"),
        ("training_args.bin", "no pickle", "cannot be read as training arguments"),
        ("config.json", {"model_type": "llama"}, "is not a file that a trainer wrote"),
        ("notes.txt", "learning_rate: 1", "is not a file that a trainer wrote"),
        ("run.yaml", "learning_rate: fast", "learning_rate='fast' is not a number"),
        ("run.yaml", "learning_rate: [1]", "is not a number"),
        ("run.yaml", "learning_rate: true", "is not a number"),
        ("run.yaml", "learning_rate: .nan", "learning_rate=nan"),
        ("run.yaml", "learning_rate: -1", "learning_rate=-1"),
        ("run.yaml", "learning_rate: 1\nper_device_train_batch_size: 0", "batch_examples=0"),
        ("run.yaml", "learning_rate: 1\nnum_train_epochs: .inf", "num_train_epochs"),
        ("run.yaml", "a: [", "is not valid YAML"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path: Path, name: str, content: Any, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_training(written(tmp_path, name, content))
    assert told in str(error.value)
    assert str(tmp_path / name) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_without_a_training_names_what_is_looked_for(tmp_path: Path) -> None:
    adapters(tmp_path / "lora")
    for folder in (tmp_path, tmp_path / "lora"):
        with pytest.raises(ConfigError, match=r"Give training_args.bin, trainer_state.json .* args.json"):
            read_training(folder)
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        read_training(tmp_path / "nowhere")


def test_what_lies_beside_an_lm_is_found(tmp_path: Path) -> None:
    assert training_beside("owner/name") is None
    assert training_beside(str(tmp_path)) is None
    adapters(tmp_path / "lora")
    found = training_beside(str(tmp_path / "lora"))
    assert found is not None
    assert dict(found.values) == LORA  # the rate is not known
    pickled(tmp_path / "out" / "checkpoint-5")
    adapters(tmp_path / "out" / "checkpoint-5")
    found = training_beside(str(tmp_path / "out"))
    assert found is not None
    assert found.fine_tune == WANTED.model_copy(update=LORA)


def test_it_is_had_in_python(tmp_path: Path) -> None:
    assert isinstance(read_training(pickled(tmp_path)), TrainingRead)
