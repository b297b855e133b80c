"""A warm-up is an LM, made once, found again, and never half."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from worlds.old_chats import conversations_as_texts, make_chats
from worlds.tiny_lms import CHAT, some_examples, tiny_lm, tiny_tokenizer

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError, DataError, TrainingError
from airrep.lm.folders.forms import find_lm
from airrep.lm.model import load_lm
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import Warmup, check_after, checkpoints_of, open_warmup, warm_up
from airrep.runtime.artifacts import partial_path, read_manifest
from airrep.runtime.seeding import stream_seed

FAST = FineTuneSettings(learning_rate=1e-2, batch_examples=5)
LORA = FAST.model_copy(update={"lora_rank": 2})


@pytest.fixture
def train() -> Corpus:
    """Short examples."""
    return Corpus.from_examples(Example(f"why {each.prompt}", each.response, each.id) for each in some_examples(20))


@pytest.fixture
def base(tmp_path: Path) -> str:
    """The folder of a tiny LM."""
    return tiny_lm(tmp_path / "lm")


def settings(folder: str | Path, **changes: Any) -> LmSettings:
    """Of an LM on the CPU."""
    return LmSettings.of({"lm": str(folder), "precision": "float32", "device": "cpu", **changes})


def test_a_warm_up_is_an_lm_with_the_weights_of_the_same_fine_tune(base: str, train: Corpus, tmp_path: Path) -> None:
    warmup = warm_up(train, tmp_path / "warm", settings(base), FAST, seed=3)
    lm = load_lm(settings(base))
    report = lm.fine_tune(lm.tokenise(train), FAST, stream_seed(3, "warm-up"))
    np.testing.assert_array_equal(warmup.loss_per_step, report.loss_per_step)
    assert warmup.loss_per_step[-1] < warmup.loss_per_step[0]
    warmed = load_lm(settings(warmup.path))
    np.testing.assert_array_equal(warmed.losses(warmed.tokenise(train)), lm.losses(lm.tokenise(train)))
    assert warmup.adapter is None
    assert warmup.checkpoints == ()


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_transformers_loads_a_warm_up_like_any_other_lm(kind: str, train: Corpus, tmp_path: Path) -> None:
    base = tiny_lm(tmp_path / "lm", kind, tiny_tokenizer(chat=CHAT))
    warmup = warm_up(train, tmp_path / "warm", settings(base), FAST, count=5)
    model = AutoModelForCausalLM.from_pretrained(warmup.path)
    assert model.dtype == torch.float32
    lm = load_lm(settings(warmup.path))
    for name, weight in model.named_parameters():
        assert torch.equal(weight, dict(lm.model.named_parameters())[name])
    assert AutoTokenizer.from_pretrained(warmup.path).chat_template == CHAT
    config, before = (json.loads((Path(place) / "config.json").read_text()) for place in (warmup.path, base))
    dropout = {name for name in before if "drop" in name}
    assert {name: config[name] for name in dropout} == {name: before[name] for name in dropout}
    assert "airrep" not in json.dumps(config)


def test_settings_of_generation_that_transformers_refuses_are_kept(base: str, train: Corpus, tmp_path: Path) -> None:
    published = {"temperature": 0.6, "do_sample": False, "eos_token_id": 2}
    (Path(base) / "generation_config.json").write_text(json.dumps(published))
    warmup = warm_up(train, tmp_path / "warm", settings(base), FAST, count=5)
    assert json.loads((warmup.path / "generation_config.json").read_text()) == published


def test_a_warm_up_on_conversations_read_otherwise_is_told(train: Corpus, tmp_path: Path) -> None:
    base = tiny_lm(tmp_path / "lm", tokenizer=tiny_tokenizer(chat=CHAT), max_position_embeddings=512)
    with conversations_as_texts():
        warm_up(make_chats(5), tmp_path / "chats", settings(base), FAST)
        texts = warm_up(train, tmp_path / "texts", settings(base), FAST, count=5)
        plain = warm_up(make_chats(5), tmp_path / "plain", settings(base, template="plain"), FAST)
    with pytest.raises(ArtifactError, match=r"holds a warm-up made with another rendering \(was None"):
        warm_up(make_chats(5), tmp_path / "chats", settings(base), FAST)
    made = warm_up(make_chats(5), tmp_path / "chats", settings(base), FAST, replace=True)
    again = [
        warm_up(make_chats(5), tmp_path / "chats", settings(base), FAST),
        warm_up(train, tmp_path / "texts", settings(base), FAST, count=5),
        warm_up(make_chats(5), tmp_path / "plain", settings(base, template="plain"), FAST),
    ]
    assert [one.manifest for one in again] == [one.manifest for one in (made, texts, plain)]


def test_only_files_inside_the_folder_are_copied(base: str, train: Corpus, tmp_path: Path) -> None:
    """A folder that someone else made may have links to what its user keeps secret."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("secret")
    for name in ("tokenizer_more.json", "generation_config.json", "additional_chat_templates"):
        link = Path(base) / name
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / "secret" / ("" if "templates" in name else "key"))
        with pytest.raises(ConfigError, match=rf"lm .*: {name}.* is a link to .*secret/key, outside the folder"):
            warm_up(train, tmp_path / "warm", settings(base), FAST)
        assert not any("secret" in str(path.read_bytes()) for path in tmp_path.glob("warm*/**/*") if path.is_file())
        link.unlink()


