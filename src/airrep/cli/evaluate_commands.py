"""Commands that judge methods by labels, and compare what was judged."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli import options
from airrep.cli.flags import SetFlag, Setting, SettingsFlags
from airrep.cli.options import JsonOption, OutputOptions, ReplaceOption, note, open_moved_index
from airrep.dropped import COMMANDS, instead_of
from airrep.errors import ConfigError, need

if TYPE_CHECKING:
    from airrep.evaluation.lds import LdsStudy
    from airrep.evaluation.result import Evaluation
    from airrep.index.index import Index
    from airrep.labels.labels import LabelledInstance


INDEXES = typer.Argument(
    metavar="INDEX...", help="Index directories, one for each row of the printed table. NAME=INDEX names the row."
)


@dataclass
class EvaluationOptions:
    """Options of an evaluation's output: format, directory, tags."""

    as_json: JsonOption = False
    run: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="RUN",
            help="Also write the evaluation to this folder. If it already holds an evaluation of the same inputs, "
            "that one is shown.",
        ),
    ] = None
    tag: Annotated[list[str] | None, "Keep a note key=value, such as role=tasks, in the results; may be repeated."] = (
        None
    )
    replace: ReplaceOption = False
    track: options.TrackOption = None

    def begin(self, ctx: typer.Context) -> None:
        """Start the tracker, before any work, so that a wrong --track fails early."""
        self.log = options.tracker(ctx, self.track).log

    def deliver(
        self,
        request: Mapping[str, Any],
        make: "Callable[[], Evaluation]",
        print_made: "Callable[[Evaluation], None]",
        *,
        partial: bool = False,
    ) -> None:
        """Show the existing evaluation for a request; or make the evaluation, write it with --out, and show it.

        The request holds everything that determines the result: fingerprints of indexes and labels, settings. Without
        *partial*, an evaluation that lacks failed parts is made again and replaced.
        """
        from airrep.evaluation.result import command_line

        need("airrep evaluate", "evaluation", "scipy")
        tags = parse_tags(self.tag)
        found = self._found(request)
        lacking = found is not None and not (found.complete or partial)
        if lacking:
            note(f"{self.run}: some fine-tunes had failed and are missing; airrep runs them now")

        def make_tagged() -> "Evaluation":
            made = replace(make(), tags=tags, request=request, command=command_line(sys.argv[1:]))
            self.log({f"{made.measure}/{row.name}": row.value for row in made.rows})
            return made

        OutputOptions(self.as_json, self.run, self.replace or lacking).find_or_make(
            lambda _: found, make_tagged, print_made, ", with the names and tags shown; --replace makes it again"
        )

    def _found(self, request: Mapping[str, Any]) -> "Evaluation | None":
        from airrep.evaluation.result import RESUMED, Evaluation, check_no_answers
        from airrep.runtime.artifacts import check_replaceable, real_path

        if self.run is None:
            return None
        if self.replace:
            check_replaceable(real_path(self.run), Evaluation.kind)
            return None
        if request["measure"] not in RESUMED:  # these go on from the answers that lie in their directory
            check_no_answers(self.run)
        return Evaluation.find(self.run, request)


def parse_named(text: str) -> tuple[str, Path]:
    """Return name and path of ``NAME=INDEX``; a path without a name, or an existing path with =, is its own name."""
    name, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        return text, Path(text)
    if not name or not path:
        raise ConfigError(f"'{text}': does not name an index. Write INDEX or NAME=INDEX.")
    return name, Path(path)


def open_named(texts: Sequence[str], settings: Mapping[str, Any]) -> "list[tuple[str, Index]]":
    """Open indexes given as INDEX or NAME=INDEX, with settings changed by ``NAME:key=value``."""
    from airrep.evaluation.result import check_names

    paths = [parse_named(text) for text in texts]
    check_names([name for name, _ in paths])
    moved: dict[str, dict[str, Any]] = {name: {} for name, _ in paths}
    for text, value in settings.items():
        name = next((name for name in moved if text.startswith(f"{name}:")), None)
        if name is None:
            raise ConfigError(
                f"--set {text}: does not begin with the name of an index. Write NAME:key=value, and give NAME=INDEX."
            )
        moved[name][text.removeprefix(f"{name}:")] = value
    return [(name, open_moved_index(path, moved[name])) for name, path in paths]


