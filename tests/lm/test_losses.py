"""Losses of preferences are those of a plain loop over transformers, step by step; of spans their share."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid
from worlds.tiny_lms import CHAT, load, tiny_lm, tiny_network, tiny_tokenizer

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError
from airrep.lm.attention import PackedDocuments
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.network import losses_of, order_of, token_losses
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import warm_up
from airrep.runtime.packing import pack

TUNED = FineTuneSettings(learning_rate=1e-2, batch_examples=3, epochs=2, weight_decay=0.1)
TEXTS = [
    ("red", "warm", "cold"),
    ("sea", "blue and deep", "x"),
    ("say", "a", "bcd"),
    ("two?", "three", "five"),
    ("o", "k", "no"),
]
PAIRS = [Example(asked, good, f"p{n}", chat={"rejected": bad}) for n, (asked, good, bad) in enumerate(TEXTS)]
ANSWERS = [Example(asked, good, f"a{n}", label=str(n % 2 == 0)) for n, (asked, good, _) in enumerate(TEXTS)]
WEIGHED = [Example(asked, good, f"w{n}", metadata={"advantage": n - 1.5}) for n, (asked, good, _) in enumerate(TEXTS)]
TAUGHT = {"dpo": PAIRS, "orpo": PAIRS, "kto": ANSWERS, "weighted": WEIGHED}
BETA = 0.7


def nats(model: Any, lm: TargetLM, prompt: Example, said: Example) -> Tensor:
    """Losses of the tokens of one example's response behind the prompt of another, read alone."""
    asked, answer = (lm.chat.tokenise([one]) for one in (prompt, said))
    head, tail = asked.sequence(0)[: asked.starts[0]], answer.sequence(0)[answer.starts[0] :]
    ids = torch.from_numpy(np.concatenate([head, tail]))[None]
    return cross_entropy(model(input_ids=ids).logits[0, len(head) - 1 : -1], ids[0, len(head) :], reduction="none")


def step_loss(
    loss: str, model: Any, base: Any, lm: TargetLM, examples: Sequence[Example], *, alone: bool = False
) -> Tensor:
    """A step's loss by the papers' formulas, one document at a time; *alone*: of an example that no others are with."""
    sides = [one.sides for one in examples]
    chosen = [nats(model, lm, one, one) for one, _ in sides]
    likely = torch.cat(chosen).mean()
    if loss == "weighted":
        weights = [one.metadata["advantage"] for one in examples]
        return sum(w * one.sum() for w, one in zip(weights, chosen, strict=True)) / len(torch.cat(chosen))
    gains = torch.stack(
        [nats(base, lm, one, one).sum() - mine.sum() for (one, _), mine in zip(sides, chosen, strict=True)]
    )
    if loss == "kto":
        wanted = torch.tensor([1.0 if one.label == "True" else -1.0 for one in examples])
        turned = [*zip(examples, [examples[-1], *examples[:-1]], strict=True)]
        z = torch.stack([nats(base, lm, *two).sum() - nats(model, lm, *two).sum() for two in turned]).mean()
        return (1 - torch.sigmoid(wanted * BETA * (gains - (0 if alone else z.detach().clamp(min=0))))).mean()
    rejected = [nats(model, lm, other, other) for _, other in sides if other]
    if loss == "dpo":
        others = [nats(base, lm, other, other).sum() for _, other in sides if other]
        lost = torch.stack([before - mine.sum() for before, mine in zip(others, rejected, strict=True)])
        return -logsigmoid(BETA * (gains - lost)).mean()
    p, r = (torch.stack([torch.exp(-one.mean()) for one in each]) for each in (chosen, rejected))
    return likely - BETA * logsigmoid(torch.log(p / (1 - p)) - torch.log(r / (1 - r))).mean()


def test_the_gradient_of_logits_lies_where_the_logits_lay(tmp_path: Path) -> None:
    lm, places = load(tiny_lm(tmp_path / "lm")), []
    documents = lm.tokenise(ANSWERS[:1])
    packed = PackedDocuments.from_batch(documents, next(pack(documents.lengths, 99)))

    def note(_module: Any, _inputs: Any, logits: Tensor) -> None:
        places.append(logits.data_ptr())
        logits.register_hook(lambda gradient: places.append(gradient.data_ptr()))

    lm.model.get_output_embeddings().register_forward_hook(note)
    token_losses(lm.model, packed).sum().backward()
    assert len(places) == 2
    assert len(set(places)) == 1


def test_losses_of_tokens_and_their_gradient_need_no_memory_beside_the_logits() -> None:
    """Equal to torch's, in several pieces: the widest row is a piece of its own."""
    drawn = np.random.default_rng(0)
    logits = torch.from_numpy(30 * drawn.standard_normal((5, 400_000)))
    logits[1, :300_000], logits[2, 7] = -torch.inf, 1e4  # tokens that are ruled out, or sure
    targets, factors = torch.tensor([0, 399_999, 7, 8, 9]), torch.from_numpy(drawn.standard_normal(5))
    wanted, taken = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    expected, found = cross_entropy(wanted, targets, reduction="none"), losses_of(taken, targets)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    (gradient,) = torch.autograd.grad(found, taken, factors)
    torch.testing.assert_close(gradient, *torch.autograd.grad(expected, wanted, factors), rtol=1e-12, atol=1e-14)
    assert gradient.data_ptr() == taken.data_ptr()
    assert losses_of(logits[:0], targets[:0]).shape == (0,)
    assert torch.isnan(losses_of(torch.tensor([[torch.nan, 1.0]]), torch.tensor([1]))).all()


