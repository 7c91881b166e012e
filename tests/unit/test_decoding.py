"""Codes brought to the codes of their classes, against naive loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hamtarget.codes import pack, unpack
from hamtarget.decoding import decode, majority_codes
from hamtarget.errors import InputError, ShapeError

N = 16


def naive_decode(codes, class_codes, within):
    decoded = []
    for code in codes:
        distances = [int((code != other).sum()) for other in class_codes]
        near = distances and min(distances) <= within
        decoded.append(class_codes[distances.index(min(distances))] if near else code)
    return np.array(decoded).reshape(-1, N)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.integers(0, 9), st.integers(0, N))
def test_decoding_equals_its_definition(seed, n_classes, n_codes, within):
    random = np.random.default_rng(seed)
    bits, classes = (random.integers(0, 2, (n, N), dtype=np.uint8) for n in (n_codes, n_classes))
    before = pack(bits)
    found = decode(before, pack(classes), N, within=within)
    assert np.array_equal(unpack(found, N), naive_decode(bits, classes, within))
    assert np.array_equal(before, pack(bits))


def test_many_codes_are_decoded_block_by_block():
    random = np.random.default_rng(0)
    bits, classes = (random.integers(0, 2, (n, N), dtype=np.uint8) for n in (20_000, 3))
    assert np.array_equal(unpack(decode(pack(bits), pack(classes), N, within=4), N), naive_decode(bits, classes, 4))


def test_a_class_has_the_bits_that_most_of_its_rows_have():
    random = np.random.default_rng(1)
    bits = random.integers(0, 2, (40, N), dtype=np.uint8)
    labels = random.choice([3, 7, 30], 40)
    expected = [[2 * sum(bits[labels == name, k]) > sum(labels == name) for k in range(N)] for name in (3, 7, 30)]
    assert np.array_equal(unpack(majority_codes(pack(bits), labels, N), N), np.array(expected, dtype=np.uint8))


def test_misfits_are_refused():
    codes = pack(np.zeros((4, N), dtype=np.uint8))
    with pytest.raises(ShapeError, match=r"labels have shape \(3,\); 4 codes need \(4,\)"):
        majority_codes(codes, [1, 2, 3], N)
    with pytest.raises(InputError, match="within is -1; expected 0 or more"):
        decode(codes, codes, N, within=-1)