def parse_tags(texts: Sequence[str] | None) -> dict[str, str]:
    """Parse tags given as ``key=value``, each key once."""
    tags: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value):
            raise ConfigError(f"--tag {text}: must be key=value, such as role=tasks.")
        if key in tags:
            raise ConfigError(f"--tag {text}: the key '{key}' is given twice. Remove one of the two tags.")
        tags[key] = value
    return tags


DataOption = Annotated[list[str] | None, f"{options.SAMPLED_HELP} {options.DATA_HELP}"]
LabelsOption = Annotated[
    list[str] | None,
    f"Measured losses to compare the scores with; may be repeated. {options.CHOICE_HELP} Also accepts a folder of the "
    "Hub dataset sunweiwei/airrep-test.",
]
SettingsOption = Annotated[
    Mapping[str, Any],
    SetFlag(
        "Setting of the fine-tuning or of the LM, as in learning_rate=1e-4. For a setting of one index, write the name "
        "from NAME=INDEX before it, as in NAME:recipe=my-recipe.yaml."
    ),
]
_OF_SELECTION = ("random", "full", "none", "max_new_tokens", "seed")
SelectionOptions = Annotated[
    Mapping[str, Any],
    SettingsFlags("airrep.evaluation.contest:SelectSettings", ("by", "seeds"), _OF_SELECTION, mode="own"),
]
_OF_LABELS = ("labels", "data", "pool", "tune", "resamples", "what_if", "why", "partial")
_OF_QUERIES = ("queries", "by", "where")
_OF_FINE_TUNES = ("workers", "engine", "address", "gpus", "retries", "training")
_OF_ENGINE = (*_OF_FINE_TUNES, "partial")
_EFFECTIVE: Mapping[str, tuple[str, ...]] = {
    "labels": _OF_LABELS,
    "labels and --why": ("labels", "data", "pool", "why", "partial"),
    "queries": (*_OF_QUERIES, "vote", "skip_unlabelled"),
    "queries and --remove": ("queries", "where", "remove", "lm", "seeds", "seed", *_OF_FINE_TUNES),
    "queries and --rows": ("queries", "where", "rows"),
    "queries, --rows and an --lm": ("queries", "where", "rows", "lm", "count", "seed", *_OF_FINE_TUNES),
    "queries and an --lm": (*_OF_QUERIES, "lm", "count", "selecting", "seeds", *_OF_SELECTION, *_OF_ENGINE),
}
"""Options and settings that have an effect on each kind of evaluation."""

app = typer.Typer()


@dataclass(frozen=True)
class ByLabels:
    """Options of judging by labels."""

    labels: LabelsOption = None
    data: DataOption = None
    pool: options.PoolOption = None
    tune: Annotated[
        list[str] | None,
        "Labels (measured losses), other than those of --labels, to choose how much a group's highest scores "
        "count: the softmax temperature of --pool attention or signed-attention.",
    ] = None
    why: Annotated[bool, "Explain a low LDS (rank correlation with measured losses)."] = False
    resamples: Annotated[int, Setting("With --labels: number of bootstrap draws behind each interval.", 50)] = 1000
    what_if: Annotated[
        bool,
        Setting(
            "Predict the effect of leaving examples out as `airrep what-if` does. Works if --labels were made from "
            "`airrep sample --removals`."
        ),
    ] = False


@dataclass(frozen=True)
class ByQueries:
    """Options of judging by queries: by classes or facts, or by fine-tunes with or without the top examples."""

    selection: SelectionOptions
    running: options.EngineOptions
    queries: Annotated[str | None, typer.Option(metavar="DATA", help="File, folder or Hub id of queries.")] = None
    where: options.WhereOption = None
    lm: Annotated[
        str | None,
        "Target LM, a folder or a Hub id. With --queries and --count it is fine-tuned on the examples selected for "
        "each task.",
    ] = None
    count: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --lm: number of examples to select for each task. The AirRep paper selects 1000."
        ),
    ] = None
    remove: Annotated[
        str | None,
        "With --lm: number of each query's top examples to leave out of a fine-tune, such as 10 or 1%. For comparison, "
        "airrep also leaves out the same number of random examples.",
    ] = None
    rows: Annotated[
        str | None,
        "Field of each query that says which training examples taught the answer: by their ids, or by a value that "
        "they have in their field of this name.",
    ] = None
    selecting: Annotated[
        str | None,
        Setting("Other queries of the same tasks, used to select examples. The test queries then stay unseen."),
    ] = None
    vote: Annotated[
        list[int] | None,
        Setting("Also predict each query's class by majority vote of the top K examples. Default: 10.", 1),
    ] = None
    skip_unlabelled: Annotated[bool, Setting("Leave out queries without a class; the output counts them.")] = False
    retries: options.RetriesOption = 2

    @property
    def named(self) -> str:
        """Return the key of :data:`_EFFECTIVE` for the given options."""
        if self.remove is not None:
            return "queries and --remove"
        if self.rows is not None:
            return "queries and --rows" if self.lm is None else "queries, --rows and an --lm"
        return "queries" if self.lm is None else "queries and an --lm"