@pytest.mark.parametrize("loss", TAUGHT)
def test_fine_tunes_on_preferences_take_the_steps_of_a_plain_loop(loss: str, tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    lm, examples = load(tmp_path / "lm", batch_tokens=30, loss=loss, beta=BETA), TAUGHT[loss]
    documents = lm.tokenise(examples)
    report = lm.fine_tune(documents, TUNED, 5)

    model, base = (tiny_network("llama").eval() for _ in range(2))
    base.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=TUNED.betas, eps=TUNED.epsilon, weight_decay=0.1)
    wanted = []
    for rows in order_of(len(examples), TUNED, 5):
        found = step_loss(loss, model, base, lm, [examples[row] for row in rows])
        found.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        wanted.append(found.item())
    np.testing.assert_allclose(report.loss_per_step, wanted, rtol=2e-4)
    with torch.no_grad():
        asked = [step_loss(loss, model, base, lm, [one], alone=True).item() for one in examples]
        plain = nats(model, lm, Example("red", "blue"), Example("red", "blue")).mean().item()
    if loss == "weighted":  # a query's weight is nobody's
        asked = [found / one.metadata["advantage"] for found, one in zip(asked, examples, strict=True)]
    np.testing.assert_allclose(lm.losses(documents), asked, rtol=1e-3)
    np.testing.assert_allclose(lm.losses(lm.tokenise([Example("red", "blue")])), [plain], rtol=1e-3)
    lm.reset()
    first = {"dpo": np.log(2), "kto": 0.5}  # no margin before the fine-tune
    if loss in first:
        np.testing.assert_allclose(lm.losses(documents), np.full(len(examples), first[loss]), rtol=1e-5)


def test_a_warm_up_on_pairs_is_compared_with_the_lm_before_it(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    lm = load(tmp_path / "lm", batch_tokens=30, loss="dpo", beta=BETA)
    corpus = Corpus.from_examples(PAIRS)
    warm = warm_up(corpus, tmp_path / "warm", lm.settings, TUNED, seed=3)
    after = load(warm.path, batch_tokens=30, loss="dpo", beta=BETA)
    documents = after.tokenise(corpus)
    gains = after.likelihoods_before(documents)  # of the LM before
    np.testing.assert_allclose(gains, lm.likelihoods_before(lm.tokenise(corpus)), rtol=1e-5)
    margins = -np.log(np.expm1(after.losses(documents)))
    assert (margins > 0.5).all()  # it learnt what is preferred
    assert warm_up(corpus, tmp_path / "warm", lm.settings, TUNED, seed=3).path == warm.path
    assert (
        len({load(tmp_path / "lm", **own).fingerprint for own in ({}, {"loss": "dpo"}, {"loss": "dpo", "beta": 1.0})})
        == 3
    )


@pytest.mark.parametrize(
    ("loss", "examples", "told"),
    [
        (
            "dpo",
            [Example("a", "b", "x")],
            'example "x" has no rejected response, which loss=dpo needs. Read pairs with --preferences',
        ),
        ("kto", [Example("a", "b", "x")], 'example "x" has no label true or false, which loss=kto needs'),
        (
            "weighted",
            [Example("a", "b", "x")],
            'example "x" has no advantage or reward that is a number, which loss=weighted needs',
        ),
    ],
)
def test_examples_that_lack_what_a_loss_reads_are_refused_before_work(
    loss: str, examples: list[Example], told: str, tmp_path: Path
) -> None:
    tiny_lm(tmp_path / "lm")
    with pytest.raises(DataError, match=told):
        warm_up(Corpus.from_examples(examples), tmp_path / "warm", {"lm": str(tmp_path / "lm"), "loss": loss})
    lm = load(tmp_path / "lm", batch_tokens=30, loss=loss)
    with pytest.raises(DataError, match=f"1 of 1 example lacks what loss={loss} needs"):
        lm.fine_tune(lm.tokenise(examples), TUNED, 0)


def test_pairs_and_beta_are_refused_where_they_mean_nothing(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    with pytest.raises(DataError, match='"p0": is a preference pair, but loss=sft reads one response. Set loss=dpo'):
        load(tmp_path / "lm").tokenise(PAIRS)
    for beta in (0, -0.1):
        with pytest.raises(ConfigError, match=r"beta.*greater than 0"):
            LmSettings.of({"lm": str(tmp_path / "lm"), "loss": "dpo", "beta": beta})


ANSWER = "It is 108 m. So\n\nlong."
CUTS = (0, 5, 8, 13, 15, len(ANSWER))


@pytest.mark.parametrize("chat", [None, CHAT])
def test_losses_of_spans_are_those_of_their_tokens_and_add_up(tmp_path: Path, chat: str | None) -> None:
    lm = load_lm(tiny_lm(tmp_path / "lm", tokenizer=tiny_tokenizer(chat=chat)))
    parts = [Example("How long?", ANSWER, span=pair) for pair in itertools.pairwise(CUTS)]
    documents = lm.tokenise([Example("How long?", ANSWER), *parts, Example("Other", "text")])
    whole, *found, _ = lm.losses(documents)
    assert sum(found) == pytest.approx(whole, abs=1e-5)
    (each,) = lm.token_losses(documents.take([2]))  # of which a share was asked
    assert found[1] == pytest.approx(float((each * documents.shares_of(2)).sum()) / len(each), abs=1e-6)
    assert np.array_equal(documents.take([3, 0]).shares_of(0), documents.shares_of(3))
    assert (documents.shares_of(6) == 1).all()
    assert lm.key(parts[0]) != lm.key(parts[1])


def test_a_span_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    settings = LmSettings.of({"lm": tiny_lm(tmp_path / "lm"), "max_tokens": 40, "cut": "end"})
    lm = load_lm(settings)
    with pytest.raises(DataError, match="its span lies after the tokens that the LM reads"):
        lm.tokenise([Example("Ask", f"{ANSWER} {ANSWER}", span=(36, 40))])
