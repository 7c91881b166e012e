"""The map of a store: points that a naive twin finds, too, and bounds."""

import numpy as np
import pytest
from services import service

from hamtarget.serve.code_map import MAX_POINTS, project
from hamtarget.store import Item, Store


def naive(codes):
    """The two principal components of bits, by the whole decomposition."""
    bits = np.unpackbits(codes, axis=1, bitorder="little").astype(float)
    bits -= bits.mean(axis=0)
    values, vectors = np.linalg.eigh(bits.T @ bits)
    return bits @ vectors[:, ::-1][:, :2], values[::-1][:2] / values.sum()


def grouped(random, rows, n_bytes):
    """Codes about three centres, so that two directions stand out."""
    centres = random.integers(0, 256, (3, n_bytes), dtype=np.uint8)
    noise = np.packbits(random.random((rows, 8 * n_bytes)) < 0.05, axis=1)
    return centres[random.integers(0, 3, rows)] ^ noise


@pytest.mark.parametrize(("rows", "n_bytes"), [(200, 8), (40, 32), (3, 8)])
def test_the_plane_is_that_of_a_naive_twin(rows, n_bytes):
    codes = grouped(np.random.default_rng(rows), rows, n_bytes)
    points, shares = project(codes, 8 * n_bytes)
    wanted, wanted_shares = naive(codes)
    # A direction has no sign, and a map no unit: distances of points are compared.
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    wanted_apart = np.linalg.norm(wanted[:, None] - wanted[None], axis=2)
    np.testing.assert_allclose(apart / apart.max(), wanted_apart / wanted_apart.max(), atol=2e-3)
    np.testing.assert_allclose(shares, wanted_shares, atol=2e-3)
    assert np.abs(points).max() == pytest.approx(1)


@pytest.mark.parametrize(
    "codes", [np.zeros((0, 8), np.uint8), np.zeros((1, 8), np.uint8), np.full((9, 8), 5, np.uint8)]
)
def test_codes_that_do_not_differ_lie_in_the_middle(codes):
    points, shares = project(codes, 64)
    assert points.shape == (len(codes), 2)
    assert not points.any()
    assert shares == [0, 0]


def test_a_map_is_served_and_follows_changes(tmp_path):
    store = Store.create(tmp_path / "store", n_bits=64, radius=2, durability="os")
    codes = grouped(np.random.default_rng(1), 50, 8)
    ids = [*range(25), *(f"b{row}" for row in range(25))]
    store.put_rows(ids, codes=codes, payloads=[{"class": "even"} if row % 2 == 0 else None for row in range(50)])
    with service(store, writable=True) as call:
        whole = call("GET", "/v1/map").json
        assert {point["id"] for point in whole["points"]} == set(ids)
        assert not whole["sampled"]
        assert {point["label"] for point in whole["points"]} == {"even", None}
        assert call("GET", "/v1/map").json == whole
        some = call("GET", "/v1/map?n=20").json
        assert len(some["points"]) == 20
        assert some["sampled"]
        assert call("DELETE", "/v1/items/3?kind=integer").status == 200
        assert 3 not in {point["id"] for point in call("GET", "/v1/map").json["points"]}
        store.put([Item("frames", codes=codes[:2])])
        assert "frames" in {point["id"] for point in call("GET", "/v1/map").json["points"]}
        assert call("GET", f"/v1/map?n={MAX_POINTS + 1}").status == 422
        assert call("GET", "/v1/map?n=0").status == 422


def test_payloads_that_are_too_large_for_an_answer_are_refused(tmp_path):
    store = Store.create(tmp_path / "store", n_bits=64, radius=2, durability="os")
    store.put_rows([1, 2], codes=np.zeros((2, 8), np.uint8), payloads=[{"text": "x" * 5000}] * 2)
    with service(store, max_answer_bytes=6000) as call:
        answer = call("GET", "/v1/map")
        assert (answer.status, answer.kind) == (413, "too_much")
