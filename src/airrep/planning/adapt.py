"""Sample, label, weigh channels, train and judge within a time budget."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airrep.attributors.base import Attributor
from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import Channel, ChannelsSettings
from airrep.attributors.settings import METHOD_SETTINGS
from airrep.corpus.corpus import Corpus
from airrep.encoder.folders import DEFAULT, parse_json
from airrep.errors import AirRepError, ArtifactError, ConfigError, TrainingError
from airrep.labels.farm import TaskReport, label, make_folder
from airrep.labels.instance import LabelledInstance, check_disjoint
from airrep.labels.plan import SamplingSettings
from airrep.labels.sampling import sample
from airrep.lm.model import load_lm
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import warm_up
from airrep.planning.budget import STEP_QUERIES, STEP_SUBSETS, Costs, LearnPlan, check_enough, choose, time_left
from airrep.runtime.artifacts.digests import canonical_json
from airrep.runtime.artifacts.locks import locked
from airrep.runtime.engine import Engine, one_thread
from airrep.runtime.publishing.files import write_file
from airrep.runtime.remote.places import here_only
from airrep.runtime.seeding import stream
from airrep.training.linear.stack import Stack, learn_stack
from airrep.training.run import OnRecord
from airrep.training.settings import TrainingSettings
from airrep.training.start import load_trainable
from airrep.training.train import train_encoder

PLAN = "plan.json"
WARM = "warm"
"""The LM after a fine-tune on a random subset."""
CHANNELS, ENCODER, TRAINED = "channels", "response-encoder", "channels-trained"
"""What is learnt: weights of channels, an encoder, and weights with it."""
MEASURED = 64
"""Examples that are fine-tuned on, and evaluated, to measure the machine."""
TRIED = 16
"""Examples that channels are tried on before any work."""
_LAYERS = {"learning_rate": 1e-4, "head_learning_rate": 3e-4, "subsets_per_step": STEP_SUBSETS}
_PROJECTION = {"head_learning_rate": 5e-4, "head_dropout": 0.5, "weight_decay": 10.0, "subsets_per_step": 64}

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Adaptation:
    """One corpus, one LM, one directory; everything below it can be resumed."""

    corpus: Corpus
    lm: LmSettings
    tuning: FineTuneSettings
    out: Path
    start: str = DEFAULT
    engine: Engine | None = None
    workers: int = 1
    seed: int = 0
    on_task: Callable[[TaskReport], None] | None = None
    on_step: OnRecord | None = None

    def run(self, seconds: float | LearnPlan, tell: Tell) -> Stack:
        """Choose a plan for so many seconds, or take the one given; run it; judge.

        Weights, pools and temperatures of channels come first, since few labels teach them; an encoder of its own
        follows if the plan has time for one, and is a channel more.

        Args:
            seconds: the budget by the clock, or the plan itself. Where labels take longer than was measured, there are
                fewer training steps; a run that goes on has the budget anew.
            tell: told in a line what is being done.

        Raises:
            ConfigError: too little time or too few examples, or a setting that cannot hold.
            DataError: labels tell nothing: all losses are alike, or no channel rises with them.
            ArtifactError: the directory holds something else.
            TrainingError: all fine-tunes failed, or training cannot go on.
        """
        if (lm := self.lm.before()) != self.lm:
            return replace(self, lm=lm).run(seconds, tell)
        out, begun = make_folder(here_only(self.out, "an adaptation is made")), time.monotonic()
        with locked(out):
            plan = self._plan(out, seconds, tell)
            usable = self._usable(tell)
            learn, rest = split(usable, plan, self.seed)
            members = self._members(usable.take(range(min(TRIED, len(usable)))), tell)
            tell(f"labels to weigh channels and to judge by: {2 * plan.held_out_subsets:,} fine-tunes")
            weigh, last = self._labels(out / "judge", rest, plan, held_out=True)
            check_disjoint([weigh], [last])
            if plan.warms:
                members += self._warmed(out / WARM, weigh.train, plan.size, members, tell)
            tell("weighing channels, and judging on examples and queries that took no part")
            found = self._weighed(out / CHANNELS, members, weigh, last, tell)
            if plan.trains:
                tell(f"labels for the encoder: {plan.subsets:,} fine-tunes on {plan.size:,} of {plan.pool:,} examples")
                taught = self._labels(out / "learn", learn, plan, held_out=False)
                check_disjoint(taught, [weigh, last])
                tell(f"training the encoder: at most {plan.steps:,} steps, train_layers {plan.train_layers}")
                left = None if isinstance(seconds, LearnPlan) else time_left(seconds, time.monotonic() - begun)
                folder, settings = out / ENCODER, self._training(plan)
                # The encoder learns beside counting, so what counting cannot know.
                counting = [one for one in found.channels if one.method == "ngram"]
                train_encoder(taught, [weigh], folder, settings, beside=counting, seconds=left, progress=self.on_step)
                seen = {"encoder": str(folder), "view": settings.view}
                encoder = Channel(method="airrep", settings=seen, name="trained encoder")
                found = self._weighed(out / TRAINED, (*members, encoder), weigh, last, tell)
            return found

    def _members(self, some: Corpus, tell: Tell) -> tuple[Channel, ...]:
        """The channels that airrep ships, with the LM's tokens and gradients; those that cannot be had are told."""
        found = (self._readable(one, some, tell) for one in ChannelsSettings(lm=self.lm.lm).channels)
        return tuple(one for one in found if one is not None)

    def _warmed(
        self, folder: Path, pool: Corpus, size: int, members: tuple[Channel, ...], tell: Tell
    ) -> tuple[Channel, ...]:
        """The channel of gradients after a fine-tune on a random subset; none where those before it cannot be had."""
        if not any(one.method == "logra" for one in members):
            return ()
        tell(f"a warm-up on {size:,} examples, after which gradients are read once more; {folder} keeps the LM")
        try:
            warm_up(pool, folder, self.lm, self.tuning, count=size, seed=self.seed)
        except TrainingError as error:
            tell(f"without gradients after a warm-up: {error}")
            return ()
        channel = ChannelsSettings(lm=self.lm.lm, warmed=str(folder)).channels[-1]
        found = self._readable(channel, pool.take(range(min(TRIED, len(pool)))), tell)
        return () if found is None else (found,)

    def _readable(self, channel: Channel, some: Corpus, tell: Tell) -> Channel | None:
        """A channel that reads the LM as it was labelled; None, and told, where it cannot be had of *some* examples."""
        fields = METHOD_SETTINGS[channel.method].model_fields if "lm" in channel.settings else {}
        reading = {"store": "none", **self.lm.model_dump(exclude_unset=True, exclude={"lm", "checkpointing"})}
        own = {name: value for name, value in reading.items() if name in fields}
        if channel.warmed:  # it is whole, whatever the LM before it was
            own = {name: value for name, value in own.items() if name not in ("base", "merged")}
        try:
            method = make_attributor(channel.method, {**channel.settings, **own})
            method.fit(some)
            method.encode_train(some)
        except AirRepError as error:
            tell(f"without the channel {channel.title}: {error}")
            return None
        return channel.model_copy(update={"settings": {**channel.settings, **own}})

    def _weighed(
        self, out: Path, members: tuple[Channel, ...], weigh: LabelledInstance, last: LabelledInstance, tell: Tell
    ) -> Stack:
        return learn_stack(members, [weigh], [last], out, rivals=rivals(self.lm), tell=tell)

    def _usable(self, tell: Tell | None = None) -> Corpus:
        """The examples whose responses the LM can read whole."""
        refused = load_lm(self.lm).unusable(self.corpus)
        if not refused:
            return self.corpus
        row, reason = next(iter(refused.items()))
        if tell is not None:
            tell(f"{len(refused):,} examples are left out; the first, '{self.corpus[row].id}': {reason}")
        return self.corpus.without(refused)

    def _training(self, plan: LearnPlan) -> TrainingSettings:
        """What worked best in `experiments/LOG.md`, for layers and for the projection alone."""
        often = max(5, plan.steps // 20)
        values: dict[str, Any] = {
            "start": self.start,
            "train_layers": plan.train_layers,
            "view": "response",
            "steps": plan.steps,
            "queries_per_step": STEP_QUERIES,
            "pull_to_start": True,
            "warmup_steps": often,
            "evaluate_every": often,
            "checkpoint_every": often,
            "patience": 6,
            "seed": self.seed,
        }
        return TrainingSettings.of(values | (_PROJECTION if plan.train_layers == 0 else _LAYERS))

    def _labels(self, out: Path, corpus: Corpus, plan: LearnPlan, *, held_out: bool) -> list[LabelledInstance]:
        settings = SamplingSettings(
            instances=2 if held_out else 1,
            train_count=plan.held_out_pool if held_out else plan.pool,
            query_count=plan.held_out_queries if held_out else plan.queries,
            subsets=plan.held_out_subsets if held_out else plan.subsets,
            size=plan.size,
            disjoint_instances=held_out,
            seed=self.seed,
        )
        subsets = sample(corpus, out / "subsets", settings)
        labels = label(
            subsets,
            corpus,
            None,
            self.lm,
            self.tuning,
            out / "labels",
            engine=self.engine,
            partial=True,
            on_task=self.on_task,
        )
        return [replace(instance, name=f"{out.name} {instance.name}") for instance in labels.instances(corpus)]

    def _plan(self, out: Path, seconds: float | LearnPlan, tell: Tell) -> LearnPlan:
        """The plan of an interrupted run with the same request, or a new one.

        No stage of its own: this directory is never whole, only the artifacts in it are, each by its own stage.
        """
        request = self._request(seconds)
        path = out / PLAN
        if path.exists():
            return _stored_plan(path, request)
        plan = seconds if isinstance(seconds, LearnPlan) else self._choose(seconds, tell)
        write_file(path, canonical_json({"request": request, "plan": plan.model_dump(mode="json")}))
        return plan

    def _request(self, seconds: float | LearnPlan) -> dict[str, Any]:
        given = seconds.model_dump(mode="json") if isinstance(seconds, LearnPlan) else seconds
        return {
            "budget": given,
            "data": self.corpus.fingerprint,
            "lm": self.lm.model_dump(mode="json"),
            "fine_tuning": self.tuning.model_dump(mode="json"),
            "start": self.start,
            "seed": self.seed,
        }

    def _choose(self, seconds: float, tell: Tell) -> LearnPlan:
        begun = time.monotonic()
        usable = self._usable()
        check_enough(len(usable))
        tell("measuring this machine")
        costs = measure_machine(usable, self.lm, self.tuning, self.start, self.seed)
        left = seconds - (time.monotonic() - begun)
        plan = choose(left, costs, len(usable), self.workers, self.tuning.epochs)
        minutes = (plan.label_seconds(costs) / self.workers + plan.train_seconds(costs)) / 60
        tell(
            f"an example takes {1000 * costs.fine_tune:.1f} ms to fine-tune on, {1000 * costs.evaluate:.1f} ms to "
            f"evaluate, {1000 * costs.encode:.1f} ms to encode: expecting {minutes:.0f} minutes in all"
        )
        return plan


def _stored_plan(path: Path, request: dict[str, Any]) -> LearnPlan:
    stored = parse_json(path)
    before = stored.get("request") if isinstance(stored, dict) else None
    if not isinstance(stored, dict) or not isinstance(before, dict):
        raise ArtifactError(f"{path}: was altered. Delete the directory, or give another --out.")
    different = next((name for name in request if before.get(name) != request[name]), None)
    if different is not None:
        raise ArtifactError(
            f"{path.parent}: holds an adaptation with another {different}; nothing is overwritten. Give another --out."
        )
    return LearnPlan.of(stored["plan"], where=str(path))


def rivals(lm: LmSettings) -> dict[str, Attributor]:
    """What is of use without labels, which what was learnt must beat."""
    named = lm.model_dump(include={"lm", "base", "merged"}, exclude_none=True)
    read = lm.model_dump(include={"base", "merged", "template", "cut", "max_tokens"}, exclude_none=True)
    return {
        "default channels": make_attributor("channels"),
        "default channels, with the LM": make_attributor("channels", named),
        "n-grams of the LM's tokens": make_attributor("ngram", {"tokenizer": lm.lm, "rendered": True, **read}),
        "TF-IDF": make_attributor("tfidf"),
        "TF-IDF of responses": make_attributor("tfidf", {"view": "response"}),
    }


def split(corpus: Corpus, plan: LearnPlan, seed: int) -> tuple[Corpus, Corpus]:
    """A part to learn from and a part to stop and judge by, drawn at random; equal prompts are in one part."""
    prompts: dict[str, list[int]] = {}
    for row, example in enumerate(corpus):
        prompts.setdefault(example.prompt, []).append(row)
    order = stream(seed, "adapt", "split").permutation(len(prompts))
    members = list(prompts.values())
    learn: list[int] = []
    rest: list[int] = []
    for place in order:
        (learn if len(learn) < plan.pool + plan.queries else rest).extend(members[place])
    needed = 2 * (plan.held_out_pool + plan.held_out_queries)
    if len(rest) < needed:
        raise ConfigError(
            f"data: {len(rest):,} examples are left to judge by; expected {needed:,}: too many share a prompt. "
            "Remove repeated prompts, or give more examples."
        )
    return corpus.take(sorted(learn)), corpus.take(sorted(rest))


def measure_machine(corpus: Corpus, lm: LmSettings, tuning: FineTuneSettings, start: str, seed: int) -> Costs:
    """What one worker of this machine needs, from a few fine-tuned, evaluated and encoded examples."""
    rows = stream(seed, "adapt", "measure").permutation(len(corpus))[:MEASURED]
    examples = corpus.take(sorted(rows))
    target, encoder = load_lm(lm), load_trainable(start)
    documents = target.tokenise(examples)
    once = tuning.model_copy(update={"epochs": 1})
    with one_thread():
        target.losses(documents)  # what is done for the first time takes longer
        evaluate = _seconds(lambda: target.losses(documents))
        tune = _seconds(lambda: target.fine_tune(documents, once, seed))
        encoder.encode(list(examples)[:4])
        encode = _seconds(lambda: encoder.encode(list(examples)))
    one = [max(1e-6, seconds / len(examples)) for seconds in (tune, evaluate, encode)]
    return Costs(fine_tune=one[0], evaluate=one[1], encode=one[2], layers=encoder.checkpoint.model.shape.layers)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
