"""Predictions from measured rates, against numbers computed by hand."""

from dataclasses import replace

import pytest
from worlds.plan_world import ENCODING, GRADIENTS, MEASURES, TEXTS, WISH

from airrep.lm.settings import FineTuneSettings
from airrep.planning.predict import (
    encoder_cost,
    label_seconds,
    lm_name,
    make_plan,
    method_cost,
    planned_memory,
    training_seconds,
)


def test_a_method_costs_its_fit_before_and_encoding_with_the_look_at_each_example_after() -> None:
    found = method_cost(WISH, GRADIENTS)
    # the fits' line is 1 + 0.005 s for each token, 0.1 for each example: 0.01 of that goes on beyond the sample
    assert found.fixed.value == pytest.approx(1 + 0.09 * 500)
    assert found.each.value == pytest.approx(20 * 0.004 + 0.01)
    planned = make_plan(WISH, MEASURES).methods[1]
    assert (planned.name, planned.fixed_seconds) == ("logra", found.fixed.value)
    assert (planned.bytes_per_example, planned.store_bytes_per_example) == (4620, 6148)


def test_only_methods_that_read_the_lm_have_a_crossover() -> None:
    trials = {**MEASURES.methods, "dsir": replace(GRADIENTS, parameters=None)}
    made = make_plan(replace(WISH, methods=("dsir", "logra")), replace(MEASURES, methods=trials))
    assert [method.name for method in made.methods] == ["airrep", "dsir", "logra"]
    assert [found.method for found in made.crossovers] == ["logra"]


def test_a_fit_on_a_sample_reads_no_more_than_the_corpus_has() -> None:
    assert method_cost(replace(WISH, examples=100), GRADIENTS).fixed.value == pytest.approx(1 + 0.09 * 100)


def test_a_fit_that_reads_all_grows_with_the_corpus() -> None:
    found = method_cost(WISH, replace(GRADIENTS, sample=None))
    assert found.fixed.value == pytest.approx(1)
    assert found.each.value == pytest.approx(20 * 0.004 + 0.1)


def test_labels_are_fine_tunes_and_losses_of_queries() -> None:
    plan = WISH.learning
    assert (plan.subsets, plan.held_out_subsets) == (60, 20)
    tuned, asked = 100 * 10 * 20 * 0.002, 100 * 5 * 20 * 0.0005
    assert label_seconds(WISH, MEASURES).value == pytest.approx(tuned + asked)


def test_training_is_steps_as_measured_and_the_rest_as_adapt_reckons() -> None:
    plan = WISH.learning
    texts = plan.pool * (1 - (1 - 10 / plan.pool) ** 8) + 5
    learn = plan.pool * (1 - (1 - 10 / plan.pool) ** 60) + 5
    held_out = plan.held_out_pool * (1 - (1 - 10 / plan.held_out_pool) ** 20) + 5
    other = 0.02 * (learn + (2 * 3 + 20 * 2 / 6) * held_out)
    found = training_seconds(WISH, MEASURES, method_cost(WISH, ENCODING).each)
    assert found.value == pytest.approx(7 * texts * 20 * 0.003 + other)


def test_the_encoder_pays_for_labels_and_training_first() -> None:
    found, parts = encoder_cost(WISH, MEASURES)
    labels = label_seconds(WISH, MEASURES).value
    training = training_seconds(WISH, MEASURES, found.each).value
    assert found.fixed.value == pytest.approx(labels + training)
    assert (
        parts == make_plan(WISH, MEASURES).methods[0].fixed_parts == {"labels": labels, "training": training, "fit": 0}
    )
    assert found.each.value == pytest.approx(0.02)


def test_the_crossover_counts_what_gradients_cost_before_as_well() -> None:
    made = make_plan(WISH, MEASURES, "airrep plan")
    encoder, logra = made.methods
    expected = (encoder.fixed_seconds - logra.fixed_seconds) / (0.09 - 0.02)
    assert made.crossovers[0].examples == pytest.approx(expected)
    assert made.facts["label_wall_seconds"] == pytest.approx(encoder.fixed_parts["labels"] / 2)
    assert (made.corpus, made.lm, made.lm_parameters, made.workers) == (1000, "small", 7, 2)


def test_memory_has_the_corpus_and_a_shard_of_features_added() -> None:
    texts = sum(len(example.prompt) + len(example.response) for example in TEXTS) / 100
    found = planned_memory(replace(WISH, examples=10_000), GRADIENTS)
    assert found == pytest.approx(1e9 + 2 * 10_000 * texts + 3 * 6144 * 4096)


def test_more_epochs_are_in_the_measured_rate_already() -> None:
    twice = replace(WISH, tuning=FineTuneSettings(epochs=4))
    assert label_seconds(twice, MEASURES) == label_seconds(WISH, MEASURES)


def test_a_folder_is_told_by_its_last_part() -> None:
    assert lm_name("/somewhere/models/small") == "small"
    assert lm_name("owner/model") == "owner/model"
