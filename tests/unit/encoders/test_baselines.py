"""LSH and ITQ do what their ten-line definitions say, and refuse what they cannot use."""

from __future__ import annotations

import numpy as np
import pytest

from hamtarget.codes import distances, from_logits, unpack
from hamtarget.encoders import ITQ, LSH, linear
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import DtypeError, InputError, NotFiniteError, NotFittedError, ShapeError

METHODS = [LSH, ITQ]
both = pytest.mark.parametrize("method", METHODS)


def correlated(rows: int, columns: int, *, seed: int = 0) -> np.ndarray:
    """Gaussian rows with a few strong directions, far from the origin."""
    random = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(random.standard_normal((columns, columns)))
    scales = 4.0 * 0.85 ** np.arange(columns)
    return ((random.standard_normal((rows, columns)) * scales) @ basis.T + 7).astype(np.float32)


def naive_lsh(inputs: np.ndarray, n_bits: int, seed: int) -> np.ndarray:
    weights = np.random.default_rng(seed).standard_normal((n_bits, inputs.shape[1]), dtype=np.float32)
    mean = inputs.astype(float).mean(axis=0)
    return np.array([[weight @ (row - mean) for weight in weights.astype(float)] for row in inputs])


def naive_itq(inputs: np.ndarray, n_bits: int, iterations: int, seed: int) -> tuple[np.ndarray, list[float]]:
    x = inputs.astype(float) - inputs.astype(float).mean(axis=0)
    w = np.linalg.svd(x, full_matrices=False)[2][:n_bits].T
    w = w * [np.sign(column[np.abs(column).argmax()]) for column in w.T]
    q, triangle = np.linalg.qr(np.random.default_rng(seed).standard_normal((n_bits, n_bits)))
    v, r = x @ w, q @ np.diag(np.sign(np.diag(triangle)))
    errors = [float(np.linalg.norm(np.sign(v @ r) - v @ r) ** 2 / len(v))]
    for _ in range(iterations):
        s, _, s_prime_t = np.linalg.svd(np.sign(v @ r).T @ v)
        r = s_prime_t.T @ s.T
        errors.append(float(np.linalg.norm(np.sign(v @ r) - v @ r) ** 2 / len(v)))
    return v @ r, errors


def test_lsh_is_the_naive_one():
    inputs = correlated(200, 12)
    np.testing.assert_allclose(LSH(24, seed=3).fit(inputs).logits(inputs), naive_lsh(inputs, 24, 3), atol=1e-3)


def test_itq_is_the_naive_one():
    inputs = correlated(500, 20)
    encoder = ITQ(16, iterations=20, seed=3).fit(inputs)
    logits, errors = naive_itq(inputs, 16, 20, 3)
    np.testing.assert_allclose(encoder.quantization_errors, errors, rtol=1e-5)
    np.testing.assert_allclose(encoder.logits(inputs), logits, atol=1e-3)


def test_itq_error_never_rises_and_falls_overall():
    errors = np.array(ITQ(16, iterations=50).fit(correlated(2000, 32)).quantization_errors)
    assert len(errors) == 51
    assert np.all(np.diff(errors) <= 1e-6 * errors[:-1])
    assert errors[-1] < 0.99 * errors[0]


@pytest.mark.parametrize("iterations", [0, 1, 50])
def test_itq_projection_has_orthonormal_columns(iterations):
    projection = ITQ(16, iterations=iterations).fit(correlated(300, 24)).projection
    np.testing.assert_allclose(projection.T @ projection, np.eye(16), atol=1e-5)


def test_itq_keeps_the_directions_of_largest_variance():
    inputs = correlated(2000, 32)
    kept = ITQ(8).fit(inputs).logits(inputs).var(axis=0).sum()
    variances = np.linalg.eigvalsh(np.cov(inputs.T.astype(float), bias=True))
    assert kept == pytest.approx(variances[-8:].sum(), rel=1e-4)


