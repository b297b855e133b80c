"""Sample, label, weigh channels, train and judge within a time budget."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from airrep.attributors.base import Attributor
from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import Channel, ChannelsSettings
from airrep.attributors.settings import METHOD_SETTINGS
from airrep.corpus.corpus import Corpus, of_answers
from airrep.encoder.folders import DEFAULT, parse_json
from airrep.errors import AirRepError, ArtifactError, ConfigError, TrainingError, many
from airrep.evaluation.statistics.labels import REMEDY, moved
from airrep.labels.farm import TaskReport, label, make_folder
from airrep.labels.labels import LabelledInstance, check_disjoint
from airrep.labels.plan import SamplingSettings
from airrep.labels.sampling import sample
from airrep.lm.model import load_lm
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import warm_up
from airrep.planning.budget import (
    MEASURED,
    STEP_QUERIES,
    STEP_SUBSETS,
    AtHand,
    Costs,
    LearnPlan,
    check_affordable,
    check_enough,
    choose,
    measure_machine,
    time_left,
)
from airrep.runtime.artifacts import canonical_json, locked
from airrep.runtime.engine import Engine
from airrep.runtime.metering import hours_line
from airrep.runtime.publishing import write_file
from airrep.runtime.remote.places import here_only
from airrep.runtime.seeding import stream
from airrep.training.linear.recipe import Adapted, adapt
from airrep.training.settings import TrainingSettings
from airrep.training.train import OnRecord, train_encoder

PLAN = "plan.json"
WARM = "warm"
"""The LM after a fine-tune on a random subset."""
CHANNELS, ENCODER, TRAINED = "channels", "response-encoder", "channels-trained"
"""Folders of results: weights of channels, a trained encoder, and weights of channels and this encoder."""
TRIED = 16
"""Number of examples that each channel is tried on before any fine-tune."""
_LAYERS = {"learning_rate": 1e-4, "head_learning_rate": 3e-4, "subsets_per_step": STEP_SUBSETS}
_PROJECTION = {"head_learning_rate": 5e-4, "head_dropout": 0.5, "weight_decay": 10.0, "subsets_per_step": 64}

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Adaptation:
    """One corpus, one LM, one directory; all work in the directory can be resumed."""

    corpus: Corpus
    lm: LmSettings
    tuning: FineTuneSettings
    out: Path
    queries: Corpus | None = None
    """Queries of the verdict; None: rows of the corpus, drawn at random."""
    start: str = DEFAULT
    engine: Engine | None = None
    workers: int = 1
    seed: int = 0
    tell: Tell = lambda _: None
    """Callback that receives a line on each thing that is being done."""
    on_task: Callable[[TaskReport], None] | None = None
    on_step: OnRecord | None = None

    def run(self, seconds: float | LearnPlan) -> Adapted:
        """Choose a plan that fits *seconds*, or take the given plan; run it; judge the result.

        Weights, pools and temperatures of channels are learnt first, since few labels are enough for them. If the plan
        has time, an encoder is then trained and becomes one more channel. If labels take longer than was measured,
        there are fewer training steps. A resumed run has the whole budget again.

        Raises:
            ConfigError: too little time, too few examples, or an invalid setting.
            DataError: all losses are alike, or no channel's scores rise with the labels.
            ArtifactError: the directory holds something else.
            TrainingError: all fine-tunes failed, or training cannot continue.
        """
        if (lm := self.lm.before()) != self.lm:
            return replace(self, lm=lm).run(seconds)
        if self.queries is not None and not len(self.queries):
            raise ConfigError("queries is empty. Pass at least one query.")
        out, begun, tell = make_folder(here_only(self.out, "an adaptation is made")), time.monotonic(), self.tell
        with locked(out):
            plan, usable = self._plan(out, seconds)
            asked = self._asked(plan)
            learn, rest = split(usable, plan, self.seed)
            members = self._members(usable)
            tell(
                f"running {2 * plan.held_out_subsets:,} fine-tunes, to learn a weight for each method and to test the "
                "weighted sum of their scores"
            )
            weigh, last = self._held_out(out, rest, asked, plan)
            check_disjoint([weigh], [last])
            change = moved([last])
            hardly = change is not None and change.hardly
            if change is not None and hardly:
                tell(f"{change.sentence}. So small a change cannot show how good the methods are. {REMEDY}")
            if plan.warms:
                members += self._warmed(out / WARM, weigh.train, plan.size, members)
            tell(
                "learning a weight for each method, then testing the weighted sum of the methods' scores on examples "
                "and queries that were kept for the test"
            )
            found = self._weighed(out / CHANNELS, members, weigh, last)
            if plan.trains and not hardly:
                count = f"{plan.subsets:,} fine-tunes, each on {plan.size:,} of {plan.pool:,} examples"
                tell(f"making labels (measured losses) to train the encoder: {count}")
                taught = self._labels(out / "learn", learn, plan, held_out=0)
                check_disjoint(taught, [weigh, last])
                tell(f"training the encoder: at most {plan.steps:,} steps, train_layers {plan.train_layers}")
                left = None if isinstance(seconds, LearnPlan) else time_left(seconds, time.monotonic() - begun)
                folder, settings = out / ENCODER, self._training(plan)
                # The encoder is trained beside n-gram counts, so that it learns what counts cannot know.
                counting = [one for one in found.channels if one.method == "ngram"]
                train_encoder(taught, [weigh], folder, settings, beside=counting, seconds=left, progress=self.on_step)
                seen = {"encoder": str(folder), "view": settings.view}
                encoder = Channel(method="airrep", settings=seen, name="trained encoder")
                found = self._weighed(out / TRAINED, [*members, encoder], weigh, last)
            return found

    def forecast(self, seconds: float) -> LearnPlan:
        """Measure this machine and return the plan that :meth:`run` would choose for *seconds*; nothing is written."""
        return replace(self, lm=self.lm.before())._choose(seconds)[0]

    def _members(self, usable: Corpus) -> list[Channel]:
        """Return the shipped channels, with the LM's tokens and gradients; report and leave out those that fail."""
        shipped = (self._readable(one, usable) for one in ChannelsSettings(lm=self.lm.lm).channels)
        return [one for one in shipped if one is not None]

    def _warmed(self, folder: Path, pool: Corpus, size: int, members: Sequence[Channel]) -> list[Channel]:
        """Return the channel of gradients after a fine-tune on a random subset; none if *members* have no gradients."""
        if not any(one.method == "logra" for one in members):
            return []
        self.tell(
            f"fine-tuning the LM on {size:,} examples, to use gradients before and after this fine-tune; the "
            f"fine-tuned LM is saved in {folder}"
        )
        try:
            warm_up(pool, folder, self.lm, self.tuning, count=size, seed=self.seed)
        except TrainingError as error:
            self.tell(
                "the short fine-tune failed, so the recipe (list of methods) uses no gradients of the fine-tuned LM: "
                f"{error}"
            )
            return []
        found = self._readable(ChannelsSettings(lm=self.lm.lm, warmed=str(folder)).channels[-1], pool)
        return [] if found is None else [found]

    def _readable(self, channel: Channel, corpus: Corpus) -> Channel | None:
        """Return a channel that reads the LM with the labels' settings; report it and return None if it fails."""
        fields = METHOD_SETTINGS[channel.method].model_fields if "lm" in channel.settings else {}
        reading = {"store": "none", **self.lm.model_dump(exclude_unset=True, exclude={"lm", "checkpointing"})}
        own = {name: value for name, value in reading.items() if name in fields}
        if channel.warmed:  # the fine-tuned LM is a complete model, whatever the LM before it was
            own = {name: value for name, value in own.items() if name not in ("base", "merged")}
        some = corpus.take(range(min(TRIED, len(corpus))))
        try:
            method = make_attributor(channel.method, {**channel.settings, **own})
            method.fit(some)
            method.encode_train(some)
        except AirRepError as error:
            self.tell(f"the method {channel.title} is left out: {error}")
            return None
        return channel.model_copy(update={"settings": {**channel.settings, **own}})

    def _weighed(
        self, out: Path, members: Sequence[Channel], weigh: LabelledInstance, last: LabelledInstance
    ) -> Adapted:
        against, tuned = rivals(self.lm), self.tuning.summary
        return adapt(tuple(members), [weigh], [last], out, rivals=against, tell=self.tell, tuned=tuned)

    def _usable(self) -> Corpus:
        """Return the examples whose responses the LM can read whole and that are not queries."""
        found = self._read_whole(self.corpus, "examples")
        if self.queries is None:
            return found
        rows = np.flatnonzero(np.isin(found.content_hashes, self.queries.content_hashes))
        if len(rows):
            self.tell(f"{many(len(rows), 'example')} left out, because the same text is a query")
        return found.without(rows.tolist())

    def _read_whole(self, corpus: Corpus, what: str) -> Corpus:
        """Return the part of a corpus whose responses the LM can read whole."""
        lm = load_lm(self.lm)
        refused = lm.unusable(of_answers(corpus))
        if what == "examples":  # they may be queries too, and a trainer may learn more of them than the answer
            refused |= lm.unusable(corpus)
        if not refused:
            return corpus
        row, reason = min(refused.items())
        if len(refused) == len(corpus):
            raise ConfigError(f"{what}: the LM can read none of {len(corpus):,}. A reason: {reason}")
        one = "example is" if what == "examples" else "query is"
        self.tell(f"{many(len(refused), one, f'{what} are')} left out; the first, '{corpus[row].id}': {reason}")
        return corpus.without(refused)

    def _asked(self, plan: LearnPlan) -> Corpus | None:
        """Return the given queries that the LM can read, each text once; None if none are given."""
        if self.queries is None:
            return None
        found = self._read_whole(self.queries, "queries")
        found = found.take(np.sort(np.unique(found.content_hashes, return_index=True)[1]))
        drawn = min(len(found), plan.held_out_queries)
        few = "" if drawn == len(found) else f", drawn at random from {len(found):,}"
        self.tell(
            "airrep learns a weight for each method on rows of your data, and tests the weighted sum of the methods' "
            f"scores on {drawn:,} of your queries{few}"
        )
        return found

    def _held_out(
        self, out: Path, rest: Corpus, asked: Corpus | None, plan: LearnPlan
    ) -> tuple[LabelledInstance, LabelledInstance]:
        """Return an instance to weigh channels on and one to judge on, the latter with the given queries if any."""
        if asked is None:
            weigh, last = self._labels(out / "judge", rest, plan, held_out=2)
            return weigh, last
        ours, theirs = halves(rest, plan.held_out_pool + plan.held_out_queries, self.seed)
        (weigh,) = self._labels(out / "weigh", ours, plan, held_out=1)
        (last,) = self._labels(out / "judge", theirs, plan, held_out=1, queries=asked)
        return weigh, last

    def _training(self, plan: LearnPlan) -> TrainingSettings:
        """Return the settings that worked best in `experiments/LOG.md`, for layers or for the projection alone."""
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

    def _labels(
        self, out: Path, corpus: Corpus, plan: LearnPlan, *, held_out: int, queries: Corpus | None = None
    ) -> list[LabelledInstance]:
        """Sample and label *held_out* instances to weigh or judge by, or one to train on if that is 0."""
        drawn = plan.held_out_queries if held_out else plan.queries
        settings = SamplingSettings(
            instances=held_out or 1,
            train_count=plan.held_out_pool if held_out else plan.pool,
            query_count=drawn if queries is None else min(drawn, len(queries)),
            subsets=plan.held_out_subsets if held_out else plan.subsets,
            size=plan.size,
            disjoint_instances=held_out > 0,
            seed=self.seed,
        )
        subsets = sample(corpus, out / "subsets", settings, queries)
        tuned = self.lm, self.tuning, out / "labels"
        labels = label(subsets, corpus, queries, *tuned, engine=self.engine, partial=True, on_task=self.on_task)
        found = labels.instances(corpus, queries)
        return [replace(instance, name=f"{out.name} {instance.name}") for instance in found]

    def _plan(self, out: Path, seconds: float | LearnPlan) -> tuple[LearnPlan, Corpus]:
        """Return the plan of an interrupted run with the same request, or a new plan; and the usable examples.

        The directory is not a stage: it is never finished as a whole. Each artifact in it has its own stage.
        """
        request = {
            "budget": seconds.model_dump(mode="json") if isinstance(seconds, LearnPlan) else seconds,
            "data": self.corpus.fingerprint,
            "lm": self.lm.model_dump(mode="json"),
            "fine_tuning": self.tuning.model_dump(mode="json"),
            "start": self.start,
            "seed": self.seed,
            **({} if self.queries is None else {"queries": self.queries.fingerprint}),
        }
        path = out / PLAN
        if path.exists():
            return _stored_plan(path, request), self._usable()
        plan, usable = (seconds, self._usable()) if isinstance(seconds, LearnPlan) else self._choose(seconds)
        write_file(path, canonical_json({"request": request, "plan": plan.model_dump(mode="json")}))
        return plan, usable

    def _choose(self, seconds: float) -> tuple[LearnPlan, Corpus]:
        """Measure the machine, then read all examples and choose a plan.

        Before anything is measured, only the number of examples can be checked.
        """
        begun, tell = time.monotonic(), self.tell
        check_enough(len(self.corpus))

        def at_hand(costs: Costs, examples: int) -> AtHand:
            return AtHand(seconds - (time.monotonic() - begun), costs, examples, self.workers, self.tuning.epochs)

        def check(least: Costs, likely: Costs) -> None:
            check_affordable(at_hand(least, len(self.corpus)), likely)

        tell("measuring this machine")
        costs = measure_machine(self.corpus, self.lm, self.tuning, self.start, self.seed, check)
        usable = self._usable()
        plan = choose(at_hand(costs, len(usable)))
        tell(
            f"an example takes {1000 * costs.fine_tune:.1f} ms to fine-tune on, {1000 * costs.evaluate:.1f} ms to "
            f"evaluate, {1000 * costs.encode:.1f} ms to encode"
        )
        took = plan.label_seconds(costs) / self.workers + plan.train_seconds(costs)
        tunes = plan.subsets + 2 * plan.held_out_subsets
        tell(hours_line(tunes, took, measured=f"on {MEASURED} examples; includes learning and testing"))
        pays = plan.pays_from(costs)
        if not plan.trains:
            tell(
                "the budget is too short to train an encoder, so only the weighted sum of the methods' scores is learnt"
            )
        elif pays is None:
            tell(
                "training an encoder never saves time here: to encode an example takes at least as long as its "
                "gradient with the language model"
            )
        else:
            tell(
                f"with at least {pays:,.0f} examples, training an encoder and encoding all of them takes less time "
                "than computing their gradients"
            )
        return plan, usable


