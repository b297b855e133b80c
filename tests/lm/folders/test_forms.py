"""The files of an LM are found in every form that people have theirs in."""

import json
import shutil
from pathlib import Path

import pytest
from worlds.tiny_lms import tiny_lm, tiny_network, tiny_tokenizer

from airrep.errors import ConfigError
from airrep.lm.folders.forms import LmFiles, find_lm, settled_name, trainer_checkpoints, weights_digest
from airrep.lm.settings import LmSettings


def adapters(folder: Path, base: object, **config: object) -> Path:
    """A folder of adapters without numbers, as far as finding it goes."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "base_model_name_or_path": base, **config})
    )
    (folder / "adapter_model.safetensors").write_bytes(b"numbers")
    return folder


def refusal(name: Path | str, base: str | None = None) -> str:
    """Why a folder is refused, without its name."""
    with pytest.raises(ConfigError) as caught:
        find_lm(str(name), base=base)
    message = str(caught.value)
    assert message.startswith(f"lm {name}")
    assert "\n" not in message
    assert message.isprintable()
    return message.removeprefix(f"lm {name}")


def test_a_whole_lm_has_all_in_its_folder(tmp_path: Path) -> None:
    folder = Path(tiny_lm(tmp_path / "lm"))
    assert find_lm(str(folder)) == LmFiles(str(folder), folder, folder, folder)
    assert refusal(folder, base="other") == ": is a complete LM, not adapters, so it has no base. Remove base=other."


@pytest.mark.parametrize("named", ["absolute", "../base", "base of the working directory"])
def test_adapters_find_their_base(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Path(tiny_lm(tmp_path / "base"))
    monkeypatch.chdir(tmp_path)
    text = {"absolute": str(base), "../base": "../base"}.get(named, "base")
    folder = adapters(tmp_path / "adapter", text)
    found = find_lm(str(folder))
    assert (found.folder, found.adapter) == (folder, folder)
    assert found.weights.resolve() == found.tokenizer.resolve() == base


def test_a_base_that_has_moved_is_told_with_the_way_out(tmp_path: Path) -> None:
    base = Path(tiny_lm(tmp_path / "base"))
    folder = adapters(tmp_path / "adapter", str(tmp_path / "gone"))
    assert refusal(folder) == (
        f": its adapters' base {tmp_path / 'gone'} cannot be used: there is no such folder. "
        "Say where the base is: --set base=MODEL"
    )
    assert find_lm(str(folder), base=str(base)).weights == base
    assert "there is no such folder" in refusal(folder, base=str(tmp_path / "neither"))


@pytest.mark.parametrize("base", [None, 3, "", ["x"]])
def test_adapters_that_name_no_base_are_told(base: object, tmp_path: Path) -> None:
    assert "does not name the base LM (base_model_name_or_path)" in refusal(adapters(tmp_path / "adapter", base))


@pytest.mark.parametrize("base", ["\x1b[31mred\n\0", "x" * 2**20, "../" * 3000, "a/b/c/d"])
def test_hostile_names_of_a_base_are_told_in_one_printable_line(base: str, tmp_path: Path) -> None:
    message = refusal(adapters(tmp_path / "adapter", base))
    assert "--set base=MODEL" in message
    assert len(message) < 1000


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b'"text"', b"[" * 100_000, b"{}" + b" " * 2**23])
def test_a_damaged_adapter_config_is_told(content: bytes, tmp_path: Path) -> None:
    folder = adapters(tmp_path / "adapter", "base")
    (folder / "adapter_config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"adapter_config\.json: (cannot be read|is not a JSON object)"):
        find_lm(str(folder))


def test_pickled_adapters_are_never_loaded(tmp_path: Path) -> None:
    folder = adapters(tmp_path / "adapter", tiny_lm(tmp_path / "base"))
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    assert "no adapter_model.safetensors (pickled adapters are never loaded)" in refusal(folder)


def test_a_folder_with_a_whole_lm_and_adapters_is_refused(tmp_path: Path) -> None:
    base = tiny_lm(tmp_path / "base")
    folder = adapters(tmp_path / "adapter", base)
    (folder / "moments.safetensors").write_bytes(b"")  # `airrep warmup` puts these beside adapters
    assert find_lm(str(folder)).adapter == folder
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(Path(base) / name, folder / name)
    assert refusal(folder).startswith(": holds both a complete LM and adapters")


def test_adapters_on_adapters_are_refused(tmp_path: Path) -> None:
    first = adapters(tmp_path / "first", tiny_lm(tmp_path / "base"))
    for folder in (adapters(tmp_path / "second", str(first)), adapters(tmp_path / "itself", "../itself")):
        assert "holds adapters too, not a complete LM" in refusal(folder)


def test_code_of_a_base_is_refused(tmp_path: Path) -> None:
    base = Path(tiny_lm(tmp_path / "base"))
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModelForCausalLM": "code.Model"}}))
    with pytest.raises(ConfigError, match="contains program code"):
        find_lm(str(adapters(tmp_path / "adapter", str(base))))


def test_a_trainers_folder_stands_for_its_last_checkpoint(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        tiny_lm(tmp_path / "out" / f"checkpoint-{step}", seed=step)
    (tmp_path / "out" / "checkpoint-best").mkdir()
    (tmp_path / "out" / "checkpoint-200").write_text("a file")
    last = tmp_path / "out" / "checkpoint-100"
    assert find_lm(str(tmp_path / "out")).weights == last
    assert settled_name(str(tmp_path / "out")) == LmSettings(lm=str(tmp_path / "out")).lm == str(last)
    tiny_lm(tmp_path / "out")  # the trainer's last save: the whole LM counts
    assert find_lm(str(tmp_path / "out")).weights == tmp_path / "out"


def test_the_only_adapters_of_a_folder_are_that_lm_and_several_are_named(tmp_path: Path) -> None:
    """peft writes adapters that have a name into a subfolder of it, a trainer those into its checkpoints."""
    base = Path(tiny_lm(tmp_path / "base"))
    mine = adapters(tmp_path / "out" / "checkpoint-3" / "mine", str(base))
    tiny_tokenizer().save_pretrained(tmp_path / "out")
    found = find_lm(str(tmp_path / "out"))
    assert (found.adapter, found.weights, found.tokenizer) == (mine, base, tmp_path / "out")
    assert settled_name(str(tmp_path / "out" / "checkpoint-3")) == str(mine)
    for name in ("a", "b"):
        adapters(tmp_path / "two" / name, str(base))
    assert refusal(tmp_path / "two") == (
        f": holds 2 adapters (a, b), each in its own folder. Choose one of them: --lm {tmp_path / 'two' / 'a'}"
    )
    adapters(tmp_path / "many" / "default", str(base)).joinpath("adapter_config.json").replace(
        tmp_path / "many" / "adapter_config.json"
    )
    assert "no adapter_model.safetensors" in refusal(tmp_path / "many")  # what lies in the folder itself counts


def test_a_checkpoint_takes_the_tokenizer_around_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "out" / "checkpoint-5"
    tiny_network().save_pretrained(checkpoint)
    assert refusal(checkpoint) == (
        ": there is no tokenizer.json in this folder or its parent. Save the tokenizer there: "
        f"tokenizer.save_pretrained({str(tmp_path / 'out')!r})"
    )
    tiny_tokenizer().save_pretrained(tmp_path / "out")
    found = find_lm(str(checkpoint))
    assert found.tokenizer == tmp_path / "out"
    assert {"model.safetensors", "config.json", "tokenizer/tokenizer.json"} <= found.digests().keys()


def test_digests_cover_adapters_base_and_tokenizer_but_not_where_the_base_lies(tmp_path: Path) -> None:
    base = Path(tiny_lm(tmp_path / "base"))
    folder = adapters(tmp_path / "adapter", str(base), r=2)
    first = find_lm(str(folder)).digests()
    assert {"adapter_config.json", "adapter_model.safetensors", "base/model.safetensors", "base/tokenizer.json"} <= (
        first.keys()
    )
    base.rename(tmp_path / "moved")
    assert find_lm(str(folder), base=str(tmp_path / "moved")).digests() == first
    moved = adapters(tmp_path / "other", str(tmp_path / "moved"), r=2)
    assert find_lm(str(moved)).digests() == first
    assert weights_digest(moved) == weights_digest(folder)
    changes = {
        moved / "adapter_model.safetensors": b"others",
        tmp_path / "moved" / "model.safetensors": b"others",
        tmp_path / "moved" / "tokenizer.json": b"{}",
    }
    seen = [first]
    for path, content in changes.items():
        path.write_bytes(content)
        found = find_lm(str(moved)).digests()
        assert found not in seen
        seen.append(found)


def test_an_id_on_the_hub_may_be_one_of_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {"some/base": Path(tiny_lm(tmp_path / "base"))}
    folders["some/adapter"] = adapters(tmp_path / "adapter", "some/base")
    asked: list[str] = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.extend(allow_patterns)
        return str(folders[name])

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert find_lm("some/adapter").weights == folders["some/base"]
    assert "adapter_config.json" in asked
    assert not {"*", "*.bin", "*.py", "*.pt", "*.json"} & set(asked)


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
    rates = [(each.path.name, each.rate) for each in found]
    assert rates == [("checkpoint-2", 2.0), ("checkpoint-4", 0.5), ("checkpoint-10", 0.5)]
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