PARTIAL_HELP = (
    "With --labels: accept labels (measured losses) although some fine-tunes are missing. With --count: finish without "
    "the fine-tunes that failed."
)


@app.command("evaluate")
def evaluate_command(
    ctx: typer.Context,
    reading: options.ReadingOptions,
    judging: EvaluationOptions,
    by_labels: ByLabels,
    by_queries: ByQueries,
    indexes: Annotated[list[str] | None, INDEXES] = None,
    *,
    training: options.TrainingOption = None,
    partial: Annotated[bool, PARTIAL_HELP] = False,
    settings: SettingsOption,
) -> None:
    """Measure how well indexes predict losses after fine-tunes, or how well they find examples with a query's label.

    With --labels, the value is the LDS: the rank correlation of predicted with measured losses, over the subsets that
    `airrep label` fine-tuned on. The index must contain all examples that the labels were made from.

    With --labels from `airrep sample --removals`, airrep prints the rank correlation between an index's scores and the
    measured effects of leaving examples out. With two or more seeds, airrep also prints the noise ceiling: the rank
    correlation that perfect scores would reach. --why explains a low rank correlation (docs/diagnosis.md).

    With --queries, airrep prints how often the top training example has the query's label. --by compares the values of
    another field. Copies of the query itself do not count. All indexes must hold the same data.

    With --queries, --lm and --count, airrep selects examples for each task, fine-tunes the LM on them, and scores the
    LM's answers (unigram F1). --training reads the settings of the fine-tuning from your trainer's folder or config
    file. With --out, run the same command again after an interruption to go on.

    With --queries, --lm and --remove, airrep fine-tunes the LM without the top examples of each query. The value is how
    much the query's loss rises, compared with leaving out random examples.

    With --queries and --rows, airrep tests whether the index ranks first the examples that taught a fact (mean
    reciprocal rank and recall). With --lm and --count, airrep also measures how much the answer's probability rises
    after one training step on each top example.
    """
    gone = instead_of(COMMANDS, f"evaluate {(indexes or [''])[0]}")
    if gone is not None and not Path((indexes or [""])[0]).exists():
        raise ConfigError(gone)
    _check_together(by_labels, by_queries)
    judging.begin(ctx)
    if by_labels.labels or by_labels.why or by_queries.queries is None:
        _check_given(ctx, "labels and --why" if by_labels.why else "labels")
        _by_labels(indexes or [], by_labels, reading, judging, settings, partial=partial)
        return
    _check_given(ctx, by_queries.named)
    moved = {name: value for name, value in settings.items() if by_queries.lm is None or ":" in name}
    opened = open_named(indexes or [], moved)
    if not opened:
        raise ConfigError("evaluate: no index is given. Add INDEX or NAME=INDEX.")
    if by_queries.lm is None and by_queries.rows is None:
        _by_classes(opened, by_queries, reading, judging)
        return
    own = options.TuningOptions({name: value for name, value in settings.items() if name not in moved}, training)
    if by_queries.remove is not None or by_queries.rows is not None:
        _by_effects(opened, by_queries, own, reading, judging)
        return
    _by_selection(opened, by_queries, own, reading, judging, partial=partial)


def _check_together(by_labels: ByLabels, by_queries: ByQueries) -> None:
    asked = by_queries
    needs = {
        "--lm needs --queries, and --count or --remove. Add them.": asked.queries is None and asked.lm is not None,
        "--remove needs --queries and --lm, the model that is fine-tuned without the top examples. Add them.": (
            asked.remove is not None and (asked.queries is None or asked.lm is None)
        ),
        "--rows names a field of the queries. Add --queries.": asked.rows is not None and asked.queries is None,
        "--count needs --lm, the model that is fine-tuned on the selected examples. Add --lm.": (
            asked.queries is not None and asked.lm is None and asked.count is not None
        ),
        "--rows with --lm needs --count, the number of top examples to train on. Add --count.": (
            asked.rows is not None and asked.remove is None and asked.lm is not None and asked.count is None
        ),
        "--why explains a low LDS (rank correlation of predicted with measured losses), so it needs --labels and "
        "--data. Add them.": by_labels.why and not by_labels.labels,
    }
    lacking = next((text for text, holds in needs.items() if holds), None)
    if lacking is not None:
        raise ConfigError(f"evaluate: {lacking}")