def test_itq_finds_more_neighbours_than_lsh():
    inputs, queries = correlated(3000, 32), correlated(3100, 32)[3000:]
    true = np.argsort(((queries[:, None] - inputs[None]) ** 2).sum(axis=2), axis=1)[:, :10]
    recall = {}
    for method in METHODS:
        encoder = method(32).fit(inputs)
        near = distances(encoder.encode(queries), encoder.encode(inputs), 32)
        found = np.argsort(near, axis=1, kind="stable")[:, :100]
        recall[method] = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(true, found, strict=True)])
    assert recall[ITQ] > recall[LSH] + 0.05


@both
def test_it_is_an_encoder(method):
    inputs = correlated(60, 16)
    encoder = method(16)
    assert encoder.fit(inputs, similar="ignored") is encoder
    assert isinstance(encoder, Encoder)
    assert (encoder.radius, encoder.input_shape) == (None, (16,))
    np.testing.assert_allclose(np.linalg.norm(encoder.embedding(inputs), axis=1), 1, rtol=1e-5)
    logits, codes = encoder.logits(inputs), encoder.encode(inputs)
    assert (logits.dtype, logits.shape) == (np.float32, (60, 16))
    assert (codes.dtype, codes.shape) == (np.uint8, (60, 2))
    np.testing.assert_array_equal(unpack(codes, 16), logits > 0)


@both
def test_bits_are_balanced_far_from_the_origin(method):
    inputs = correlated(4000, 32) + 1000
    ones = unpack(method(16).fit(inputs).encode(inputs), 16).mean(axis=0)
    assert np.all(np.abs(ones - 0.5) < 0.05)


@both
def test_seed_alone_decides(method):
    inputs = correlated(200, 24)
    first = method(16, seed=5).fit(inputs).encode(inputs)
    np.testing.assert_array_equal(method(16, seed=5).fit(inputs).encode(inputs), first)
    assert np.any(method(16, seed=6).fit(inputs).encode(inputs) != first)


@both
def test_blocks_do_not_change_the_result(method, monkeypatch):
    inputs = correlated(101, 24)
    whole = method(16).fit(inputs)
    logits, codes = whole.logits(inputs), whole.encode(inputs)
    monkeypatch.setattr(linear, "_CELLS_AT_A_TIME", 24 * 7)
    pieces = method(16).fit(inputs)
    np.testing.assert_allclose(pieces.logits(inputs), logits, atol=1e-3)
    # A bit may differ only where its logit is 0 but for rounding.
    firm = np.abs(logits) > 1e-3
    assert firm.mean() > 0.99
    np.testing.assert_array_equal(unpack(pieces.encode(inputs), 16)[firm], unpack(codes, 16)[firm])
    np.testing.assert_array_equal(pieces.encode(inputs), from_logits(pieces.logits(inputs)))


@both
def test_further_dimensions_are_flattened(method):
    inputs = correlated(50, 24)
    flat = method(8).fit(inputs)
    images = method(8).fit(inputs.reshape(50, 2, 3, 4))
    np.testing.assert_array_equal(images.encode(inputs.reshape(50, 4, 6)), flat.encode(inputs))


@both
def test_no_rows_give_no_codes(method):
    encoder = method(16).fit(correlated(50, 24))
    assert encoder.logits(np.empty((0, 24))).shape == (0, 16)
    assert encoder.encode(np.empty((0, 4, 6))).shape == (0, 2)


@both
def test_integers_are_inputs(method):
    inputs = np.random.default_rng(0).integers(0, 256, (50, 16), dtype=np.uint8)
    np.testing.assert_array_equal(
        method(8).fit(inputs).logits(inputs), method(8).fit(inputs.astype(float)).logits(inputs.astype(float))
    )


@both
def test_equal_rows_have_equal_codes(method):
    codes = method(8).fit(np.ones((5, 8))).encode(np.ones((5, 8)))
    np.testing.assert_array_equal(codes, np.zeros((5, 1)))


@both
def test_lengths_do_not_count_under_cosine(method):
    inputs = correlated(200, 24)
    lengths = np.random.default_rng(1).uniform(0.5, 20, (200, 1)).astype(np.float32)
    encoder = method(16, metric="cosine").fit(inputs)
    by_hand = method(16).fit(inputs / np.linalg.norm(inputs, axis=1, keepdims=True))
    logits = by_hand.logits(inputs / np.linalg.norm(inputs, axis=1, keepdims=True))
    np.testing.assert_allclose(encoder.logits(inputs), logits, atol=1e-5)
    np.testing.assert_allclose(encoder.logits(inputs * lengths), logits, atol=1e-5)
    np.testing.assert_array_equal(encoder.encode(inputs), from_logits(encoder.logits(inputs)))
    assert np.any(method(16, metric="l2").fit(inputs).encode(inputs * lengths) != encoder.encode(inputs))


