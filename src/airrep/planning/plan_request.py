"""The request for a plan, checked, and the benchmarks that it needs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from airrep.attributors.methods import method_named
from airrep.corpus.corpus import Corpus
from airrep.encoder.folders import DEFAULT
from airrep.errors import LM, ConfigError, TrainingError, near, need
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.planning.budget import HELD_OUT_SHARE, LearnPlan, held_out_subsets
from airrep.planning.trial_method import MethodTask, try_method
from airrep.planning.trials import LabelTrial, MethodTrial, TrainingTrial, distinct_rows
from airrep.runtime.engine import Engine, R, T
from airrep.runtime.processes import LocalProcesses
from airrep.runtime.seeding import stream

ENCODER = "airrep"
SAMPLE = 4000
"""Examples drawn at random, of which some are measured and the lengths of all are counted."""
LEFT_OUT = ("airrep", "datamodels", "precomputed")
"""Methods that are planned for anyway, or that no language model and corpus alone can tell about."""

Tell: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class PlanRequest:
    """Request for a plan: a corpus, an LM, methods, and how much is to be learnt.

    Raises:
        ConfigError: numbers or methods that cannot be.
    """

    texts: Corpus
    """Examples like those of the corpus."""
    examples: int
    """Examples of the corpus."""
    lm: LmSettings | None
    """None: nothing is fine-tuned, so no labels and no training are planned, and the encoder is taken as it is."""
    methods: tuple[str, ...] = ("channels", "logra")
    """Methods beside the encoder: what `airrep index --lm` takes, and its gradients alone."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of methods; each takes those that it knows."""
    encoder: str = DEFAULT
    tuning: FineTuneSettings = field(default_factory=FineTuneSettings)
    subsets: int = 600
    """Subsets to learn from."""
    size: int = 100
    """Examples in each."""
    queries: int = 400
    """Queries whose losses are noted after each fine-tune."""
    steps: int = 300
    """Training steps of the encoder."""
    train_layers: int | str = 2
    """Layers that are trained: all, or that many from the top."""
    workers: int = 1
    """Processes at once, of one thread each."""
    seconds: float = 60.0
    """How long to measure; starting processes comes on top."""
    seed: int = 0

    @classmethod
    def of(
        cls, texts: Corpus, examples: int, lm: str | None, settings: Mapping[str, Any], train_layers: str, **rest: Any
    ) -> "PlanRequest":
        """A request with settings of methods, of the LM and of fine-tuning in one mapping.

        Raises:
            ConfigError: a value that cannot hold.
        """
        known = (LmSettings.model_fields, FineTuneSettings.model_fields)
        of_lm, of_tuning = ({name: value for name, value in settings.items() if name in fields} for fields in known)
        others = {name: value for name, value in settings.items() if name not in {**of_lm, **of_tuning}}
        if train_layers != "all" and not train_layers.isdecimal():
            raise ConfigError(f"plan: train_layers is '{train_layers}'; expected all, or a number. Correct the value.")
        layers = train_layers if train_layers == "all" else int(train_layers)
        tuning = FineTuneSettings.of(of_tuning)
        if lm is None:
            if of_tuning:
                raise ConfigError(
                    f"plan: '{next(iter(of_tuning))}' is a setting of fine-tuning, and there is no LM. Give --lm, or "
                    "leave it out."
                )
            return cls(texts, examples, None, settings={**of_lm, **others}, train_layers=layers, **rest)
        lm_settings = LmSettings.of({**of_lm, "lm": lm})
        return cls(texts, examples, lm_settings, settings=others, tuning=tuning, train_layers=layers, **rest)

    def __post_init__(self) -> None:
        """Check what can be checked before any work."""
        for name in ("examples", "subsets", "size", "queries", "steps", "workers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"plan: {name} is {getattr(self, name)}; expected 1 or more. Correct the value.")
        if not 1 <= self.seconds < float("inf"):
            raise ConfigError(f"plan: seconds is {self.seconds:g}; expected 1 or more. Correct the value.")
        for number, method in enumerate(self.methods):
            method_named(method)
            if method in self.methods[:number]:
                raise ConfigError(f"plan: method '{method}' is named twice; expected it once. Leave one out.")
            if method in LEFT_OUT:
                other = "tfidf" if self.lm is None else "logra"
                raise ConfigError(
                    f"plan: method '{method}' is not planned for by --method. Name others, such as {other}."
                )
            if self.lm is None and needs_lm(method):
                raise ConfigError(f"plan: method '{method}' reads a language model. Give --lm, or leave it out.")
        known = {name for method in self.methods for name in method_named(method).settings.model_fields}
        known |= {"device"} if self.lm is None else set()  # the encoder's
        unknown = next((name for name in self.settings if name not in known), None)
        if unknown is not None:
            meant = near(unknown, sorted(known), "Correct the name.")
            raise ConfigError(f"plan: none of the methods has a setting '{unknown}'. {meant}")

    @property
    def device(self) -> str:
        """What models compute on, as it was asked for."""
        return str(self.settings.get("device", "auto")) if self.lm is None else self.lm.device

    def settings_of(self, method: str) -> dict[str, Any]:
        """Settings of a method: of the LM where it reads one, and those that it knows."""
        fields = method_named(method).settings.model_fields
        given = self.lm.model_dump(exclude_defaults=True) if self.lm is not None and "lm" in fields else {}
        return {name: value for name, value in {**given, **self.settings}.items() if name in fields}

    @property
    def learning(self) -> LearnPlan:
        """Labels and training as numbers, split by the rules of `airrep adapt`."""
        share = HELD_OUT_SHARE / 2
        return LearnPlan(
            size=max(2, self.size),
            subsets=max(2, self.subsets),
            held_out_subsets=held_out_subsets(self.subsets),
            pool=max(2, self.size, round((1 - 2 * share) * self.examples)),
            held_out_pool=max(2, self.size, round(share * self.examples)),
            queries=self.queries,
            held_out_queries=self.queries,
            epochs=self.tuning.epochs,
            train_layers=self.train_layers,
            steps=self.steps,
        )


def needs_lm(method: str) -> bool:
    """Whether a method cannot do without a language model."""
    field = method_named(method).settings.model_fields.get("lm")
    return field is not None and field.is_required()


@dataclass(frozen=True)
class Measures:
    """Measurements of this machine."""

    methods: Mapping[str, MethodTrial]
    """By name, the encoder among them."""
    labels: LabelTrial | None = None
    """None without an LM, as is training."""
    training: TrainingTrial | None = None

    @property
    def parameters(self) -> int | None:
        """The LM's number of parameters; None without one."""
        return None if self.labels is None else self.labels.parameters

    @property
    def learning(self) -> tuple[LabelTrial, TrainingTrial]:
        """Those of labels and of training, where an LM is planned for."""
        assert self.labels is not None
        assert self.training is not None
        return self.labels, self.training


def run_benchmarks(request: PlanRequest, tell: Tell, engine: Engine | None = None) -> Measures:
    """Run every micro-benchmark in a process of its own, on one thread, one after the other.

    *tell* is told what is being measured. *engine* runs them; None is a new process for each, so that each one's peak
    memory is its own.

    Raises:
        ConfigError: too few examples, no such LM, or a setting that does not fit.
        TrainingError: a benchmark failed.
    """
    need("airrep plan", "evaluation", "scipy")
    if request.lm is not None:
        need("airrep plan --lm", "lm", *LM)
        request = replace(request, lm=request.lm.before())
    rows = stream(request.seed, "plan").permutation(len(request.texts))[:SAMPLE]
    texts = request.texts.take(rows)
    distinct_rows(texts)
    share = request.seconds / (len(request.methods) + (1 if request.lm is None else 3))

    def measure(name: str, work: Callable[[T], R], task: T) -> R:
        tell(f"measuring {name}, about {share:.0f} s")
        return _run(name, work, task, engine or LocalProcesses(1))

    encoder = {"encoder": request.encoder, "device": request.device}
    settings = {ENCODER: encoder, **{name: request.settings_of(name) for name in request.methods}}
    methods = {
        name: measure(name, try_method, MethodTask(name, given, texts, share)) for name, given in settings.items()
    }
    if request.lm is None:
        return Measures(methods)
    from airrep.planning.trial_learning import TrainTask, TuneTask, try_labels, try_training

    labels = TuneTask(request.lm, request.tuning, request.size, texts, share)
    training = TrainTask(request.encoder, request.train_layers, texts, share, request.seed)
    return Measures(methods, measure("labels", try_labels, labels), measure("training", try_training, training))


def _run(name: str, work: Callable[[T], R], task: T, engine: Engine) -> R:
    (outcome,) = engine.run(partial(_itself, work), [task], 0)
    if outcome.value is None:
        raise TrainingError(f"plan: {name} could not be measured: {outcome.error}")
    return outcome.value


def _itself(work: Callable[[T], R]) -> Callable[[T], R]:
    """The work, which needs nothing made in a worker."""
    return work
