"""Weights of the default channels that hold across roles: learnt from all roles but one, judged on that one.

Usage: python experiments/channels/weights.py [--gradients] [--lm 4.5M]

In the folder of the repository, after the data steps of `roles` and `smollm2`; with the gradients of the LM if asked.

Weights are learnt by Eq. 8 on the instances 0 of the other roles, by the LM of 4.5M parameters and by SmolLM2-135M, the
larger LM, whose labels count twice. Channels count the tokens of the LM that judges. Nothing of the role that is judged
is read. The last lines are the weights that all roles give together, and those that ship. With gradients it begins with
the LDS of the instances 0, by the weight of gradients, relative and relative "apart". Group scores are kept below
`work/channels`; delete them to compute them anew.
"""

import argparse
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

import airrep
from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import Channel, ChannelsSettings, default_channels
from airrep.attributors.sums.channels import channel_pooling
from airrep.attributors.sums.reference import relative_weights
from airrep.evaluation.judging import compare_held_out, held_out_lds
from airrep.labels.gather import gather
from airrep.labels.instance import LabelledInstance
from airrep.training.linear.weights import MemberFeatures, fit_weights

HERE = Path(__file__).parents[1]
KEPT = HERE / "work" / "channels"
ROLES = ("tasks", "mixture", "general", "safety")
TINY, SMOLLM2 = HERE / "work" / "shared" / "models" / "tiny-lm", HERE / "work" / "models" / "smollm2-135m"
DEFAULT = default_channels("LM")
FACTORS = {True: (0.5, 0.7, 1.0, 1.4, 2.0, 2.8), "apart": (1.4, 2.0, 2.4, 2.8, 3.4, 4.0)}
"""Weights of gradients that are tried, by how they are relative."""


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

    def parts(self, weights: list[float], recipe: Sequence[Channel] = DEFAULT) -> np.ndarray:
        """What each channel of a recipe gives with these weights, ``(channels, q, m)``."""
        channels = [one.model_copy(update={"weight": weight}) for one, weight in zip(recipe, weights, strict=False)]
        return self.subsets * relative_weights(channels, self.reference).T[:, :, None]

    def total(self, weights: list[float]) -> np.ndarray:
        """Σ_c w_c g_c, ``(q, m)`` float32."""
        return self.parts(weights).sum(axis=0).astype(np.float32)


def channel_scores(name: str, instance: LabelledInstance, lm: Path, gradients: bool) -> Scores:
    """Group scores of each channel; beside gradients what the LM expects counts less, as in an index with both."""
    found = []
    for channel in ChannelsSettings(lm=str(lm)).channels if gradients else default_channels(str(lm), "none"):
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
    parser.add_argument("--gradients", action="store_true", help="with the gradients of the LM")
    parser.add_argument("--lm", action="append", choices=("4.5M", "135M"), help="of this LM alone; gradients cost")
    given = parser.parse_args()
    gradients, lms = given.gradients, given.lm or ["4.5M", "135M"]
    learn: dict[str, list[Scores]] = {}
    for role in ROLES:
        learn[role] = []
        for lm, (instance, folder) in labelled(role, False, lms).items():
            scores = channel_scores(f"{role}-{lm}-choose", instance, folder, gradients)
            learn[role] += [scores] * (2 if lm == "135M" else 1)
    if gradients:
        show_factors(learn)
    for role in ROLES:
        weights = weights_of([one for other in ROLES if other != role for one in learn[other]])
        print(f"{role}: weights of the other roles {shown(weights)}")
        for lm, (instance, folder) in labelled(role, True, lms).items():
            scores = channel_scores(f"{role}-{lm}-judge", instance, folder, gradients)
            counted = scores.subsets[0].astype(np.float32)
            for name, some in (("these", weights), ("shipped", [one.weight for one in DEFAULT][: len(weights)])):
                ours = scores.total(some)
                found = held_out_lds([ours], [instance])
                gap = compare_held_out([ours], [counted], [instance])
                print(
                    f"    judged by {lm}, {name:8} {100 * found.value:5.1f} ({ends(found.interval)}), "
                    f"above n-grams of tokens {100 * gap.value:+.1f} ({ends(gap.interval)})",
                    flush=True,
                )
    print(f"weights of all roles {shown(weights_of([one for role in ROLES for one in learn[role]]))}")
    print(f"shipped {shown([one.weight for one in DEFAULT][: len(learn['tasks'][0].subsets)])}")


def show_factors(learn: dict[str, list[Scores]]) -> None:
    """Print the LDS of the instances 0 for each weight of gradients, and how far text and gradients agree there."""
    text = [one.weight for one in DEFAULT if not one.relative]
    first = {role: found[0] for role, found in learn.items()}
    for role, one in first.items():
        both = np.tensordot(text, one.reference[: len(text)], axes=1), one.reference[len(text)]
        agreement = [np.corrcoef(ours, theirs)[0, 1] for ours, theirs in zip(*both, strict=True)]
        print(f"{role}: correlation of text and gradients, median {np.nanmedian(agreement):.2f}")
    for relative, weights in FACTORS.items():
        recipe = [one.model_copy(update={"relative": one.relative and relative}) for one in DEFAULT]
        for weight in (0.0, *weights):
            sums = [one.parts([*text, weight], recipe).sum(axis=0) for one in first.values()]
            pairs = zip(sums, first.values(), strict=True)
            found = [airrep.metrics.lds(ours.astype(np.float32), one.losses, resamples=2).value for ours, one in pairs]
            told = " ".join(f"{100 * value:5.1f}" for value in found)
            print(f"relative {relative}, weight {weight:.1f}: {told}; mean {100 * np.mean(found):.2f}", flush=True)


def weights_of(labels: list[Scores]) -> list[float]:
    """Weights by Eq. 8, the first of them 1: of text, then of gradients beside text."""
    text = sum(not channel.relative for channel in DEFAULT)
    losses = [one.losses for one in labels]
    weights = fit_weights([[one.subsets[channel] for one in labels] for channel in range(text)], losses)
    found = [weight / weights[0] for weight in weights]
    if len(labels[0].subsets) > text:
        parts = [one.parts([*found, 1.0]) for one in labels]
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
