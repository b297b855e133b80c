"""Contrasts of two scores."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from airrep.scoring.contrast import contrast_scores

SCORES = st.floats(-1e6, 1e6)


@given(SCORES, SCORES)
def test_the_sign_is_that_of_the_difference(answer: float, better: float) -> None:
    found = float(contrast_scores(np.array(answer), np.array(better)))
    assert found == 0 or np.sign(found) == np.sign(answer - better)
    assert found == -float(contrast_scores(np.array(better), np.array(answer)))


@given(st.floats(0, 1e6), SCORES, st.floats(1e-3, 1e3))
def test_more_for_the_answer_is_more(answer: float, better: float, more: float) -> None:
    less, greater = contrast_scores(np.array([answer, answer + more]), np.array(better))
    assert greater >= less


def test_of_rows_with_one_difference_the_one_about_the_question_leads() -> None:
    """A row that shares one common word with the answer, and one about the very question."""
    word, question = contrast_scores(np.array([1.5, 21.0]), np.array([0.0, 19.5]))
    assert question > 20 * word
