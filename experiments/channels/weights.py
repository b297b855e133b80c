"""Weights of the default channels that hold across roles: learnt from all roles but one, judged on that one.

Usage: python experiments/channels/weights.py [--gradients [ekfac|both|warmed] [--exponent 0.5]] [--lm 4.5M]
                                              [--role tasks]

In the folder of the repository, after the data steps of `roles` and `smollm2`; with the gradients of the LM if asked,
by LoGra or by EK-FAC, whose curvature is learnt from 300 examples, or by EK-FAC beside LoGra as it ships; or by LoGra
as it ships and once more after a warm-up on 100 examples of the pool, as many as a subset has (50 for SmolLM2-135M).

Weights are learnt by Eq. 8 on the instances 0 of the other roles, by the LM of 4.5M parameters and by SmolLM2-135M, the
larger LM, whose labels count twice. Channels count the tokens of the LM that judges. Nothing of the role that is judged
is read. The last lines are the weights that all roles give together, and those that ship. With gradients it begins with
the LDS of the instances 0, by the weight of gradients, relative and relative "apart"; with a role named it ends there,
and is of this role alone. Group scores are kept below `work/channels`; delete them to compute them anew.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

import airrep
from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import Channel, ChannelsSettings, read_channels
from airrep.attributors.sums.channels import channel_pooling
from airrep.attributors.sums.relative import relative_weights
from airrep.evaluation.judging import compare_held_out, held_out_lds
from airrep.labels.gather import gather
from airrep.labels.labels import LabelledInstance
from airrep.training.linear.weights import MemberFeatures, fit_weights

HERE = Path(__file__).parents[1]
KEPT = HERE / "work" / "channels"
ROLES = ("tasks", "mixture", "general", "safety")
TINY, SMOLLM2 = HERE / "work" / "shared" / "models" / "tiny-lm", HERE / "work" / "models" / "smollm2-135m"
SAMPLE = 300
"""Examples that the curvature of EK-FAC is learnt from."""
FACTORS: dict[str, tuple[float, ...]] = {
    "logra": (1.4, 2.0, 2.8, 4.0, 5.6, 8.0),
    "ekfac": (12.0, 18.0, 25.0, 28.0, 35.0, 50.0, 70.0),
    "both": (12.0, 18.0, 25.0, 28.0, 35.0, 50.0, 70.0),
    "warmed": (1.4, 2.0, 2.8, 4.0, 5.6, 8.0),
}
WARM_UPS: dict[str, tuple[int, dict[str, float]]] = {
    "tasks": (100, {"learning_rate": 5e-4}),
    "mixture": (100, {"learning_rate": 2e-4}),
    "general": (100, {"learning_rate": 2e-4}),
    "safety": (100, {"learning_rate": 2e-4}),
}
"""Examples and settings of the warm-up of the LM of 4.5M, those of its label fine-tunes; SmolLM2 has 50, at 1e-4."""
"""Weights of gradients, of the last of them, that are tried, by how they are taken and how they are relative."""


def labelled(role: str, judged: bool, lms: list[str]) -> dict[str, tuple[LabelledInstance, Path]]:
    """Labelled instances of a role and the LM of each, to choose weights by or to judge them by."""
    corpus = airrep.read_corpus(HERE / "work" / "data" / role / "judge.jsonl")
    (by_tiny,) = gather([f"{HERE}/roles/labels/{role}-judge#{int(judged)}"], [corpus])
    found = {"4.5M": (by_tiny, TINY)}
    part = f"{role}-{'real' if judged else 'real-tune'}"
    if (HERE / "smollm2" / "labels" / part).is_dir():
        data = [airrep.read_corpus(HERE / "work" / "data" / part / f"{name}.jsonl") for name in ("pool", "queries")]
        (by_smollm2,) = gather([f"{HERE}/smollm2/labels/{part}"], data)
        found["135M"] = (by_smollm2, SMOLLM2)
    return {lm: one for lm, one in found.items() if lm in lms}


class Scores(NamedTuple):
    """Group scores of each channel on one instance, without weights."""

    subsets: np.ndarray
    """``(channels, q, m)``."""
    reference: np.ndarray
    """``(channels, q, groups)``: of random groups, which tell relative weights."""
    losses: np.ndarray

    def parts(self, weights: list[float], recipe: Sequence[Channel]) -> np.ndarray:
        """Return what each channel of a recipe gives with these weights, ``(channels, q, m)``."""
        channels = [one.model_copy(update={"weight": weight}) for one, weight in zip(recipe, weights, strict=True)]
        return self.subsets * relative_weights(channels, self.reference).T[:, :, None]

    def total(self, weights: list[float], recipe: Sequence[Channel]) -> np.ndarray:
        """Σ_c w_c g_c, ``(q, m)`` float32."""
        return self.parts(weights, recipe).sum(axis=0).astype(np.float32)


def with_lm(recipe: Sequence[Channel], lm: Path, warmed: Path | None = None) -> Sequence[Channel]:
    """Channels of an LM; beside gradients what it expects counts less, as in an index with both."""
    if not any(one.relative for one in recipe):
        return ChannelsSettings(lm=str(lm), channels=read_channels("text")).channels
    few = [
        one.model_copy(update={"settings": {**one.settings, "sample": SAMPLE}}) if one.method == "ekfac" else one
        for one in recipe
    ]
    settings = {"lm": str(lm), "channels": few, "warmed": None if warmed is None else str(warmed)}
    return ChannelsSettings.of(settings, "channels").channels


def warmed_up(role: str, lm: str, folder: Path, instance: LabelledInstance) -> Path:
    """The LM after a fine-tune on a random subset of the pool, as its labels were made; drawn as no subset was."""
    count, settings = WARM_UPS[role] if lm == "4.5M" else (50, {"learning_rate": 1e-4})
    out = KEPT / f"warm-{role}-{lm}"
    airrep.warm_up(instance.train, out, {"lm": str(folder), "precision": "float32"}, settings, count=count)
    return out


def _by_exponent(channel: Channel, exponent: float | None) -> Channel:
    """EK-FAC with this exponent, if one was asked for; other channels as they are."""
    if channel.method != "ekfac" or exponent is None:
        return channel
    return channel.model_copy(update={"settings": {**channel.settings, "exponent": exponent}})


def channel_scores(
    name: str, instance: LabelledInstance, lm: Path, recipe: Sequence[Channel], warmed: Path | None = None
) -> Scores:
    """Group scores of each channel."""
    found = []
    for channel in with_lm(recipe, lm, warmed):
        told = channel.model_dump_json(exclude={"weight", "name", "relative"})
        kept = KEPT / f"{name}-{re.sub(' ', '-', channel.title)}-{sha256(told.encode()).hexdigest()[:8]}.npz"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            method = make_attributor(channel.method, channel.settings)
            pool, features = channel_pooling(channel, method), MemberFeatures.of(method, instance)
            np.savez(kept, subsets=features.pooled(pool), reference=features.reference_scores(pool))
        found.append(np.load(kept))
    subsets, reference = (
        np.stack([one[part].astype(np.float64) for one in found]) for part in ("subsets", "reference")
    )
    return Scores(subsets, reference, instance.losses)


def main() -> None:
    """Print a line for each role that judges."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradients", nargs="?", const="logra", choices=tuple(FACTORS), help="with those of the LM")
    parser.add_argument("--lm", action="append", choices=("4.5M", "135M"), help="of this LM alone; gradients cost")
    parser.add_argument("--exponent", type=float, help="of the curvature in EK-FAC; the recipe has one")
    parser.add_argument("--role", action="append", choices=ROLES, help="no more than what this role would choose")
    given = parser.parse_args()
    lms = given.lm or ["4.5M", "135M"]
    warm = given.gradients == "warmed"
    name = {None: "text", "logra": "lm", "warmed": "lm-warm", "both": "lm-whole"}.get(given.gradients)
    chosen = read_channels(name or str(HERE / "channels" / "whole.yaml"))
    recipe = [_by_exponent(one, given.exponent) for one in chosen]
    learn: dict[str, list[Scores]] = {}
    for role in given.role or ROLES:
        learn[role] = []
        for lm, (instance, folder) in labelled(role, False, lms).items():
            after = warmed_up(role, lm, folder, instance) if warm else None
            scores = channel_scores(f"{role}-{lm}-choose", instance, folder, recipe, after)
            learn[role] += [scores] * (2 if lm == "135M" else 1)
            if given.gradients:
                show_factors(f"{role}, {lm}", scores, recipe)
    if given.gradients:
        show_means(learn, recipe)
    if given.role or warm:  # with a warm-up weights are chosen here alone
        return
    for role in ROLES:
        weights = weights_of([one for other in ROLES if other != role for one in learn[other]], recipe)
        print(f"{role}: weights of the other roles {shown(weights)}")
        for lm, (instance, folder) in labelled(role, True, lms).items():
            scores = channel_scores(f"{role}-{lm}-judge", instance, folder, recipe)
            counted = scores.subsets[0].astype(np.float32)
            for name, some in (("these", weights), ("shipped", [one.weight for one in recipe])):
                ours = scores.total(some, recipe)
                found = held_out_lds([ours], [instance])
                gap = compare_held_out([ours], [counted], [instance])
                print(
                    f"    judged by {lm}, {name:8} {100 * found.value:5.1f} ({ends(found.interval)}), "
                    f"above n-grams of tokens {100 * gap.value:+.1f} ({ends(gap.interval)})",
                    flush=True,
                )
    print(f"weights of all roles {shown(weights_of([one for role in ROLES for one in learn[role]], recipe))}")
    print(f"shipped {shown([one.weight for one in recipe])}")


