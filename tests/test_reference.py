"""The float64 oracles on cases worked out by hand."""

import math

import numpy as np
import pytest
from reference import bert, pooling, ranking, selection, tfidf
from sklearn.feature_extraction.text import TfidfVectorizer

LN3 = math.log(3.0)


def test_influence_scores_are_inner_products() -> None:
    scores = pooling.influence_scores(np.array([[1, 2], [0, -1]]), np.array([[3, 4], [-1, 0.5], [0, 0]]))
    assert scores.tolist() == [[11.0, 0.0, 0.0], [-4.0, -0.5, 0.0]]


@pytest.mark.parametrize(
    ("scores", "temperature", "expected"),
    [
        ([LN3, 0.0], 1.0, 0.75 * LN3),  # weights 3/4, 1/4
        ([-LN3, 0.0], 1.0, -0.75 * LN3),  # the weight comes from |s|, the sign from s
        ([math.log(2), -math.log(2), 0.0], 1.0, 0.0),  # weights 2/5, 2/5, 1/5
        ([2 * LN3, 0.0], 2.0, 1.5 * LN3),  # exponents ln 3 and 0
        ([1000.0, 1000.0 + LN3], 1.0, 1000.0 + 0.75 * LN3),  # exp(1000) is beyond float64
        ([-7.25], 1.0, -7.25),  # alone, a member has weight 1
    ],
)
def test_attention_by_hand(scores: list[float], temperature: float, expected: float) -> None:
    assert pooling.pool_attention(scores, temperature) == pytest.approx(expected, rel=1e-14, abs=1e-15)


def test_sum_mean_and_groups_by_hand() -> None:
    queries, train = np.array([[1.0, 1.0]]), np.array([[1.0, 2.0], [-2.0, 0.0], [4.0, 4.0]])  # scores 3, -2, 8
    groups = [[0, 2], [2, 1, 0], [1]]
    assert pooling.group_scores(queries, train, groups, "sum").tolist() == [[11.0, 9.0, -2.0]]
    assert pooling.group_scores(queries, train, groups, "mean").tolist() == [[5.5, 3.0, -2.0]]
    near, far = 1 / (1 + math.exp(-5)), 1 / (1 + math.exp(5))
    assert pooling.group_scores(queries, train, groups, "attention")[0, 0] == pytest.approx(8 * near + 3 * far)


def test_top_k_by_hand() -> None:
    scores = np.array([[1.0, 3.0, 3.0, 2.0, 1.0]])
    rows, values = ranking.top_k(scores, 3)
    assert (rows.tolist(), values.tolist()) == ([[1, 2, 3]], [[3.0, 3.0, 2.0]])
    assert ranking.top_k(scores, 3, least=True)[0].tolist() == [[0, 4, 3]]
    assert ranking.top_k(scores, 9, keep=[True, False, True, True, True])[0].tolist() == [[2, 3, 0, 4]]
    assert ranking.top_k(np.array([[0.0, -0.0, 0.0]]), 3)[0].tolist() == [[0, 1, 2]]


def test_min_rank_by_hand() -> None:
    # the orders are 0, 1, 2, 3, then 1, 2, 3, 0, then 0, 1, 2, 3
    scores = np.array([[5.0, 5.0, 1.0, 0.0], [0.0, 9.0, 9.0, 9.0], [2.0, 1.0, 0.0, 0.0]])
    assert selection.min_rank(scores, 9) == [(0, 1, 0), (1, 1, 1), (2, 2, 1), (3, 3, 1)]
    assert selection.min_rank(scores, 2) == [(0, 1, 0), (1, 1, 1)]
    assert selection.min_rank(scores[::-1], 3) == [(0, 1, 0), (1, 1, 1), (2, 2, 1)]


def test_gelu_and_layer_norm_by_hand() -> None:
    gelu = bert.gelu(np.array([[0.0, 1.0, -1.0]]))
    np.testing.assert_allclose(gelu, [[0.0, 0.8413447460685429, -0.15865525393145707]], rtol=1e-14)
    tensors = {"n.weight": np.array([2.0, 1.0, 1.0]), "n.bias": np.array([0.0, 10.0, 0.0])}
    normed = bert.layer_norm(tensors, "n", np.array([[1.0, 2.0, 3.0]]), 0.0)  # variance 2/3
    np.testing.assert_allclose(normed, [[-2 * math.sqrt(1.5), 10.0, math.sqrt(1.5)]], rtol=1e-14)


