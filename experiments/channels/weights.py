"""Weights of the default channels that hold across roles: learnt from all roles but one, judged on that one.

Usage: python experiments/channels/weights.py [--gradients]

In the folder of the repository, after the data steps of `roles` and `smollm2`; with the gradients of the LM if asked.

Weights are learnt by Eq. 8 on the instances 0 of the other roles, by the LM of 4.5M parameters and by SmolLM2-135M, the
larger LM, whose labels count twice. Channels count the tokens of the LM that judges. Nothing of the role that is judged
is read. The last lines are the weights that all roles give together, and those that ship. Group scores are kept below
`work/channels`; delete them to compute them anew.
"""

import argparse
import re
from hashlib import sha256
from pathlib import Path

import numpy as np

import airrep
from airrep.attributors.channels import channel_pooling
from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import default_channels
from airrep.evaluation.judging import compare_held_out, held_out_lds
from airrep.labels.gather import gather
from airrep.labels.instance import LabelledInstance
from airrep.training.linear.weights import MemberFeatures, fit_weights

HERE = Path(__file__).parents[1]
KEPT = HERE / "work" / "channels"
ROLES = ("tasks", "mixture", "general", "safety")
TINY, SMOLLM2 = HERE / "work" / "shared" / "models" / "tiny-lm", HERE / "work" / "models" / "smollm2-135m"
SHIPPED = [channel.weight for channel in default_channels("LM")]


def labelled(role: str, judged: bool) -> dict[str, tuple[LabelledInstance, Path]]:
    """Labelled instances of a role and the LM of each, to choose weights by or to judge them by."""
    corpus = airrep.read_corpus(HERE / "work" / "data" / role / "judge.jsonl")
    (by_tiny,) = gather([f"{HERE}/roles/labels/{role}-judge#{int(judged)}"], [corpus])
    found = {"4.5M": (by_tiny, TINY)}
    part = f"{role}-{'real' if judged else 'real-tune'}"
    if (HERE / "smollm2" / "labels" / part).is_dir():
        data = [airrep.read_corpus(HERE / "work" / "data" / part / f"{name}.jsonl") for name in ("pool", "queries")]
        (by_smollm2,) = gather([f"{HERE}/smollm2/labels/{part}"], data)
        found["135M"] = (by_smollm2, SMOLLM2)
    return found


def channel_scores(name: str, instance: LabelledInstance, lm: Path, gradients: bool) -> list[np.ndarray]:
    """Group scores of each channel, ``(q, m)``, without its weight."""
    scores = []
    for channel in default_channels(str(lm)):
        if channel.method == "logra" and not gradients:
            continue
        shown = channel.model_dump_json(exclude={"weight", "name"})
        kept = KEPT / f"{name}-{re.sub(' ', '-', channel.title)}-{sha256(shown.encode()).hexdigest()[:8]}.npy"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            method = make_attributor(channel.method, channel.settings)
            pooled = MemberFeatures.of(method, instance).pooled(channel_pooling(channel, method))
            np.save(kept, pooled)
        scores.append(np.load(kept))
    return scores


def total(weights: list[float], scores: list[np.ndarray]) -> np.ndarray:
    """Σ_c w_c g_c, ``(q, m)`` float32."""
    return sum(weight * one.astype(np.float64) for weight, one in zip(weights, scores, strict=True)).astype(np.float32)


def main() -> None:
    """Print a line for each role that judges."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradients", action="store_true", help="with the gradients of the LM")
    gradients = parser.parse_args().gradients
    learn: dict[str, list[tuple[list[np.ndarray], np.ndarray]]] = {}
    for role in ROLES:
        learn[role] = []
        for lm, (instance, folder) in labelled(role, judged=False).items():
            scores = channel_scores(f"{role}-{lm}-choose", instance, folder, gradients)
            learn[role] += [(scores, instance.losses)] * (2 if lm == "135M" else 1)
    for role in ROLES:
        weights = weights_of([one for other in ROLES if other != role for one in learn[other]])
        print(f"{role}: weights of the other roles {shown(weights)}")
        for lm, (instance, folder) in labelled(role, judged=True).items():
            scores = channel_scores(f"{role}-{lm}-judge", instance, folder, gradients)
            for name, some in (("these", weights), ("shipped", SHIPPED[: len(scores)])):
                ours = total(some, scores)
                found = held_out_lds([ours], [instance])
                gap = compare_held_out([ours], [scores[0]], [instance])
                print(
                    f"    judged by {lm}, {name:8} {100 * found.value:5.1f} ({ends(found.interval)}), "
                    f"above n-grams of tokens {100 * gap.value:+.1f} ({ends(gap.interval)})",
                    flush=True,
                )
    print(f"weights of all roles {shown(weights_of([one for role in ROLES for one in learn[role]]))}")
    print(f"shipped {SHIPPED[: len(learn['tasks'][0][0])]}")


def weights_of(labels: list[tuple[list[np.ndarray], np.ndarray]]) -> list[float]:
    """Weights by Eq. 8, the first of them 1."""
    channels = range(len(labels[0][0]))
    weights = fit_weights(
        [[scores[channel] for scores, _ in labels] for channel in channels], [one for _, one in labels]
    )
    return [weight / weights[0] for weight in weights]


def shown(weights: list[float]) -> str:
    """Weights with two digits behind the point."""
    return ", ".join(f"{weight:.2f}" for weight in weights)


def ends(interval: tuple[float, float]) -> str:
    """Both ends, × 100."""
    return " to ".join(f"{100 * end:.1f}" for end in interval)


if __name__ == "__main__":
    main()
