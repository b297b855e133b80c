"""The target LM gives what plain transformers gives, and comes back to its base."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import lm as reference
from transformers import AutoModelForCausalLM
from worlds.double_lms import listed
from worlds.tiny_lms import (
    CHAT,
    TYPES,
    load,
    some_examples,
    tiny_llama4,
    tiny_lm,
    tiny_network,
    tiny_opt,
    tiny_tokenizer,
)

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, TrainingError
from airrep.lm.attention import PackedDocuments
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM
from airrep.lm.network import accumulate, order_of, token_losses
from airrep.lm.settings import FineTuneSettings
from airrep.runtime.packing import pack

FAST = FineTuneSettings(learning_rate=1e-2, batch_examples=5, weight_decay=0.1)


@pytest.fixture
def llama(tmp_path: Path) -> TargetLM:
    """A tiny Llama with grouped queries."""
    tiny_lm(tmp_path / "lm")
    return load(tmp_path / "lm")


@pytest.mark.parametrize(("kind", "batch_tokens"), [*((kind, 40) for kind in TYPES), ("llama", 1), ("llama", 10_000)])
def test_losses_and_gradients_are_transformers_in_float64(kind: str, batch_tokens: int, tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm", kind)
    lm = load(tmp_path / "lm", batch_tokens=batch_tokens)
    documents = lm.tokenise(some_examples())
    lm.model.double()
    plain = tiny_network(kind).double().eval()
    wanted = reference.losses(plain, listed(documents))
    assert np.abs(exact_losses(lm, documents) / wanted - 1).max() < 1e-12
    np.testing.assert_allclose(lm.losses(documents), wanted, rtol=1e-6)
    accumulate(lm.model, documents, lm.execution)
    for name, gradient in reference.gradients(plain, listed(documents)).items():
        found = lm.model.get_parameter(name).grad
        assert (found - gradient).norm() <= 1e-12 * max(1.0, float(gradient.norm())), name


def exact_losses(lm: TargetLM, documents: Documents) -> np.ndarray:
    """Mean loss of each document, kept in float64."""
    found = np.zeros(len(documents))
    for batch in pack(documents.lengths, 50):
        packed = PackedDocuments.from_batch(documents, batch)
        with torch.no_grad():
            each = token_losses(lm.model, packed)
        found[batch.rows] = np.bincount(packed.owners.numpy(), each.numpy()) / documents.response_lengths[batch.rows]
    return found


@pytest.mark.parametrize("padding", [1, 20, 10_000])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_padding_inside_attention_changes_neither_losses_nor_gradients(kind: str, padding: int, tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm", kind)
    lm = load(tmp_path / "lm")
    documents = lm.tokenise(some_examples())
    lm.model.double()
    batch = next(pack(documents.lengths, 10_000))
    found = []
    for each in (0, padding):
        lm.model.zero_grad()
        losses = token_losses(lm.model, PackedDocuments.from_batch(documents, batch, padding=each))
        losses.sum().backward()
        found.append([losses.detach(), *(parameter.grad.clone() for parameter in lm.model.parameters())])
    for exact, padded in zip(*found, strict=True):
        torch.testing.assert_close(padded, exact, rtol=1e-10, atol=1e-12)


def test_key_heads_written_out_give_the_same_as_shared_ones(llama: TargetLM, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = llama.tokenise(some_examples())
    shared = llama.losses(documents)
    monkeypatch.setattr("airrep.lm.attention._shares_heads", lambda *_: False)
    np.testing.assert_allclose(llama.losses(documents), shared, rtol=1e-6)


def test_a_sliding_window_is_kept(tmp_path: Path) -> None:
    window = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    tiny_lm(tmp_path / "lm", "qwen2", **window)
    lm = load(tmp_path / "lm")
    documents = lm.tokenise(some_examples())
    plain = tiny_network("qwen2", **window).eval()
    np.testing.assert_allclose(lm.losses(documents), reference.losses(plain, listed(documents)), rtol=1e-5)
    full = tiny_network("qwen2").eval()
    assert np.abs(lm.losses(documents) - reference.losses(full, listed(documents))).max() > 1e-3


LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [8.0, 9.0], "factor": 2.0}


def test_no_document_is_longer_than_a_long_rope_reads_alike_in_every_batch(tmp_path: Path) -> None:
    """transformers takes long factors for all documents of a batch with one that is beyond the original positions."""
    rope = {**LONG, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
    tiny_lm(tmp_path / "lm", rope_parameters=rope)
    message = r"^lm .*: max_tokens is 64, but .* RoPE scaling \(longrope\) .* up to 32 .* Set max_tokens=32\.$"
    for settings in ({}, {"max_tokens": 64}):
        with pytest.raises(ConfigError, match=message):
            load(tmp_path / "lm", **settings)
    one_batch, alone = (load(tmp_path / "lm", max_tokens=32, batch_tokens=tokens) for tokens in (10_000, 1))
    documents = Documents.of([(list(range(3, 3 + length)), 1) for length in (10, 32)])
    np.testing.assert_allclose(one_batch.losses(documents), alone.losses(documents), rtol=1e-5)


def test_a_dynamic_rope_reads_alike_up_to_its_positions(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm", rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0})
    one_batch, alone = (load(tmp_path / "lm", batch_tokens=tokens) for tokens in (10_000, 1))
    documents = Documents.of([(list(range(3, 3 + length)), 1) for length in (10, 64)])
    np.testing.assert_allclose(one_batch.losses(documents), alone.losses(documents), rtol=1e-5)


def test_no_document_is_longer_than_a_chunk_of_attention(tmp_path: Path) -> None:
    """Packed attention knows no chunks, beyond which the tokens of a Llama 4 do not look."""
    tiny_llama4(tmp_path / "lm", chunk=16)
    with pytest.raises(ConfigError, match=r"max_tokens is 64, but .* attention in chunks .* Set max_tokens=16\.$"):
        load(tmp_path / "lm")
    lm = load(tmp_path / "lm", max_tokens=16)
    documents = Documents.of([(list(range(3, 19)), 1)])
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "lm").eval()
    np.testing.assert_allclose(lm.losses(documents), reference.losses(plain, listed(documents)), rtol=1e-5)


@pytest.mark.parametrize("kind", TYPES)
def test_a_short_fine_tune_equals_a_plain_padded_loop(kind: str, tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm", kind)
    lm = load(tmp_path / "lm", batch_tokens=60)
    documents = lm.tokenise(some_examples())
    rows = list(order_of(len(documents), FAST, seed=3))
    batches = [[listed(documents)[row] for row in step] for step in rows]
    plain = tiny_network(kind).eval()
    wanted = reference.fine_tune(plain, batches, FAST.learning_rate, FAST.weight_decay)
    report = lm.fine_tune(documents, FAST, seed=3)
    assert report.steps == len(wanted) == 6
    np.testing.assert_allclose(report.loss_per_step, wanted, rtol=1e-5)
    np.testing.assert_allclose(lm.losses(documents), reference.losses(plain, listed(documents)), rtol=1e-4)


@pytest.mark.slow
def test_a_short_fine_tune_equals_the_trainer_of_transformers(tmp_path: Path, llama: TargetLM) -> None:
    pytest.importorskip("accelerate")
    from transformers import Trainer, TrainingArguments

    settings = FineTuneSettings(
        epochs=1, learning_rate=1e-2, batch_examples=4, weight_decay=0.0, schedule="linear", warmup_steps=1
    )
    documents = llama.tokenise(some_examples())
    rows = np.concatenate(list(order_of(len(documents), settings, seed=0)))
    plain = tiny_network()
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "trainer"),
        num_train_epochs=1,
        learning_rate=settings.learning_rate,
        per_device_train_batch_size=settings.batch_examples,
        warmup_steps=1,
        weight_decay=0.0,
        train_sampling_strategy="sequential",
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    chosen = [listed(documents)[row] for row in rows]
    trainer = Trainer(plain, arguments, data_collator=reference.padded, train_dataset=chosen)
    trainer.train()
    llama.fine_tune(documents, settings, seed=0)
    wanted = reference.losses(plain.eval(), chosen)
    np.testing.assert_allclose(llama.losses(documents.take(rows)), wanted, rtol=1e-5)


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("rank", [None, 2])
def test_a_fine_tune_switches_gradients_on(switch: Any, rank: int | None, tmp_path: Path, llama: TargetLM) -> None:
    documents = llama.tokenise(some_examples())
    tuning = FAST.model_copy(update={"lora_rank": rank})
    llama.fine_tune(documents, tuning, 1)
    with switch():
        other = load(llama.files.weights)
        other.fine_tune(documents, tuning, 1)
        np.testing.assert_array_equal(other.losses(documents), llama.losses(documents))
        other.reset()
    other.fine_tune(documents, tuning, 1)
    np.testing.assert_array_equal(other.losses(documents), llama.losses(documents))


def test_examples_are_tokenised_in_any_form(llama: TargetLM) -> None:
    examples = some_examples()
    wanted = listed(llama.tokenise(examples))
    assert listed(llama.tokenise([one.to_dict() for one in examples])) == wanted
    assert listed(llama.tokenise(Corpus.from_examples(examples))) == wanted
    assert listed(llama.tokenise("two")) == listed(llama.tokenise([Example("", "two")]))
    assert len(llama.tokenise([])) == 0


def test_reset_brings_every_bit_of_the_base_back(llama: TargetLM) -> None:
    documents = llama.tokenise(some_examples())
    weights = {name: tensor.clone() for name, tensor in llama.model.state_dict().items()}
    before = llama.losses(documents)
    first = llama.fine_tune(documents, FAST, seed=0)
    tuned = llama.losses(documents)
    assert np.abs(tuned - before).max() > 0.1
    llama.reset()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in llama.model.state_dict().items())
    np.testing.assert_array_equal(llama.losses(documents), before)
    assert llama.fine_tune(documents, FAST, seed=0) == first
    np.testing.assert_array_equal(llama.losses(documents), tuned)


def test_the_seed_decides_the_order_of_the_examples(llama: TargetLM) -> None:
    documents = llama.tokenise(some_examples())
    found = []
    for seed in (0, 1):
        llama.reset()
        found.append(llama.fine_tune(documents, FAST, seed))
    assert found[0] != found[1]
    orders = [np.concatenate(list(order_of(7, FineTuneSettings(batch_examples=3), seed))) for seed in (0, 1)]
    assert not np.array_equal(*orders)
    for order in orders:
        assert sorted(order[:7]) == sorted(order[7:]) == list(range(7))
        assert not np.array_equal(order[:7], order[7:])


def test_checkpointing_gives_the_same_fine_tune(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm", "gpt2")
    plain, recomputing = load(tmp_path / "lm"), load(tmp_path / "lm", checkpointing=True)
    documents = plain.tokenise(some_examples())
    calls: list[int] = []
    recomputing.model.transformer.h[0].ln_1.register_forward_pre_hook(lambda *_: calls.append(1))
    reports = [lm.fine_tune(documents, FAST, seed=0) for lm in (plain, recomputing)]
    assert reports[0] == reports[1]
    assert len(calls) == 2 * reports[0].steps
    np.testing.assert_array_equal(plain.losses(documents), recomputing.losses(documents))


def test_dropout_that_is_no_module_is_off_too(tmp_path: Path) -> None:
    tiny_opt(tmp_path / "lm")
    plain, recomputing = load(tmp_path / "lm"), load(tmp_path / "lm", checkpointing=True)
    assert plain.model.config.dropout == plain.model.model.decoder.layerdrop == 0.0
    documents = plain.tokenise(some_examples())
    reports = [lm.fine_tune(documents, FAST, seed=0) for lm in (plain, recomputing)]
    assert reports[0] == reports[1]
    np.testing.assert_array_equal(plain.losses(documents), recomputing.losses(documents))


def test_micro_batches_do_not_change_a_fine_tune(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    found = []
    for batch_tokens in (1, 50, 10_000):
        lm = load(tmp_path / "lm", batch_tokens=batch_tokens)
        documents = lm.tokenise(some_examples())
        lm.fine_tune(documents, FAST, seed=0)
        found.append(lm.losses(documents))
    np.testing.assert_allclose(found[0], found[2], rtol=1e-4)
    np.testing.assert_allclose(found[1], found[2], rtol=1e-4)


def test_bfloat16_products_stay_close_and_weights_stay_float32(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    lms = [load(tmp_path / "lm", precision=kind) for kind in ("float32", "bfloat16")]
    documents = lms[0].tokenise(some_examples())
    for lm in lms:
        lm.fine_tune(documents, FineTuneSettings(learning_rate=1e-3), seed=0)
        assert {parameter.dtype for parameter in lm.model.parameters()} == {torch.float32}
    exact, rounded = (lm.losses(documents) for lm in lms)
    assert not np.array_equal(exact, rounded)
    np.testing.assert_allclose(rounded, exact, rtol=0.05)


def test_hidden_states_are_means_over_the_tokens_of_each_document(llama: TargetLM) -> None:
    documents = llama.tokenise(some_examples())
    plain = tiny_network().eval()
    with torch.no_grad():
        states = [plain.model(input_ids=torch.tensor(ids)[None]).last_hidden_state[0] for ids, _ in listed(documents)]
    wanted = torch.stack([each.mean(0) for each in states])
    np.testing.assert_allclose(llama.hidden_states(documents), wanted, rtol=1e-4, atol=1e-5)
    assert llama.hidden_states(documents.take([])).shape == (0, 16)


@pytest.mark.parametrize("kind", [*TYPES, "opt"])
def test_hidden_states_of_each_layer_are_those_of_transformers_one_by_one(kind: str, tmp_path: Path) -> None:
    (tiny_opt if kind == "opt" else partial(tiny_lm, kind=kind))(tmp_path / "lm")
    lm = load(tmp_path / "lm", batch_tokens=50)
    documents = lm.tokenise(some_examples())
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "lm").eval()
    with torch.no_grad():
        rows = [torch.tensor(ids)[None] for ids, _ in listed(documents)]
        states = [plain(input_ids=row, output_hidden_states=True).hidden_states for row in rows]
    for layer in (-1, 0, 1, 2):
        means = torch.stack([each[layer][0].mean(0) for each in states])
        lasts = torch.stack([each[layer][0][-1] for each in states])
        np.testing.assert_allclose(lm.hidden_states(documents, layer), means, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(lm.hidden_states(documents, layer, "last"), lasts, rtol=1e-4, atol=1e-5)


def test_layers_above_the_one_that_is_asked_for_are_not_computed(llama: TargetLM) -> None:
    documents, called = llama.tokenise(some_examples()), []
    layers = llama.model.model.layers
    for number, layer in enumerate(layers):
        layer.mlp.register_forward_hook(lambda *_, number=number: called.append(number))
    llama.hidden_states(documents, 0)
    assert called == []
    llama.hidden_states(documents, 1)
    assert set(called) == {0}
    assert not layers[0]._forward_pre_hooks
    assert not layers[1]._forward_pre_hooks


@pytest.mark.parametrize("kind", TYPES)
def test_greedy_answers_are_those_of_transformers_one_by_one(kind: str, tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm", kind)
    lm = load(tmp_path / "lm", batch_tokens=100)
    examples = some_examples(5)
    lm.losses(lm.tokenise(examples))
    plain = tiny_network(kind).eval()
    wanted = []
    for ids in lm.chat.prompt_ids(examples, 50):
        found = plain.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=8, pad_token_id=0)
        wanted.append(lm.chat.tokenizer.decode(found[0, len(ids) :], skip_special_tokens=True).strip())
    assert lm.generate(examples, max_new_tokens=8) == wanted
    assert lm.losses(lm.tokenise(examples)).shape == (5,)
    with pytest.raises(ConfigError, match="^max_new_tokens is 64"):
        lm.generate(examples, max_new_tokens=64)


def test_answers_are_greedy_whatever_the_lm_says_of_its_generation(tmp_path: Path) -> None:
    """transformers fills what a call leaves open from generation_config.json: a penalty chose other tokens."""
    examples, answers = some_examples(5), []
    own = {"repetition_penalty": 1.8, "no_repeat_ngram_size": 1, "num_beams": 3, "min_new_tokens": 8}
    for name, changes in (("plain", {}), ("own", own)):
        file = Path(tiny_lm(tmp_path / name)) / "generation_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))
        lm = load(tmp_path / name)
        answers.append(lm.generate(examples, max_new_tokens=12))
        assert lm.model.generation_config.repetition_penalty == changes.get("repetition_penalty")
    assert any(answers[0])
    assert answers[1] == answers[0]


def test_a_pad_token_that_is_a_word_learns_like_any_other(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(pad="<pad>")
    tiny_lm(tmp_path / "with", tokenizer=tokenizer, pad_token_id=0)
    tiny_lm(tmp_path / "without", tokenizer=tiny_tokenizer())
    documents = Documents.of([([1, 5, 0, 6, 0, 0, 7, 2], 3), ([1, 0, 0, 9], 1)])
    found = []
    for name in ("with", "without"):
        lm = load(tmp_path / name)
        lm.model.load_state_dict(tiny_network().state_dict())
        lm.fine_tune(documents, FAST, seed=0)
        found.append(lm.model.model.embed_tokens.weight.detach())
    assert torch.equal(*found)


def test_results_do_not_depend_on_the_order_of_rows(llama: TargetLM) -> None:
    documents = llama.tokenise(some_examples())
    order = np.random.default_rng(0).permutation(len(documents))
    np.testing.assert_allclose(llama.losses(documents.take(order)), llama.losses(documents)[order], rtol=1e-5)
    assert llama.losses(documents.take([])).shape == (0,)


def test_no_global_generator_is_read_or_set(llama: TargetLM) -> None:
    before = torch.random.get_rng_state()
    llama.fine_tune(llama.tokenise(some_examples()), FAST, seed=0)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_loss_that_is_not_finite_names_its_step(llama: TargetLM) -> None:
    documents = llama.tokenise(some_examples())
    with pytest.raises(TrainingError, match="^fine-tune, step 2: the (loss|gradient) is not finite"):
        llama.fine_tune(documents, FAST.model_copy(update={"learning_rate": 1e30, "clip": None}), seed=0)
    llama.reset()
    assert np.isfinite(llama.losses(documents)).all()
    with torch.no_grad():
        llama.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match="^evaluation: the loss of row 0 is not finite"):
        llama.losses(documents)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("something else"),
    ],
)
def test_a_lack_of_memory_says_what_to_do(llama: TargetLM, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Other failures are not called so."""

    def fail(*_: object, **__: object) -> None:
        raise error

    documents = llama.tokenise(some_examples())
    monkeypatch.setattr(llama.model, "forward", fail)
    kind, message = TrainingError, ": memory is short"
    if str(error) == "something else":
        kind, message = ConfigError, "a LlamaForCausalLM cannot be run: RuntimeError: something else"
    for run in (lambda: llama.losses(documents), lambda: llama.fine_tune(documents, FAST, 0)):
        with pytest.raises(kind, match=message):
            run()