@both
def test_a_row_of_zeros_has_no_cosine(method):
    inputs = correlated(20, 16)
    inputs[7] = 0
    with pytest.raises(InputError, match="row 7 is all zeros"):
        method(16, metric="cosine").fit(inputs)
    assert method(16, metric="dot").fit(inputs).neighbor_metric == "dot"


@both
@pytest.mark.parametrize("use", ["logits", "encode"])
def test_unfitted_says_so(method, use):
    with pytest.raises(NotFittedError, match=f"{method.__name__} is not fitted yet: call fit"):
        getattr(method(8), use)(np.zeros((3, 8)))


@both
@pytest.mark.parametrize("name", ["mean", "projection"])
def test_unfitted_has_nothing_learned(method, name):
    with pytest.raises(NotFittedError, match="call fit"):
        getattr(method(8), name)


@both
@pytest.mark.parametrize(
    ("inputs", "error", "text"),
    [
        (np.zeros((1, 16)), ShapeError, "1 rows.*at least 2"),
        (np.zeros((0, 16)), ShapeError, "0 rows.*at least 2"),
        (np.zeros((3, 0)), ShapeError, "0 columns"),
        (np.zeros(16), ShapeError, "1 dimensions"),
        (np.array([[0.0] * 16, [np.nan] * 16]), NotFiniteError, "inputs: row 1"),
        (np.array([["a"] * 16] * 3), DtypeError, "expected numbers"),
    ],
)
def test_fit_refuses(method, inputs, error, text):
    with pytest.raises(error, match=text):
        method(16).fit(inputs)


@both
@pytest.mark.parametrize("use", ["logits", "encode"])
@pytest.mark.parametrize(
    ("inputs", "error", "text"),
    [
        (np.zeros((4, 15)), ShapeError, "15 columns; expected 16"),
        (np.zeros((4, 3, 5)), ShapeError, "15 columns; expected 16"),
        (np.zeros(16), ShapeError, "1 dimensions"),
        (np.full((4, 16), np.inf), NotFiniteError, "4 of 4 rows"),
    ],
)
def test_use_refuses(method, use, inputs, error, text):
    encoder = method(16).fit(correlated(30, 16))
    with pytest.raises(error, match=text):
        getattr(encoder, use)(inputs)


@both
def test_a_refused_fit_leaves_the_old_one(method):
    inputs = correlated(30, 16)
    encoder = method(16).fit(inputs)
    codes = encoder.encode(inputs)
    with pytest.raises(InputError):
        encoder.fit(np.full((30, 16), np.nan))
    np.testing.assert_array_equal(encoder.encode(inputs), codes)


def test_itq_refuses_more_bits_than_columns():
    with pytest.raises(InputError, match="n_bits is 24, but inputs have 16 columns"):
        ITQ(24).fit(correlated(100, 16))


@both
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"n_bits": 12}, InputError),
        ({"n_bits": 16.0}, DtypeError),
        ({"n_bits": 16, "seed": -1}, InputError),
        ({"n_bits": 16, "seed": 0.5}, DtypeError),
        ({"n_bits": 16, "metric": "hamming"}, InputError),
    ],
)
def test_construction_refuses(method, arguments, error):
    with pytest.raises(error):
        method(**arguments)


@pytest.mark.parametrize(("iterations", "error"), [(-1, InputError), (2.5, DtypeError)])
def test_itq_refuses_iterations(iterations, error):
    with pytest.raises(error, match="iterations is"):
        ITQ(16, iterations=iterations)


@both
def test_it_is_shown_on_one_line(method):
    encoder = method(16, seed=3)
    assert repr(encoder) == f"{method.__name__}(n_bits=16, seed=3) [not fitted]"
    assert repr(encoder.fit(correlated(50, 24))) == f"{method.__name__}(n_bits=16, seed=3) [inputs (24,)]"