def test_links_of_the_hub_cache_are_followed(base: str, train: Corpus, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--tiny/blobs", tmp_path / "models--tiny/snapshots/0123"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(Path(base).iterdir())):
        (blobs / str(number)).write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    made = warm_up(train, tmp_path / "warm", settings(snapshot), FAST)
    copied = made.path / "tokenizer.json"
    assert not copied.is_symlink()
    assert copied.read_bytes() == (Path(base) / "tokenizer.json").read_bytes()


def test_a_warm_up_reads_examples_as_it_did_in_training_unless_asked_otherwise(train: Corpus, tmp_path: Path) -> None:
    base = tiny_lm(tmp_path / "lm", tokenizer=tiny_tokenizer(chat=CHAT))
    template = "Q {prompt} A {response}"
    warmup = warm_up(train, tmp_path / "warm", settings(base, max_tokens=40, template=template), FAST, count=5)
    assert load_lm(settings(warmup.path)).reading == {"max_tokens": 40, "template": template}
    asked = load_lm(settings(warmup.path, max_tokens=32, template="plain"))
    assert asked.reading == {"max_tokens": 32, "template": "plain"}
    chat = warm_up(train, tmp_path / "chat", settings(base), FAST, count=5)
    assert load_lm(settings(chat.path)).reading == {"max_tokens": 64, "template": "chat"}


def test_a_finished_warm_up_is_returned_and_another_is_refused(base: str, train: Corpus, tmp_path: Path) -> None:
    out = tmp_path / "warm"
    first = warm_up(train, out, settings(base), FAST, count=7)
    stamp = (out / "model.safetensors").stat().st_mtime_ns
    again = warm_up(train, out, settings(base, batch_tokens=64), FAST, count=7)
    assert (out / "model.safetensors").stat().st_mtime_ns == stamp
    assert again.manifest == first.manifest
    with pytest.raises(ArtifactError, match=r"holds a warm-up made with another count \(was 7"):
        warm_up(train, out, settings(base), FAST, count=8)
    slower = FAST.model_copy(update={"learning_rate": 1e-3})
    with pytest.raises(ArtifactError, match=r"another fine_tune\.learning_rate \(was 0\.01"):
        warm_up(train, out, settings(base), slower, count=7)
    with pytest.raises(ArtifactError, match=r"another corpus"):
        warm_up(train.take(range(10)), out, settings(base), FAST, count=7)
    assert warm_up(train, out, settings(base), FAST, count=8, replace=True).manifest["request"]["count"] == 8


def test_the_same_warm_up_gives_the_same_bytes(base: str, train: Corpus, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    files = [warm_up(train, tmp_path / n, settings(base), LORA, count=7, checkpoints=2).manifest["files"] for n in "ab"]
    assert files[0] == files[1]


def test_the_seed_draws_other_examples(base: str, train: Corpus, tmp_path: Path) -> None:
    one, other = (warm_up(train, tmp_path / str(seed), settings(base), FAST, count=5, seed=seed) for seed in (0, 1))
    assert one.loss_per_step[0] != other.loss_per_step[0]


@pytest.mark.parametrize("tuning", [FAST, LORA])
def test_checkpoints_are_the_weights_at_even_distances_with_their_rates(
    tuning: FineTuneSettings, base: str, train: Corpus, tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    falling = tuning.model_copy(update={"schedule": "linear", "epochs": 3})
    warmup = warm_up(train, tmp_path / "warm", settings(base), falling, checkpoints=3, count=20)
    assert [path.name for path, _ in warmup.checkpoints] == [f"step-{step:06}.safetensors" for step in (4, 8, 12)]
    rates = [falling.rate_at(step, 12) for step in range(12)]
    expected = [np.mean(rates[first : first + 4]) for first in (0, 4, 8)]
    np.testing.assert_allclose([rate for _, rate in warmup.checkpoints], expected)
    lm = load_lm(settings(warmup.path))
    assert checkpoints_of(lm) == warmup.checkpoints
    documents = lm.tokenise(train)
    final = lm.losses(documents)
    means = []
    for path, _ in warmup.checkpoints:
        lm.load_weights(path)
        means.append(float(lm.losses(documents).mean()))
    np.testing.assert_array_equal(lm.losses(documents), final)
    assert means[0] > means[1] > means[2]
    lm.load_weights(warmup.checkpoints[0].path)
    lm.reset()
    np.testing.assert_array_equal(lm.losses(documents), final)


def test_adapters_of_a_tied_output_layer_are_refused_before_training(train: Corpus, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    head = LORA.model_copy(update={"lora_targets": ("lm_head",)})
    steps: list[Any] = []
    with pytest.raises(ConfigError, match=r"^lora_targets: lm_head shares its weight with model\.embed_tokens"):
        tied = settings(tiny_lm(tmp_path / "tied", "qwen2"))
        warm_up(train, tmp_path / "warm", tied, head, checkpoints=1, on_step=steps.append)
    assert not steps
    assert not (tmp_path / "warm").exists()


def test_weights_of_another_lm_are_refused(base: str, train: Corpus, tmp_path: Path) -> None:
    warmup = warm_up(train, tmp_path / "warm", settings(base), FAST, checkpoints=1, count=5)
    other = load_lm(settings(tiny_lm(tmp_path / "gpt2", "gpt2")))
    with pytest.raises(ConfigError, match=r"^weights .*do not fit this GPT2LMHeadModel"):
        other.load_weights(warmup.checkpoints[0].path)
    (tmp_path / "empty.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"^weights .*empty\.safetensors: cannot be read"):
        other.load_weights(tmp_path / "empty.safetensors")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"count": 0}, "^count is 0. Give a number from 1 to 20"),
        ({"count": 21}, "^count is 21. Give a number from 1 to 20"),
        ({"checkpoints": 9}, "^checkpoints is 9"),
    ],
)
def test_what_the_corpus_and_the_steps_do_not_hold_is_refused_before_training(
    asked: dict[str, int], message: str, base: str, train: Corpus, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        warm_up(train, tmp_path / "warm", settings(base), FAST, **asked)
    assert not partial_path(tmp_path / "warm").exists()


def test_an_example_that_the_lm_cannot_read_is_named(base: str, train: Corpus, tmp_path: Path) -> None:
    long = Corpus.from_examples([*train, Example("why", "x" * 99, "long")])
    told = r'^warm-up: the LM .* cannot use 1 of 21 examples.*example "long": its response has'
    with pytest.raises(DataError, match=told):
        warm_up(long, tmp_path / "warm", settings(base), FAST)


def test_an_interrupted_warm_up_never_looks_finished_and_is_made_anew(base: str, train: Corpus, tmp_path: Path) -> None:
    def interrupt(done: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "warm"
    with pytest.raises(KeyboardInterrupt):
        warm_up(train, out, settings(base), FAST, checkpoints=8, on_step=interrupt)
    assert not out.exists()
    assert list(partial_path(out).rglob("step-*"))
    with pytest.raises(ArtifactError, match="unfinished"):
        read_manifest(out)
    undisturbed = warm_up(train, tmp_path / "other", settings(base), FAST, checkpoints=1)
    assert warm_up(train, out, settings(base), FAST, checkpoints=1).manifest["files"] == undisturbed.manifest["files"]


def test_a_loss_that_is_not_finite_leaves_nothing_finished(base: str, train: Corpus, tmp_path: Path) -> None:
    wild = FAST.model_copy(update={"learning_rate": 1e30, "clip": None})
    with pytest.raises(TrainingError, match="not finite"):
        warm_up(train, tmp_path / "warm", settings(base), wild)
    assert not (tmp_path / "warm").exists()


@pytest.fixture
def lora(base: str, train: Corpus, tmp_path: Path) -> Warmup:
    """A warm-up with adapters."""
    pytest.importorskip("peft")
    return warm_up(train, tmp_path / "warm", settings(base), LORA, count=7)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks transformers for it
def test_peft_reads_the_adapters_and_gives_the_losses_of_the_merged_lm(lora: Warmup, base: str, train: Corpus) -> None:
    from peft import PeftModel

    lm, bare = load_lm(settings(lora.path)), load_lm(settings(base))
    documents = lm.tokenise(train)
    before = bare.losses(documents)
    PeftModel.from_pretrained(bare.model, lora.adapter)
    np.testing.assert_allclose(bare.losses(documents), lm.losses(documents), rtol=1e-5)
    assert np.abs(bare.losses(documents) - before).max() > 1e-2
    config = json.loads((lora.path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["base_model_name_or_path"], config["inference_mode"]) == (2, base, True)


def test_moments_are_those_of_adam_for_every_number_of_the_adapters(lora: Warmup, base: str, train: Corpus) -> None:
    stored = load_file(lora.path / "adapter" / "adapter_model.safetensors")
    moments = load_file(lora.path / "adapter" / "moments.safetensors")
    assert moments.keys() == {f"{order}.{name}" for order in ("first", "second") for name in stored}
    assert all(
        moments[f"{order}.{name}"].shape == stored[name].shape for order in ("first", "second") for name in stored
    )
    found: dict[str, torch.Tensor] = {}

    def read(done: Any) -> None:
        if done.step == done.steps:
            states = done.optimizer.state.values()
            found.update({"first": sum(s["exp_avg"].sum() for s in states)})
            found.update({"second": sum(s["exp_avg_sq"].sum() for s in states)})

    lm = load_lm(settings(base))
    rows = [row for row in range(len(train)) if train[row].id in _sampled(train)]
    lm.fine_tune(lm.tokenise(train.take(rows)), LORA, stream_seed(0, "warm-up"), read)
    for order in ("first", "second"):
        total = sum(tensor.sum() for name, tensor in moments.items() if name.startswith(order))
        torch.testing.assert_close(torch.as_tensor(total), found[order])


def _sampled(train: Corpus) -> set[str]:
    """Ids of the seven examples of seed 0."""
    from airrep.runtime.seeding import stream

    rows = stream(0, "warm-up", "sample").choice(len(train), 7, replace=False)
    return {train[int(row)].id for row in rows}


def after(before: str | Path, warmed: str | Path, template: str | None = None) -> str:
    return check_after(find_lm(str(before)), find_lm(str(warmed)), template)


@pytest.mark.parametrize("tuning", [FAST, LORA])
def test_an_lm_after_a_warm_up_is_held_against_the_one_before(
    base: str, train: Corpus, tmp_path: Path, tuning: FineTuneSettings
) -> None:
    warm = warm_up(train, tmp_path / "warm", settings(base), tuning).path
    assert after(base, warm) == ""
    assert after(base, tiny_lm(tmp_path / "trained", seed=1)) == ""  # as any trainer may have made it
    shutil.copytree(base, tmp_path / "copy")
    for own in (tmp_path / "copy", base):
        with pytest.raises(ConfigError, match="has the same weights as lm"):
            after(base, own)
    with pytest.raises(ConfigError, match=f"--lm {base} --warmed {warm}$"):
        after(warm, base)
    with pytest.raises(ConfigError, match="has hidden_size 32, but lm .* has 16"):
        after(base, tiny_lm(tmp_path / "wide", hidden_size=32))
    with pytest.raises(ConfigError, match="has model_type qwen2, but lm .* has llama"):
        after(base, tiny_lm(tmp_path / "qwen", "qwen2"))
    told = after(tiny_lm(tmp_path / "another", seed=2), warm)
    assert told.startswith(
        f"warmed {warm}: is a warm-up of {base}, whose files differ from those of {tmp_path / 'another'}"
    )


def test_a_warm_up_with_a_template_of_its_own_is_told(base: str, train: Corpus, tmp_path: Path) -> None:
    template = "{prompt} = {response}"
    warm = warm_up(train, tmp_path / "warm", settings(base, template=template), FAST).path
    assert "was trained with the template '{prompt} = {response}', but the lm is read without it" in after(base, warm)
    assert after(base, warm, template) == ""


@pytest.fixture
def warmup(base: str, tmp_path: Path) -> Warmup:
    """A warm-up of it, without adapters or checkpoints."""
    train = Corpus.from_examples(Example(f"why {each.prompt}", each.response, each.id) for each in some_examples(5))
    return warm_up(train, tmp_path / "warm", settings(base), FineTuneSettings(batch_examples=2))


def test_whole_numbers_of_numpy_are_whole_numbers(base: str, tmp_path: Path) -> None:
    train = Corpus.from_examples(Example(f"why {each.prompt}", each.response, each.id) for each in some_examples(5))
    made = [
        warm_up(train, tmp_path / name, settings(base), {"batch_examples": 2}, count=kind(4), seed=kind(3))
        for name, kind in (("one", int), ("other", np.int64))
    ]
    assert made[0].manifest["request"] == made[1].manifest["request"]


def test_an_lm_without_checkpoints_says_what_makes_some(base: str, warmup: Warmup) -> None:
    for folder in (base, warmup.path):
        with pytest.raises(ConfigError, match="has no checkpoints"):
            checkpoints_of(load_lm(settings(folder)))
    assert open_warmup(base) is None


def test_the_base_is_recorded_by_name_and_by_its_files(base: str, warmup: Warmup) -> None:
    assert warmup.base == {
        "name": base,
        "fingerprint": load_lm(settings(base)).fingerprint,
        "files": find_lm(base).digest(),
    }


def test_a_folder_with_a_manifest_of_something_else_is_an_lm_like_any_other(base: str) -> None:
    (Path(base) / "manifest.json").write_text('{"made": "elsewhere"}')
    assert load_lm(settings(base)).max_tokens == 64
    assert open_warmup(base) is None


def _altered(path: Path) -> None:
    path.write_text(path.read_text().replace('"max_tokens": 64', '"max_tokens": 65'))


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("manifest.json", _altered, "was altered"),
        ("model.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-4]), r"model\.safetensors"),
        ("losses.npy", Path.unlink, r"losses\.npy: is missing"),
    ],
)
def test_a_damaged_warm_up_is_refused(file: str, damage: Callable[[Path], None], message: str, warmup: Warmup) -> None:
    assert open_warmup(warmup.path) == warmup
    damage(warmup.path / file)
    for read in (open_warmup, lambda path: load_lm(settings(path))):
        with pytest.raises(ArtifactError, match=message):
            read(warmup.path)
