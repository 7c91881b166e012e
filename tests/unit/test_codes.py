import numpy as np
import pytest

from hamtarget import codes
from hamtarget.errors import DtypeError, InputError, NotFiniteError, ShapeError


@pytest.mark.parametrize("n_bits", [8, 24, 64, 1024])
def test_bits_survive_packing(n_bits):
    bits = np.random.default_rng(0).integers(0, 2, (7, n_bits), dtype=np.uint8)
    packed = codes.pack(bits)
    assert packed.shape == (7, n_bits // 8)
    np.testing.assert_array_equal(codes.unpack(packed, n_bits), bits)


def test_bit_k_is_bit_k_modulo_8_of_byte_k_over_8():
    bits = np.zeros((1, 16), dtype=np.uint8)
    bits[0, 9] = 1
    assert codes.pack(bits).tolist() == [[0, 2]]


def test_a_bit_is_one_above_zero_and_not_at_zero():
    logits = np.array([[-1.0, 0.0, 1e-30, 2.0, -0.0, 0.0, 0.0, 5.0]])
    assert codes.unpack(codes.from_logits(logits), 8).tolist() == [[0, 0, 1, 1, 0, 0, 0, 1]]


@pytest.mark.parametrize("n_bits", [8, 16, 32, 40, 64, 128, 200])
def test_distances_equal_a_count_of_differing_bits(n_bits):
    random = np.random.default_rng(1)
    left = random.integers(0, 2, (5, n_bits))
    right = random.integers(0, 2, (9, n_bits))
    expected = [[int((a != b).sum()) for b in right] for a in left]
    assert codes.distances(codes.pack(left), codes.pack(right), n_bits).tolist() == expected


def test_distances_in_blocks_equal_distances_at_once(monkeypatch):
    random = np.random.default_rng(2)
    left, right = (random.integers(0, 256, (n, 8), dtype=np.uint8) for n in (11, 6))
    whole = codes.distances(left, right, 64)
    monkeypatch.setattr(codes, "_CELLS_AT_A_TIME", 13)
    np.testing.assert_array_equal(codes.distances(left, right, 64), whole)


def test_empty_sides_give_empty_distances():
    none, some = np.empty((0, 8), dtype=np.uint8), np.zeros((3, 8), dtype=np.uint8)
    assert codes.distances(none, some, 64).shape == (0, 3)
    assert codes.distances(some, none, 64).shape == (3, 0)


@pytest.mark.parametrize(("n_bits", "substrings"), [(64, 3), (16, 1), (64, 64), (24, 5)])
def test_substrings_cover_every_bit_once_and_differ_by_one_at_most(n_bits, substrings):
    bounds = codes.substring_bounds(n_bits, substrings)
    assert [bit for start, stop in bounds for bit in range(start, stop)] == list(range(n_bits))
    lengths = [stop - start for start, stop in bounds]
    assert len(lengths) == substrings
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("n_bits", [0, 7, 12, 4104, -8])
def test_code_lengths_are_multiples_of_8_up_to_1024(n_bits):
    with pytest.raises(InputError, match=f"n_bits is {n_bits}; expected a multiple of 8 from 8 to 4,096"):
        codes.check_n_bits(n_bits)


@pytest.mark.parametrize("radius", [-1, 64, 100])
def test_a_radius_is_below_the_number_of_bits(radius):
    with pytest.raises(InputError, match=f"radius is {radius}; expected 0 to 63"):
        codes.check_radius(radius, 64)


def test_wrong_codes_are_refused_with_what_was_found_and_expected():
    with pytest.raises(DtypeError, match="dtype int64; expected packed uint8"):
        codes.check_codes(np.zeros((2, 8), dtype=np.int64), 64)
    with pytest.raises(ShapeError, match="4 bytes a row; 64 bits take 8"):
        codes.check_codes(np.zeros((2, 4), dtype=np.uint8), 64)
    with pytest.raises(ShapeError, match="3 dimensions; expected 2"):
        codes.check_codes(np.zeros((2, 4, 8), dtype=np.uint8), 64)
    with pytest.raises(DtypeError, match="n_bits is 64.0"):
        codes.check_n_bits(64.0)
    with pytest.raises(DtypeError, match="radius is True"):
        codes.check_radius(True, 64)
    with pytest.raises(InputError, match="substrings is 65"):
        codes.substring_bounds(64, 65)


def test_nan_is_refused_with_its_row():
    vectors = np.zeros((5, 3))
    vectors[3, 1] = np.nan
    with pytest.raises(NotFiniteError, match="row 3 holds NaN or infinity \\(1 of 5 rows do\\)"):
        codes.check_vectors(vectors)


def test_wrong_vectors_are_refused():
    with pytest.raises(DtypeError, match="expected numbers"):
        codes.check_vectors([["a"]])
    with pytest.raises(ShapeError, match="1 dimensions; expected 2"):
        codes.check_vectors([1.0, 2.0])
    with pytest.raises(ShapeError, match="2 columns; expected 3"):
        codes.check_vectors([[1.0, 2.0]], n_columns=3)


def test_strided_codes_are_accepted():
    wide = np.random.default_rng(3).integers(0, 256, (6, 16), dtype=np.uint8)
    strided = wide[::2, ::2]
    assert codes.check_codes(strided, 64).flags.c_contiguous
    np.testing.assert_array_equal(codes.check_codes(strided, 64), strided)


def test_a_tensor_with_a_gradient_is_refused_with_what_to_do():
    torch = pytest.importorskip("torch")
    with pytest.raises(DtypeError, match=r"logits are no array.*detach"):
        codes.from_logits(torch.zeros(2, 8, requires_grad=True))