def by_factor(one: Scores, recipe: Sequence[Channel]) -> dict[float, float]:
    """LDS of an instance for each weight of gradients; infinity: the last of them alone."""
    text = [channel.weight for channel in recipe if not channel.relative]
    first = [channel.weight for channel in recipe if channel.relative][:-1]
    kind = "warmed" if recipe[-1].warmed else "both" if first else recipe[-1].method
    tried = (0.0, *FACTORS[kind])
    found = {weight: lds(one.parts([*text, *first, weight], recipe).sum(axis=0), one) for weight in tried}
    return {**found, np.inf: lds(one.subsets[-1], one)}


def lds(scores: np.ndarray, one: Scores) -> float:
    """The LDS of group scores, without its interval."""
    return airrep.metrics.lds(scores.astype(np.float32), one.losses, resamples=2).value


def show_factors(name: str, one: Scores, recipe: Sequence[Channel]) -> None:
    """Print how far text and gradients agree on an instance, and its LDS by the weight of gradients."""
    text = [channel.weight for channel in recipe if not channel.relative]
    both = np.tensordot(text, one.reference[: len(text)], axes=1), one.reference[len(text)]
    agreement = [np.corrcoef(ours, theirs)[0, 1] for ours, theirs in zip(*both, strict=True)]
    print(f"{name}: correlation of text and gradients, median {np.nanmedian(agreement):.2f}")
    show(by_factor(one, recipe))


