"""Settings of the target LM refuse what cannot hold."""

import re
from pathlib import Path
from typing import Any

import pytest

from airrep.errors import ConfigError
from airrep.lm.settings import FineTuneSettings, LmSettings, split_lm_settings


def test_the_defaults_are_the_papers() -> None:
    settings = FineTuneSettings()
    assert (settings.epochs, settings.batch_examples, settings.learning_rate) == (2, 32, 2e-5)


def test_a_folder_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lm").mkdir()
    monkeypatch.chdir(tmp_path)
    assert LmSettings(lm="lm").lm == str(tmp_path / "lm")
    assert LmSettings(lm="owner/name").lm == "owner/name"
    assert LmSettings.given({"lm": tmp_path / "lm"}).lm == str(tmp_path / "lm")


def test_a_path_is_taken_as_its_text(tmp_path: Path) -> None:
    given: dict[str, Any] = {"lm": tmp_path}
    assert LmSettings.of(given) == LmSettings(lm=str(tmp_path))


@pytest.mark.parametrize("template", ["{prompt}", "{response} {prompt}", "{prompt} {response} {response}", "chats"])
def test_a_template_needs_prompt_and_response_in_this_order(template: str) -> None:
    with pytest.raises(ConfigError, match=r"^lm: template=.*\{prompt\} and then \{response\}, once each"):
        LmSettings.of({"lm": "owner/name", "template": template}, "lm")


@pytest.mark.parametrize(
    "values",
    [
        {"epochs": 0}, {"batch_examples": 0}, {"learning_rate": 0}, {"learning_rate": float("inf")},
        {"betas": (0.9, 1.0)}, {"schedule": "square"}, {"lora_rank": 0}, {"clip": 0}, {"momentum": 0.9},
    ],
)  # fmt: skip
def test_values_that_cannot_hold_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="^fine-tune: "):
        FineTuneSettings.of(values, "fine-tune")


def test_settings_of_the_lm_and_of_the_fine_tuning_are_told_apart() -> None:
    given = {"epochs": 1, "batch_tokens": 64, "template": "plain", "clip": None}
    assert split_lm_settings(given) == ({"batch_tokens": 64, "template": "plain"}, {"epochs": 1, "clip": None})


@pytest.mark.parametrize("name", ["lm", "batch"])
def test_a_name_of_neither_is_refused_with_the_names_of_both(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_lm_settings({"epochs": 1, name: 0.9})
    message = str(caught.value)
    assert message.startswith(f"settings: '{name}' is not a setting here; expected one of ")
    assert name == "lm" or {"batch_examples", "batch_tokens"} <= set(re.findall(r"\w+", message))
    assert len(message.split()) <= 35


def test_rates_rise_then_stay_or_fall_to_zero() -> None:
    constant = FineTuneSettings(learning_rate=1.0, warmup_steps=2)
    assert [constant.rate_at(step, 6) for step in range(6)] == [0, 0.5, 1, 1, 1, 1]
    linear = FineTuneSettings(learning_rate=1.0, warmup_steps=2, schedule="linear")
    assert [linear.rate_at(step, 6) for step in range(6)] == [0, 0.5, 1, 0.75, 0.5, 0.25]
    assert FineTuneSettings(learning_rate=3.0).rate_at(0, 1) == 3.0
    cosine = FineTuneSettings(learning_rate=1.0, schedule="cosine", warmup_ratio=0.4)
    assert [cosine.rate_at(n, 6) for n in range(6)] == pytest.approx([0, 0.5, 1, 0.853553, 0.5, 0.146447], abs=1e-6)
    assert cosine.rate_at(0, 2) == 1.0  # a short fine-tune has no warm-up
