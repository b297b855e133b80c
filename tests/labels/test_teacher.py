"""Labels that an index gives, and encoders that learn from them first."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from worlds.commands import runner
from worlds.small_world import HashAttributor, make_corpus, tree
from worlds.tiny_bert import tiny_folder
from worlds.toy_farm import FINE_TUNE, ToyWorld
from worlds.training_world import KINDS, kind_of, planted, tiny_settings

from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.corpus.corpus import Corpus, Example
from airrep.encoder.load import load_encoder
from airrep.errors import ConfigError, DataError, TrainingError
from airrep.index.building import build_index
from airrep.index.editing import delete
from airrep.index.index import Index
from airrep.labels.farm import label
from airrep.labels.instance import LabelledInstance
from airrep.labels.plan import SamplingSettings
from airrep.labels.sampling import sample
from airrep.labels.teacher import TeacherSettings, Teaching, split_teacher_settings, teach
from airrep.runtime.artifacts.checks import check_digests
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.costs import read_costs
from airrep.runtime.metering import TEACH
from airrep.runtime.seeding import stream
from airrep.training.examples import Batches
from airrep.training.result import TrainingResult
from airrep.training.train import train_encoder

UNSEEN = planted(3, "h")


class Asymmetric(HashAttributor):
    """Encodes queries in another way than training examples."""

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        return 1 + self.encode_train(examples, on_rows)


class KindAttributor(HashAttributor):
    """Knows the hidden kind of each example of the planted world."""

    pool = "mean"

    def __init__(self, sign: float = 1.0) -> None:
        super().__init__(f"kind {sign}")
        self.sign = sign

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        return np.eye(KINDS, dtype=np.float32)[[kind_of(example) for example in examples]]

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        return self.sign * self.encode_train(examples)


class Interruption(BaseException):
    """Stands for a signal."""


def interrupt_at(step: int) -> Callable[[Mapping[str, Any]], None]:
    """A progress that stops the run after some step."""

    def progress(record: Mapping[str, Any]) -> None:
        if record["step"] >= step:
            raise Interruption

    return progress


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals from so few draws that they cost nothing."""
    monkeypatch.setattr("airrep.training.run.RESAMPLES", 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("teachers")


@pytest.fixture(scope="module")
def hashed(folder: Path) -> Index:
    """An index of 60 examples in several shards."""
    return build_index(make_corpus(60), folder / "hashed", HashAttributor(), shard_rows=13)


def kinds(folder: Path, name: str, sign: float = 1.0) -> Index:
    """An index of a planted world's training examples, whose scores are right (or wrong by their sign)."""
    return build_index(planted(9, name, n=150).train, folder / name, KindAttributor(sign))


def asked(**changes: object) -> TeacherSettings:
    """Few and small draws."""
    values = {"sizes": (5,), "instances": 2, "query_count": 6, "subsets": 7}
    return TeacherSettings.of(values | changes)


def naive(attributor: HashAttributor, instance: LabelledInstance, pool: str, temperature: float) -> np.ndarray:
    """Minus the group scores, one by one, in float64."""
    found = np.empty((len(instance.queries), len(instance.subsets)))
    for i, query in enumerate(instance.queries):
        for j in range(len(instance.subsets)):
            members = [instance.train[int(row)] for row in instance.subsets.members(j)]
            x = attributor.encode_queries([query])[0].astype(np.float64)
            scores = [float(x @ attributor.encode_train([z])[0].astype(np.float64)) for z in members]
            shares = [math.exp(abs(s) / temperature) if pool == "attention" else 1.0 for s in scores]
            total = sum(share * s for share, s in zip(shares, scores, strict=True))
            found[i, j] = -(total if pool == "sum" else total / sum(shares))
    return found


@pytest.mark.parametrize(("pool", "temperature"), [("sum", 1.0), ("mean", 1.0), ("attention", 1.0), ("attention", 9.0)])
@pytest.mark.parametrize("method", [HashAttributor, Asymmetric])
def test_losses_are_minus_the_scores_that_a_loop_finds(
    folder: Path, hashed: Index, method: type[HashAttributor], pool: str, temperature: float
) -> None:
    index = Index(hashed.path, method())
    taught = teach(index, asked(pool=pool, temperature=temperature))
    for instance in taught.instances:
        expected = naive(method(), instance, pool, temperature)
        np.testing.assert_allclose(instance.losses, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())
    assert taught.described["pool"] == pool


def test_a_symmetric_method_need_not_encode_what_the_index_has(hashed: Index) -> None:
    attributor = HashAttributor()
    teach(Index(hashed.path, attributor), asked())
    assert attributor.encoded == []


def test_lexical_features_teach_too(folder: Path) -> None:
    index = build_index(make_corpus(60), folder / "words", "tfidf", shard_rows=13)
    (instance,) = teach(index, asked(instances=1)).instances
    train, queries = index.encode_queries(instance.train), index.encode_queries(instance.queries)
    assert isinstance(train, sparse.csr_array)
    member = np.zeros((len(instance.train), 7))
    for j in range(7):
        member[instance.subsets.members(j), j] = 1
    np.testing.assert_allclose(instance.losses, -(queries @ train.T).toarray() @ member, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pool", ["sum", "mean", "attention"])
def test_subsets_of_one_are_different_examples_with_their_own_scores(hashed: Index, pool: str) -> None:
    index = Index(hashed.path, HashAttributor())
    (instance,) = teach(index, asked(instances=1, sizes="1", subsets=500, pool=pool)).instances
    assert sorted(instance.subsets.rows.tolist()) == list(range(54))
    assert set(instance.subsets.sizes.tolist()) == {1}
    np.testing.assert_allclose(instance.losses, naive(HashAttributor(), instance, "sum", 1), rtol=2e-3, atol=0.02)


def test_instances_take_the_sizes_in_turn_and_share_no_text_between_queries_and_pool(folder: Path) -> None:
    doubled = [replace(example, id=f"{copy}{example.id}") for copy in "ab" for example in make_corpus(30)]
    index = build_index(Corpus.from_examples(doubled), folder / "doubled", HashAttributor())
    taught = teach(index, asked(instances=5, sizes=[1, 4, 9]))
    assert [set(instance.subsets.sizes.tolist()) for instance in taught.instances] == [{1}, {4}, {9}, {1}, {4}]
    for instance in taught.instances:
        texts = [{example.content_hash for example in part} for part in (instance.train, instance.queries)]
        assert not texts[0] & texts[1]
        assert len(texts[1]) == len(instance.queries) == 6
        assert len(instance.train) == 60 - 12
    fewer = teach(index, asked(instances=2, sizes=[1, 4, 9]))
    assert [instance.train for instance in fewer.instances] == [instance.train for instance in taught.instances[:2]]
    assert taught.instances[0].queries != taught.instances[3].queries
    other = teach(index, asked(instances=1, sizes=[1, 4, 9], seed=1))
    assert other.instances[0].queries != taught.instances[0].queries


def test_held_out_examples_are_left_out_by_their_text_and_counted(hashed: Index) -> None:
    held = [replace(example, id=f"other {example.id}") for example in make_corpus(60)]
    losses = np.zeros((5, len(UNSEEN.subsets)), np.float32)
    parts = Corpus.from_examples(held[:20]), Corpus.from_examples(held[20:25])
    unseen = replace(UNSEEN, train=parts[0], queries=parts[1], losses=losses)
    told: list[str] = []
    index = Index(hashed.path, HashAttributor())
    taught = teach(index, asked(instances=9), unseen=[unseen], tell=told.append)
    seen = {
        e.content_hash for instance in taught.instances for part in (instance.train, instance.queries) for e in part
    }
    assert seen == {example.content_hash for example in held[25:]}
    assert taught.described["left_out"] == 25
    assert len(told) == 1
    assert "25 examples are in held-out or test instances and were left out" in told[0]
    for instance in taught.instances:
        np.testing.assert_allclose(instance.losses, naive(HashAttributor(), instance, "attention", 1), atol=0.05)


def test_of_a_large_index_a_random_part_is_drawn_from(hashed: Index) -> None:
    others = make_corpus(50, "q")
    taught = teach(Index(hashed.path, HashAttributor()), asked(query_count=20, examples=20), queries=others)
    parts = [{e.id for instance in taught.instances for e in getattr(instance, name)} for name in ("train", "queries")]
    assert [len(part) for part in parts] == [20, 20]
    assert parts[0] != {f"e{number}" for number in range(20)}
    np.testing.assert_allclose(
        taught.instances[1].losses, naive(HashAttributor(), taught.instances[1], "attention", 1), atol=0.05
    )


def test_deleted_examples_are_not_drawn(folder: Path) -> None:
    build_index(make_corpus(60), folder / "edited", HashAttributor())
    delete(Index(folder / "edited", HashAttributor()), [f"e{number}" for number in range(30)])
    taught = teach(Index(folder / "edited", HashAttributor()), asked(instances=5))
    drawn = {
        example.id for instance in taught.instances for part in (instance.train, instance.queries) for example in part
    }
    assert drawn == {f"e{number}" for number in range(30, 60)}
    np.testing.assert_allclose(
        taught.instances[0].losses, naive(HashAttributor(), taught.instances[0], "attention", 1), atol=0.05
    )


def test_queries_may_come_from_elsewhere_and_unseen_ones_are_left_out(hashed: Index) -> None:
    others = make_corpus(20, "q")
    unseen = replace(UNSEEN, queries=others[:5], losses=np.zeros((5, len(UNSEEN.subsets)), np.float32))
    index = Index(hashed.path, HashAttributor())
    taught = teach(index, asked(query_count=10), queries=others, unseen=[unseen])
    for instance in taught.instances:
        assert {example.id for example in instance.queries} <= {f"q{number}" for number in range(5, 20)}
        assert len(instance.train) == 60
        np.testing.assert_allclose(instance.losses, naive(HashAttributor(), instance, "attention", 1), atol=0.05)
    assert taught.described["left_out"] == 5


def test_steps_on_small_subsets_take_as_many_members(hashed: Index) -> None:
    taught = teach(Index(hashed.path, HashAttributor()), asked(instances=3, sizes=[1, 4, 16]))
    assert taught.subsets_per_step(3) == [48, 12, 3]
    assert replace(taught, members=20).subsets_per_step(3) == [20, 5, 2]
    batches = Batches([np.arange(4)] * 2, [np.arange(9)] * 2, 2, [5, 3], 0)
    assert {(draw.instance, len(draw.subsets)) for draw in map(batches.draw, range(6))} == {(0, 5), (1, 3)}


def test_single_examples_are_learnt_from_however_much_their_scores_differ(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, initial_scale=1e4, learning_rate=1e-6)
    index = kinds(tmp_path, "k")
    train_encoder([], [], tmp_path / "single", settings, teaching=teach(index, asked(steps=1, sizes=1, subsets=40)))
    with pytest.raises(TrainingError, match="differ by so much"):
        train_encoder([], [], tmp_path / "pairs", settings, teaching=teach(index, asked(steps=1, sizes=2, subsets=40)))


@pytest.mark.parametrize("layers", ["all", pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_in_either_part_ends_in_the_bytes_of_an_undisturbed_one(
    tmp_path: Path, layers: object
) -> None:
    settings = tiny_settings(
        tmp_path, train_layers=layers, steps=7, dropout=0.1, checkpoint_every=3, pull_to_start=True, weight_decay=1.0
    )
    index, learn = kinds(tmp_path, "k"), [planted(1, "a")]

    def train(name: str, progress: object = None) -> dict[str, bytes]:
        taught = teach(index, asked(steps=6, rate=0.5), unseen=[UNSEEN])
        made = train_encoder(learn, [UNSEEN], tmp_path / name, settings, teaching=taught, progress=progress)
        return {
            file: content for file, content in tree(made.path).items() if not file.endswith(("times.jsonl", ".lock"))
        }

    undisturbed = train("undisturbed")
    for step in (1, 6, 7, 13):
        with pytest.raises(Interruption):
            train("stopped", interrupt_at(step))
    assert train("stopped") == undisturbed
    assert not any(file.startswith("work") for file in undisturbed)


def test_what_a_teacher_took_is_measured_and_kept_with_the_encoder(tmp_path: Path) -> None:
    taught = teach(kinds(tmp_path, "k"), asked(steps=1))
    assert taught.spent is not None
    assert taught.spent.cpu > 0
    made = train_encoder([], [UNSEEN], tmp_path / "encoder", tiny_settings(tmp_path, steps=1), teaching=taught)
    kept = [line.spent for line in read_costs(made.path) if line.stage == TEACH]
    assert kept == [taught.spent]


def test_the_card_tells_of_the_teacher_and_finished_runs_are_told_apart(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, steps=4)
    taught = teach(kinds(tmp_path, "k"), asked(steps=4, sizes=[1, 5]))
    made = train_encoder([planted(1, "a")], [UNSEEN], tmp_path / "both", settings, teaching=taught)
    training, card = made.training, (made.path / "README.md").read_text()
    assert (training["steps"], training["teacher_steps"], training["teacher"]["method"]) == (8, 4, "hash")
    assert "Before any losses, 4 steps on the group scores of a teacher: an index of 150 examples" in card
    assert "| teacher#0 | 144 | 6 | 7 | 1 to 1 |" in card
    assert "Nothing was learnt from losses." not in card
    assert str(tmp_path) not in card
    check_digests(made.path, read_manifest(made.path, "encoder")["files"])
    assert load_encoder(made.path).trained_group_sizes == (1, 20)
    again = train_encoder([planted(1, "a")], [UNSEEN], tmp_path / "both", settings, teaching=taught)
    assert again.training == training
    with pytest.raises(Exception, match="teacher"):
        train_encoder([planted(1, "a")], [UNSEEN], tmp_path / "both", settings, teaching=replace(taught, rate=2.0))


@pytest.fixture(scope="module")
def pupil(folder: Path) -> TrainingResult:
    """An encoder that learnt from a teacher alone."""
    settings = tiny_settings(folder, evaluate_every=10, head_dropout=0.0, queries_per_step=40)
    taught = teach(kinds(folder, "right"), asked(steps=60, query_count=40, subsets=300, sizes=20, rate=3.0))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("airrep.training.run.RESAMPLES", 40)
        return train_encoder([], [UNSEEN], folder / "pupil", settings, teaching=taught)


def test_a_teacher_alone_is_enough_where_something_is_held_out(pupil: TrainingResult) -> None:
    assert pupil.training["steps"] == pupil.training["teacher_steps"] == 60
    assert pupil.training["results"]["held_out"]["gain"]["interval"][0] > 0.1
    assert "Nothing was learnt from losses." in (pupil.path / "README.md").read_text()


def test_labels_go_on_from_the_best_step_of_the_teacher(tmp_path: Path, pupil: TrainingResult) -> None:
    settings = tiny_settings(
        tmp_path, start=str(pupil.path), steps=6, head_dropout=0.0, evaluate_every=2, patience=2, pull_to_start=True
    )
    wild = teach(kinds(tmp_path, "k"), asked(steps=50, query_count=30, subsets=100, rate=300.0))
    learn = [planted(1, "a")]
    alone = train_encoder(learn, [UNSEEN], tmp_path / "alone", settings)
    misled = train_encoder(learn, [UNSEEN], tmp_path / "misled", settings, teaching=wild)
    assert misled.training["teacher_steps"] == 4  # no step was better than the start, which patience noticed
    logs = [(run.path / "steps.jsonl").read_text().splitlines() for run in (alone, misled)]
    values = [[line["held_out_lds"] for line in map(json.loads, log) if "held_out_lds" in line] for log in logs]
    assert max(values[1][1:3]) < values[1][0] - 0.1
    assert values[1][3:] == values[0][1:]  # the very same steps, since all but the start's weights is new


@pytest.mark.slow
def test_a_teacher_helps_where_labels_are_few_and_noisy(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, steps=30, evaluate_every=10, head_dropout=0.0, queries_per_step=40)
    learn = [planted(1, "a", m=8, noise=0.3)]
    taught = teach(kinds(tmp_path, "k"), asked(steps=60, query_count=40, subsets=300, sizes=20, rate=3.0))
    alone = train_encoder(learn, [UNSEEN], tmp_path / "alone", settings)
    helped = train_encoder(learn, [UNSEEN], tmp_path / "helped", settings, teaching=taught)
    assert helped.held_out_lds is not None
    assert alone.held_out_lds is not None
    assert helped.held_out_lds > alone.held_out_lds + 0.15


def test_an_example_of_the_teacher_that_is_held_out_is_refused(tmp_path: Path) -> None:
    index = build_index(UNSEEN.train, tmp_path / "leak", KindAttributor())
    careless = teach(index, asked())
    with pytest.raises(DataError, match="was trained on; expected unseen ones"):
        train_encoder([], [UNSEEN], tmp_path / "encoder", tiny_settings(tmp_path), teaching=careless)
    with pytest.raises(DataError, match="all examples are held out"):
        teach(index, asked(), unseen=[UNSEEN])
    with pytest.raises(DataError, match="teacher queries: all are held out"):
        teach(kinds(tmp_path, "k"), asked(), queries=UNSEEN.queries, unseen=[UNSEEN])


@pytest.mark.parametrize("sizes", ["", "0", "1,x", "-3", 1.5, [], [True], None, "1;2"])
def test_sizes_that_are_none_are_refused_in_words(sizes: object) -> None:
    with pytest.raises(ConfigError, match="expected numbers from 1 up, such as 1,10,100"):
        TeacherSettings.of({"sizes": sizes})


@pytest.mark.parametrize(("sizes", "taken"), [("7", (7,)), (7, (7,)), ("1, 10", (1, 10)), ([2, 3], (2, 3))])
def test_sizes_are_read_as_they_are_written(sizes: object, taken: tuple[int, ...]) -> None:
    assert TeacherSettings.of({"sizes": sizes}).sizes == taken


def test_draws_that_an_index_cannot_give_are_refused(hashed: Index) -> None:
    index = Index(hashed.path, HashAttributor())
    with pytest.raises(DataError, match="train pool of 54"):
        teach(index, asked(sizes=54))
    with pytest.raises(DataError, match="query_count"):
        teach(index, asked(query_count=61))
    with pytest.raises(ConfigError, match="pool"):
        teach(index, asked(pool="loudest"))
    with pytest.raises(ConfigError, match="needs a method that encodes queries as training examples"):
        teach(Index(hashed.path, Asymmetric()), asked(pool="order-2"))


def test_a_teaching_that_teaches_nothing_is_refused(tmp_path: Path, hashed: Index) -> None:
    taught = teach(Index(hashed.path, HashAttributor()), asked())
    for careless in (
        Teaching([]),
        replace(taught, steps=0),
        replace(taught, rate=0.0),
        replace(taught, rate=math.inf),
        replace(taught, members=1),
    ):
        with pytest.raises(ConfigError, match="teaching: "):
            train_encoder([planted(1, "a")], [UNSEEN], tmp_path / "x", tiny_settings(tmp_path), teaching=careless)


def test_settings_of_the_teacher_are_told_by_their_names() -> None:
    assert split_teacher_settings({"steps": 3, "teacher_steps": 4}) == ({"steps": 3}, {"steps": 4})


def test_draws_have_streams_of_their_own(hashed: Index) -> None:
    first, second = teach(Index(hashed.path, HashAttributor()), asked(sizes="1", subsets=99)).instances
    assert first.subsets.members(0).tolist() != second.subsets.members(0).tolist() or first.queries != second.queries
    assert stream(0, "teacher", 0).random() != stream(0, "teacher", 1).random()


Command = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def labelled(folder: Path) -> Path:
    """Data, labels of two instances, the first held out, and a small encoder to start from."""
    data = Corpus.from_examples(
        Example(f"{'abcdefgh'[row % 8]} {'ijklm'[row % 5]} {'nopqrst'[row % 7]}", "uvwxyz"[row % 6], f"e{row}")
        for row in range(120)
    )
    (folder / "data.jsonl").write_text("".join(json.dumps(example.to_dict()) + "\n" for example in data))
    sizes = {"instances": 2, "train_count": 24, "query_count": 4, "subsets": 12, "size": 6, "held_out": 1}
    label(
        sample(data, folder / "plan", SamplingSettings(**sizes)), data, None, ToyWorld(), FINE_TUNE, folder / "labels"
    )
    tiny_folder(folder / "tiny", ((16, 16, True),))
    return folder


@pytest.fixture
def run(labelled: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command line in this process: its status, and what it says on stderr."""
    monkeypatch.chdir(labelled)

    plain = runner(capsys, monkeypatch)

    def run(*arguments: str) -> tuple[int, str]:
        ran = plain(*arguments)
        return ran.status, ran.err

    if not Path("other").exists():
        assert run("index", "data.jsonl", "--encoder", "tiny", "--out", "other")[0] == 0
    return run


TRAIN = ("--held-out", "labels#0", "--data", "data.jsonl", "--start", "tiny", "--set", "initial_scale=0.1")
ASKED = {"--teacher": "other", "--teacher-sizes": "1,6", "--teacher-instances": "2", "--set": "teacher_query_count=9"}
TEACHER = tuple(word for pair in ASKED.items() for word in pair)


def teacher(**changed: str) -> tuple[str, ...]:
    """The options of the teacher, some of them with other values."""
    other = {"--set" if name == "set" else f"--teacher-{name}": value for name, value in changed.items()}
    return tuple(word for pair in (ASKED | other).items() for word in pair)


def test_the_command_teaches_then_trains_and_says_what_it_left_out(run: Command) -> None:
    parts = ("train", "labels#1", *TRAIN, *TEACHER, "--steps", "3", "--out", "encoder")
    status, said = run(*parts, "--teacher-steps", "5", "--teacher-pool", "attention", "--teacher-temperature", "0.5")
    assert status == 0, said
    assert "other: 28 examples are in held-out or test instances and were left out" in said
    training = json.loads(Path("encoder/airrep.json").read_text())["training"]
    assert (training["steps"], training["teacher_steps"]) == (8, 5)
    assert (training["teacher"]["pool"], training["teacher"]["temperature"]) == ("attention", 0.5)
    assert (training["teacher"]["examples"], training["teacher"]["left_out"]) == (92, 28)
    assert training["teacher"]["asked"]["query_count"] == 9
    card = Path("encoder/README.md").read_text()
    assert "of 92 examples, method airrep, pool attention at temperature 0.5; 28 examples that are held out" in card
    assert run("show", "encoder", "--verify")[0] == 0


def test_the_command_takes_a_teacher_alone_with_queries_from_elsewhere(run: Command) -> None:
    queries = ("--teacher-queries", "data.jsonl", "--teacher-steps", "4", "--set", "teacher_examples=60")
    status, said = run("train", *TRAIN, *TEACHER, *queries, "--out", "pupil-alone")
    assert status == 0, said
    training = json.loads(Path("pupil-alone/airrep.json").read_text())["training"]
    assert (training["steps"], training["teacher_steps"], training["instances"]) == (4, 4, [])
    assert "lm" not in training


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (TRAIN, "there is nothing to learn from"),
        ((*TEACHER, "--data", "data.jsonl"), "no labels say which step is best"),
        (("labels#1", *TRAIN, "--teacher-steps", "4"), "teacher_steps: is set, and there is no teacher"),
        (("labels#1", *TRAIN, "--teacher-queries", "data.jsonl"), "teacher_queries: is set, and there is no teacher"),
        (("labels#1", *TRAIN, *TEACHER, "--set", "teacher_taste=4"), "'taste' is not a setting here"),
        (("labels#1", *TRAIN, *teacher(sizes="1,none")), "expected numbers from 1 up"),
    ],
)
def test_the_command_refuses_in_one_line_what_cannot_be_taught(
    run: Command, arguments: Sequence[str], words: str
) -> None:
    status, said = run("train", *arguments, "--out", "nothing")
    assert (status, said.count("\n")) == (1, 1), said
    assert said.startswith("airrep: error: ")
    assert words in said
    assert not Path("nothing").exists()


@pytest.mark.parametrize(
    ("arguments", "problem", "count"),
    [
        (teacher(sizes="1,90"), "instance 1: 90 examples are to be drawn from a train pool of 83", 9),
        (teacher(set="teacher_query_count=500"), "instance 0: 92 examples of the query corpus may be drawn", 500),
    ],
)
def test_draws_that_fail_are_told_in_the_settings_of_the_command(
    run: Command, arguments: Sequence[str], problem: str, count: int
) -> None:
    status, said = run("train", "labels#1", *TRAIN, *arguments, "--out", "nothing")
    last = said.splitlines()[-1]
    assert status == 1
    assert last.startswith(f"airrep: error: teacher other: {problem}; expected ")
    assert last.endswith(f"Give more examples, or lower teacher_query_count (now {count}) or --teacher-sizes.")