def _stored_plan(path: Path, request: dict[str, Any]) -> LearnPlan:
    stored = parse_json(path)
    before = stored.get("request") if isinstance(stored, dict) else None
    if not isinstance(stored, dict) or not isinstance(before, dict):
        raise ArtifactError(f"{path}: was altered. Delete the directory, or give another --out.")
    different = next((name for name in request if before.get(name) != request[name]), None)
    if different is not None:
        raise ArtifactError(
            f"{path.parent}: holds results that `airrep adapt` made with a different value of '{different}'; these "
            "results are not overwritten. Give another --out."
        )
    return LearnPlan.of(stored["plan"], where=str(path))


def rivals(lm: LmSettings) -> dict[str, Attributor]:
    """Return methods that need no labels, which the learnt sum must beat."""
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
    """Draw a part to train on and a part to weigh, stop and judge by; equal prompts are in one part."""
    learn, rest = halves(corpus, plan.pool + plan.queries, seed)
    needed = 2 * (plan.held_out_pool + plan.held_out_queries)
    if len(rest) < needed:
        raise ConfigError(
            f"data: {needed:,} examples must be kept out of training, for validation and test, but only "
            f"{many(len(rest), 'is', 'are')} left, because examples with the same prompt stay together. Remove "
            "repeated prompts, or give more examples."
        )
    return learn, rest


def halves(corpus: Corpus, count: int, seed: int) -> tuple[Corpus, Corpus]:
    """Draw *count* examples or a few more, and return them and the others; equal prompts are in one part."""
    prompts: dict[str, list[int]] = {}
    for row, example in enumerate(corpus):
        prompts.setdefault(example.prompt, []).append(row)
    members = list(prompts.values())
    first: list[int] = []
    others: list[int] = []
    for place in stream(seed, "adapt", "split").permutation(len(prompts)):
        (first if len(first) < count else others).extend(members[place])
    return corpus.take(sorted(first)), corpus.take(sorted(others))