def show_means(learn: Mapping[str, Sequence[Scores]], recipe: Sequence[Channel]) -> None:
    """Print the mean LDS of all instances by the weight of gradients."""
    found = [by_factor(one, recipe) for instances in learn.values() for one in instances]
    print("mean of all, those of the larger LM twice")
    show({key: float(np.mean([one[key] for one in found])) for key in found[0]})


def show(found: Mapping[float, float]) -> None:
    """Print an LDS for each weight."""
    print(f"    weight {', '.join(f'{weight:g}: {100 * value:.1f}' for weight, value in found.items())}", flush=True)


def weights_of(labels: list[Scores], recipe: Sequence[Channel]) -> list[float]:
    """Weights by Eq. 8, the first of them 1: of text, then of gradients beside text."""
    text = sum(not channel.relative for channel in recipe)
    losses = [one.losses for one in labels]
    weights = fit_weights([[one.subsets[channel] for one in labels] for channel in range(text)], losses)
    found = [weight / weights[0] for weight in weights]
    if len(recipe) > text:
        parts = [one.parts([*found, 1.0], recipe) for one in labels]
        sums, gradients = [part[:text].sum(axis=0) for part in parts], [part[text] for part in parts]
        whole, beside = fit_weights([sums, gradients], losses)
        found.append(beside / whole)
    return found


def shown(weights: list[float]) -> str:
    """Weights with two digits behind the point."""
    return ", ".join(f"{weight:.2f}" for weight in weights)


def ends(interval: tuple[float, float]) -> str:
    """Both ends, × 100."""
    return " to ".join(f"{100 * end:.1f}" for end in interval)


if __name__ == "__main__":
    main()