def _check_given(ctx: typer.Context, by: str) -> None:
    known = {name for names in _EFFECTIVE.values() for name in names}
    idle = sorted(options.typed(ctx) & known - {*_EFFECTIVE[by]})
    if idle:
        flag = options.flag_of(ctx, idle[0])
        raise ConfigError(f"evaluate: {flag} has no effect with --{by}. Leave one of them out.")


def _by_classes(
    opened: "list[tuple[str, Index]]", asked: ByQueries, reading: options.ReadingOptions, judging: EvaluationOptions
) -> None:
    from airrep.cli.show.evaluations import print_classification
    from airrep.evaluation.classify import Classification, ClassifySettings

    values = {"by": asked.selection["by"], "where": asked.where, "skip_unlabelled": asked.skip_unlabelled}
    settings = ClassifySettings.of({**values, **({"votes": tuple(asked.vote)} if asked.vote else {})})
    test = Classification(opened, reading.read(asked.queries or ""), settings)
    judging.deliver(test.request, lambda: test.run(True), print_classification)


def _by_effects(
    opened: "list[tuple[str, Index]]",
    asked: ByQueries,
    configuring: options.TuningOptions,
    reading: options.ReadingOptions,
    judging: EvaluationOptions,
) -> None:
    """Judge by fine-tunes without the top examples, or by ranks of the examples that taught facts."""
    from airrep.cli.show.evaluations import print_drop, print_trace
    from airrep.cli.show.learning import TaskMeter
    from airrep.evaluation.effects.refits import Drop, DropSettings, Running
    from airrep.evaluation.effects.trace import Trace, TraceSettings

    queries, where = reading.read(asked.queries or ""), {"where": asked.where, "seed": asked.selection["seed"]}
    running = Running(asked.running.make(), asked.retries, TaskMeter(judging.log))
    made: Drop | Trace
    if asked.remove is not None:
        settings = DropSettings.of({**where, "drop": asked.remove, "seeds": asked.selection["seeds"]}, "--remove")
        lm, tuning = configuring.of_lm(asked.lm or "", reading=reading)
        made = Drop(opened, queries, lm, settings, tuning, running)
    else:
        counted = {} if asked.count is None else {"count": asked.count}
        facts = TraceSettings.of({**where, **counted, "facts": asked.rows})
        model = () if asked.lm is None else (*configuring.of_lm(asked.lm, reading=reading), running)
        made = Trace(opened, queries, facts, *model)
    print_made = print_drop if isinstance(made, Drop) else print_trace
    judging.deliver(made.request, lambda: made.run(judging.run, replace=judging.replace), print_made)


def _by_selection(
    opened: "list[tuple[str, Index]]",
    asked: ByQueries,
    configuring: options.TuningOptions,
    reading: options.ReadingOptions,
    judging: EvaluationOptions,
    *,
    partial: bool,
) -> None:
    from airrep.cli.show.evaluations import print_selection
    from airrep.cli.show.learning import TaskMeter
    from airrep.evaluation.contest import Contest, SelectSettings
    from airrep.evaluation.select import DataSelection

    if asked.count is None:
        raise ConfigError("evaluate: --lm needs --count, the number of examples to select for each task. Add --count.")
    chosen = SelectSettings.of({"count": asked.count, "where": asked.where, **asked.selection})
    contest = Contest(opened, reading.read(asked.queries or ""), reading.read_if(asked.selecting), chosen)
    study = DataSelection(contest, *configuring.of_lm(asked.lm or "", reading=reading), asked.running.make())
    often: dict[str, Any] = {"retries": asked.retries, "partial": partial, "replace": judging.replace}
    judging.deliver(
        study.request,
        lambda: study.run(judging.run, **often, progress=True, on_task=TaskMeter(judging.log)),
        print_selection,
        partial=partial,
    )


