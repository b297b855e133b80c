"""What asks how training changes an LM reads it as it is before: adapters are left out, trained folders refused."""

import logging
from pathlib import Path

import pytest
from worlds.tiny_lms import tiny_lm, tiny_tokenizer, write_adapters

from airrep.errors import ConfigError
from airrep.lm.model import load_lm
from airrep.lm.settings import LmSettings

pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks for it
CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def named(lm: Path | str, **settings: object) -> LmSettings:
    return LmSettings.of({"lm": str(lm), "precision": "float32", "device": "cpu", **settings})


def test_adapters_are_left_out_and_it_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = tiny_lm(tmp_path / "base")
    write_adapters(base, tmp_path / "adapter")
    with caplog.at_level(logging.WARNING):
        before = named(tmp_path / "adapter").before()
    assert before.merged is False
    assert f"holds adapters. airrep reads the LM before training: only their base, {base} (" in caplog.text
    assert "--set merged=true" in caplog.text
    fingerprints = {load_lm(one).fingerprint for one in (before, named(base), named(base, merged=False))}
    assert len(fingerprints) == 1
    assert load_lm(named(tmp_path / "adapter")).fingerprint not in fingerprints
    caplog.clear()
    assert before.before() == before
    assert not caplog.text


def test_one_who_means_the_adapters_too_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_adapters(tiny_lm(tmp_path / "base"), tmp_path / "adapter")
    before = named(tmp_path / "adapter", merged=True).before()
    assert load_lm(before).fingerprint == load_lm(named(tmp_path / "adapter")).fingerprint
    assert not caplog.text


def test_the_base_is_read_with_the_template_that_was_trained_with(tmp_path: Path) -> None:
    """A base often has no chat template; its trainer put one beside the adapters."""
    write_adapters(tiny_lm(tmp_path / "base"), tmp_path / "adapter")
    tiny_tokenizer(chat=CHAT).save_pretrained(tmp_path / "adapter")
    lm, base = load_lm(named(tmp_path / "adapter").before()), load_lm(named(tmp_path / "base"))
    assert (lm.reading["template"], base.reading["template"]) == ("chat", "plain")
    own = dict(base.model.named_parameters())
    assert all(bool((weight == own[name]).all()) for name, weight in lm.model.named_parameters())


@pytest.mark.filterwarnings("ignore::UserWarning")  # peft takes a bias of its own for damage
@pytest.mark.parametrize(
    "kind", [{"alora_invocation_tokens": [40]}, {"lora_bias": True}, {"init_lora_weights": "olora"}]
)
def test_adapters_that_cannot_be_merged_are_left_out_too(kind: dict[str, object], tmp_path: Path) -> None:
    write_adapters(base := tiny_lm(tmp_path / "base"), tmp_path / "adapter", **kind)
    with pytest.raises(ConfigError, match=next(iter(kind)) if "init" not in next(iter(kind)) else "olora"):
        load_lm(named(tmp_path / "adapter"))
    assert load_lm(named(tmp_path / "adapter").before()).fingerprint == load_lm(named(base)).fingerprint


@pytest.mark.parametrize(
    "left",
    ["trainer_state.json", "training_args.bin", "optimizer.pt", "optimizer_0.bin", "scheduler.pt", "record.json"],
)
def test_a_whole_lm_that_a_trainer_wrote_is_refused_until_it_is_confirmed(left: str, tmp_path: Path) -> None:
    folder = Path(tiny_lm(tmp_path / "lm"))
    assert named(folder).before() == named(folder)
    (folder / left).write_bytes(b"")
    with pytest.raises(ConfigError) as caught:
        named(folder).before()
    assert str(caught.value) == (
        f"lm {folder}: a trainer left {left} in its folder, so this seems to be the LM after training. "
        "Give the LM before training, or keep this LM with --set merged=true"
    )
    assert named(folder, merged=True).before() == named(folder, merged=True)


def test_checkpoints_tell_too_and_a_model_card_names_the_one_before(tmp_path: Path) -> None:
    folder = Path(tiny_lm(tmp_path / "out"))
    (folder / "checkpoint-9").mkdir()
    (folder / "README.md").write_text("---\nlibrary_name: peft\nbase_model: some/base\n---\n")
    told = r"left checkpoint-9 in.*before training \(some/base, as its README\.md says\)"
    with pytest.raises(ConfigError, match=told):
        named(folder).before()


def test_adapters_of_a_checkpoint_are_left_out(tmp_path: Path) -> None:
    base = tiny_lm(tmp_path / "base")
    write_adapters(base, tmp_path / "out" / "checkpoint-7")
    (tmp_path / "out" / "checkpoint-7" / "trainer_state.json").write_text("{}")
    assert str(named(tmp_path / "out").before().find().folder) == base