def test_attention_head_by_hand() -> None:
    a = math.sqrt(LN3 / math.sqrt(2.0))  # so that ⟨(a, a), (a, a)⟩ / √2 = ln 3
    parts = ("query", "key", "value")
    tensors = {f"n.{part}.weight": np.eye(2) for part in parts} | {f"n.{part}.bias": np.zeros(2) for part in parts}
    x = np.array([[a, a], [0.0, 0.0], [9.0, 9.0]])
    mask = np.array([True, True, False])
    out = bert.attend(tensors, "n", x, 1, mask)
    np.testing.assert_allclose(out[:2], [[0.75 * a, 0.75 * a], [0.5 * a, 0.5 * a]], rtol=1e-13)


def tiny_bert() -> bert.Tensors:
    """Return a model of width 2, whose last LayerNorm leaves (1, 3) or (-1, 7) of each token."""
    dense = {"weight": np.eye(2), "bias": np.zeros(2)}
    norm = {"weight": np.ones(2), "bias": np.zeros(2)}
    parts = {f"attention.self.{part}": dense for part in ("query", "key", "value")}
    parts |= {"attention.output.dense": dense, "attention.output.LayerNorm": norm}
    parts |= {"intermediate.dense": dense, "output.dense": dense}
    parts |= {"output.LayerNorm": {"weight": np.array([1.0, 2.0]), "bias": np.array([0.0, 5.0])}}
    tensors = {f"bert.encoder.layer.0.{part}.{key}": value for part in parts for key, value in parts[part].items()}
    tensors |= {f"bert.embeddings.LayerNorm.{key}": value for key, value in norm.items()}
    tensors["bert.embeddings.word_embeddings.weight"] = np.array([[2.0, 0.0], [0.0, 2.0]])
    tensors["bert.embeddings.position_embeddings.weight"] = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    tensors["bert.embeddings.token_type_embeddings.weight"] = np.array([[1.0, 1.0], [50.0, 0.0]])
    tensors["projector.weight"] = np.array([[3.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    tensors["projector.bias"] = np.array([0.0, 1.0, 0.0])
    return tensors


def test_encoder_by_hand() -> None:
    """The third position turns its token round: (1, 3), (1, 3) and (-1, 7) have the mean (1, 13)/3."""
    np.testing.assert_allclose(bert.encode(tiny_bert(), [0, 0, 0], 1), [1.0, 14.0, 14 / 3], rtol=1e-9)
    np.testing.assert_allclose(bert.encode(tiny_bert(), [0, 1], 2), [0.0, 16.0, 5.0], rtol=1e-9, atol=1e-9)


def test_padding_changes_nothing() -> None:
    generator = np.random.default_rng(0)
    tensors = {name: tensor + generator.normal(size=tensor.shape) for name, tensor in tiny_bert().items()}
    padded = bert.encode(tensors, [1, 0, 1, 0], 2, mask=[1, 1, 0, 0])
    np.testing.assert_allclose(padded, bert.encode(tensors, [1, 0], 2), rtol=1e-13)


def test_tfidf_by_hand() -> None:
    idf = tfidf.fit(["the cat sat", "The CAT, a dog!"])  # "a" is too short
    rare = math.log(1.5) + 1.0
    assert idf == {"cat": 1.0, "dog": rare, "sat": rare, "the": 1.0}
    rows = tfidf.transform(idf, ["sat sat the", "a zebra", "DOG"])
    norm = math.sqrt(4 * rare**2 + 1)
    np.testing.assert_allclose(rows, [[0, 0, 2 * rare / norm, 1 / norm], [0] * 4, [0, 1, 0, 0]], rtol=1e-15)


def test_tfidf_is_that_of_scikit_learn() -> None:
    train = ["Straße und Fuß, 3 Füße", "x-ray of café_2 don't", "ΣΑΣ σας 漢字 漢字", "a b c", "", "und und Straße"]
    other = ["STRASSE straße", "café_2 x ray ray", "ΣΑΣ", "nothing known", "don t don"]
    theirs = TfidfVectorizer().fit(train)
    idf = tfidf.fit(train)
    assert list(idf) == theirs.get_feature_names_out().tolist()
    np.testing.assert_allclose(tfidf.transform(idf, train), theirs.transform(train).toarray(), rtol=1e-14)
    np.testing.assert_allclose(tfidf.transform(idf, other), theirs.transform(other).toarray(), rtol=1e-14)
