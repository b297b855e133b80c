"""A trainer's checkpoints and the learning rates between them."""

import json
from pathlib import Path

import pytest

from airrep.errors import ConfigError
from airrep.lm.folders.checkpoints import trainer_checkpoints


def run(folder: Path, steps: tuple[int, ...], rates: dict[int, float]) -> Path:
    """A trainer's output with checkpoints and a record of learning rates."""
    for step in steps:
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        history = [{"step": at, "learning_rate": rate, "loss": 1.0} for at, rate in rates.items() if at <= step]
        state = {"log_history": [*history, {"step": step, "train_runtime": 3}]}
        (folder / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps(state))
    return folder


def test_the_rate_of_a_checkpoint_is_the_mean_since_the_one_before(tmp_path: Path) -> None:
    out = run(tmp_path, (2, 4, 10), {1: 1.0, 2: 3.0, 4: 0.5, 7: 0.25, 10: 0.75})
    found = trainer_checkpoints(out)
    assert [(each.path.name, each.rate) for each in found] == [
        ("checkpoint-2", 2.0),
        ("checkpoint-4", 0.5),
        ("checkpoint-10", 0.5),
    ]
    assert trainer_checkpoints(out / "checkpoint-4") == found[:2]
    assert trainer_checkpoints(tmp_path / "checkpoint-2" / "nothing") == ()


def test_a_stretch_without_a_logged_rate_is_refused(tmp_path: Path) -> None:
    out = run(tmp_path, (2, 4), {2: 1.0})
    with pytest.raises(ConfigError, match=r"checkpoint-4: the trainer logged no learning rate between steps 2 and 4"):
        trainer_checkpoints(out)


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", '{"log_history": 3}', '{"log_history": [{"learning_rate": 1}]}', "[" * 100_000),
        '{"log_history": [{"step": 2, "learning_rate": "x"}]}',
        '{"log_history": [{"step": 2, "learning_rate": NaN}]}',
        '{"log_history": [{"step": "2", "learning_rate": 1}]}',
    ],
)
def test_a_damaged_record_is_refused_in_one_line(content: str, tmp_path: Path) -> None:
    out = run(tmp_path, (2,), {2: 1.0})
    (out / "checkpoint-2" / "trainer_state.json").write_text(content)
    with pytest.raises(ConfigError, match=r"trainer_state\.json: .*checkpoints=final\.$") as caught:
        trainer_checkpoints(out)
    assert "\n" not in str(caught.value)