def _by_labels(
    indexes: list[str],
    asked: ByLabels,
    reading: options.ReadingOptions,
    judging: EvaluationOptions,
    settings: Mapping[str, Any],
    *,
    partial: bool,
) -> None:
    from airrep.cli.show.evaluations import print_correlations
    from airrep.labels.gather import gather, mixture

    if not (indexes or asked.why):
        raise ConfigError(
            "evaluate: no index is given. Add INDEX or NAME=INDEX, or check only labels: --labels LABELS --why."
        )
    if not asked.labels:
        index = parse_named(indexes[0])[1] if indexes else "INDEX"
        raise ConfigError(
            "evaluate: needs --queries, or --labels (losses that `airrep label` measured). To measure losses and "
            f"evaluate in one step: `airrep prove {index} QUERIES --lm MODEL --budget 30m`."
        )
    opened, tune = open_named(indexes, settings), asked.tune or []
    corpora = [reading.read(path) for path in asked.data or ()]
    judged, tuned = (
        gather(part, corpora, partial=partial, beside=[*asked.labels, *tune], read=reading.read)
        for part in (asked.labels, tune)
    )
    if told := mixture(asked.labels):
        note(f"{told}. The value is a mean over all labels that were given")
    pool = options.typed_pool(asked.pool)
    if asked.why:
        if judging.tag or judging.track:
            name = "--tag" if judging.tag else "--track"
            raise ConfigError(f"evaluate: {name} has no effect with --why. Leave one of them out.")
        _tell_why(asked.labels, judged, [index for _, index in opened], judging, *pool)
        return
    kind = _study(asked.labels, judged, what_if=asked.what_if)
    if tune and kind.measure == "loo":
        raise ConfigError(
            "evaluate: --tune has no effect on labels (measured losses) made from `airrep sample --removals`. "
            "Remove --tune."
        )
    study = kind(opened, judged, *pool, tune=tuned, resamples=asked.resamples)
    judging.deliver(study.request, study.run, print_correlations)


def _study(labels: Sequence[str], judged: "Sequence[LabelledInstance]", *, what_if: bool) -> "type[LdsStudy]":
    """Return the study for the labels, of random subsets or of removals, according to their plan or sizes."""
    from airrep.evaluation.lds import lds_study
    from airrep.evaluation.loo import LooStudy, WhatIfStudy
    from airrep.labels.labels import Labels, holds_labels, is_of_removals

    if what_if:
        return WhatIfStudy
    folders = {Path(one.partition("#")[0]) for one in labels}
    planned = [Labels(one).plan.settings.kind == "removals" for one in folders if holds_labels(one)]
    return LooStudy if any(planned) or any(map(is_of_removals, judged)) else lds_study(judged)


def _tell_why(
    labels: Sequence[str],
    instances: "list[LabelledInstance]",
    indexes: "list[Index]",
    judging: EvaluationOptions,
    *pool: Any,
) -> None:
    """Show a diagnosis; an existing diagnosis of the same inputs is shown again."""
    from airrep.cli.show.evaluations import print_diagnosis
    from airrep.evaluation import diagnosis as study
    from airrep.evaluation.result import command_line

    def make() -> study.Diagnosis:
        seconds = study.seconds_of_fine_tunes([choice.partition("#")[0] for choice in labels])
        return study.diagnose(instances, indexes, *pool, seconds=seconds, command=command_line(sys.argv[1:]))

    options.OutputOptions(judging.as_json, judging.run, judging.replace).find_or_make(
        lambda run: study.Diagnosis.find(run, study.diagnosis_request(instances, indexes, *pool)), make, print_diagnosis
    )


@app.command("compare")
def compare_command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Directories that `airrep evaluate ... --out` wrote.")
    ],
    to: Annotated[
        str | None, "Name of an index in the evaluations. Every other index is compared only with this index."
    ] = None,
    resamples: Annotated[
        int | None,
        Setting("For evaluations with --labels: number of bootstrap draws behind each interval. Default: 1,000.", 50),
    ] = None,
    *,
    delivery: Annotated[options.OutputOptions, {"run": "Also write the comparison here."}],
) -> None:
    """Test, for each pair of indexes in evaluations, whether their LDS (or another measure) differs.

    airrep compares values query by query, so all evaluations must have the same measure, queries and labels (losses
    after fine-tunes). p-values are two-sided. Adjusted p-values (Holm) account for the number of pairs.
    """
    from airrep.cli.show.evaluations import print_comparison
    from airrep.evaluation.comparison import Comparison, compare_evaluations, comparison_request
    from airrep.evaluation.result import Evaluation, command_line

    named = [(str(run), Evaluation.read(run)) for run in runs]
    delivery.find_or_make(
        lambda run: Comparison.find(run, comparison_request(named, to, resamples)),
        lambda: compare_evaluations(named, to, resamples=resamples, command=command_line(sys.argv[1:])),
        print_comparison,
        "; --replace makes it again",
    )