def test_a_fine_tune_on_nothing_is_refused(llama: TargetLM) -> None:
    with pytest.raises(ConfigError, match="^fine-tune: there are no training examples"):
        llama.fine_tune(Documents.of([]), FAST, seed=0)


def test_an_lm_says_how_it_reads(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    tiny_lm(tmp_path / "chat", tokenizer=tiny_tokenizer(chat=CHAT))
    assert load(tmp_path / "lm").reading == {"max_tokens": 64, "template": "plain"}
    assert load(tmp_path / "chat", max_tokens=32).reading == {"max_tokens": 32, "template": "chat"}
    own = "{prompt} {response}"
    assert load(tmp_path / "chat", template=own).reading == {"max_tokens": 64, "template": own}


def test_the_fingerprint_covers_what_is_read_and_not_how_it_is_computed(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "one")
    tiny_lm(tmp_path / "again")
    tiny_lm(tmp_path / "other", seed=1)
    tiny_lm(tmp_path / "chat", tokenizer=tiny_tokenizer(chat=CHAT))
    one = load(tmp_path / "one").fingerprint
    assert len(one) == 64
    same = [load(tmp_path / "again"), load(tmp_path / "one", batch_tokens=9, precision="bfloat16")]
    assert {lm.fingerprint for lm in same} == {one}
    others = [
        load(tmp_path / "other"),
        load(tmp_path / "chat"),
        load(tmp_path / "chat", template="plain"),
        load(tmp_path / "one", max_tokens=32),
        load(tmp_path / "one", template="{prompt} {response}"),
    ]
    assert len({one, *(lm.fingerprint for lm in others)}) == 6


def test_masked_tokens_teach_nothing_and_the_others_weigh_as_before(tmp_path: Path) -> None:
    lm = load(Path(tiny_lm(tmp_path / "lm")), batch_tokens=40)
    lm.model.double()
    documents, plain = lm.tokenise(some_examples()[:5]), tiny_network().double().eval()
    draw = np.random.default_rng(0).integers(0, 2, int(documents.response_lengths.sum()))
    shares = draw.astype(np.float32)
    masked = Documents(documents.ids, documents.offsets, documents.starts, shares=shares)
    accumulate(lm.model, masked, lm.execution)
    total, place = torch.zeros((), dtype=torch.float64), 0
    for row in range(len(documents)):
        ids, start = torch.from_numpy(documents.sequence(row)), int(documents.starts[row])
        chances = plain(ids[None]).logits[0].log_softmax(-1)
        for token in range(start, len(ids)):
            total = total - chances[token - 1, ids[token]] * int(draw[place])
            place += 1
    (total / place).backward()
    for (name, found), wanted in zip(lm.model.named_parameters(), plain.parameters(), strict=True):
        np.testing.assert_allclose(found.grad, wanted.grad, atol=1e-12, err_msg=name)
