"""SimHash of texts: a naive twin, golden codes, and what altering a text does to its code."""

import hashlib
import re
import unicodedata

import numpy as np
import pytest

from hamtarget import open_encoder
from hamtarget.encoders.texts.simhash import SimHash64, _distinct
from hamtarget.errors import DtypeError, ShapeError, UnsupportedFileError

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "the QUICK brown fox -- jumps over the lazy dog",
    "Straße, CAFÉ, cafe\u0301, ﬁne",
    "漢字とかな are words of their own",
    "one",
    "",
    "... !!!",
    "again " * 700,
    " ".join(f"word{number}" for number in range(3000)),
]
# Codes of the same texts, once and for all: stores keep such codes.
GOLDEN = [
    "668411c7216a7553",
    "668411c7216a7553",
    "03a59110f823958c",
    "2e0d79e71974a98f",
    "3cccb3c2bb118432",
    "0000000000000000",
    "0000000000000000",
    "ae7dbe146411ac1d",
    "826f9c8550d4d3c6",
]
MASK = (1 << 64) - 1


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def naive(text):
    """Return the logits of a text by the definition."""
    own = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    words = re.findall(rf"[{own}]|[^\W{own}]+", unicodedata.normalize("NFKC", text).casefold())
    numbers = [int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") for word in words]
    shingles = {mix(a) for a in numbers} | {mix(3 * a + b & MASK) for a, b in zip(numbers, numbers[1:], strict=False)}
    sums = [0] * 64
    for shingle in shingles:
        weight = 256 + (mix(shingle) >> 58)
        for bit in range(64):
            sums[bit] += weight if shingle >> bit & 1 else -weight
    return np.array(sums) / 256


def distance(a, b):
    return int(np.bitwise_count(a ^ b).sum())


def test_logits_are_those_of_the_definition():
    assert SimHash64().logits(TEXTS) == pytest.approx(np.stack([naive(text) for text in TEXTS]), rel=1e-6)


def test_logits_do_not_depend_on_the_batch(monkeypatch):
    whole = SimHash64().logits(TEXTS)
    monkeypatch.setattr("hamtarget.encoders.texts.simhash._CHARACTERS_AT_ONCE", 40)
    monkeypatch.setattr("hamtarget.encoders.texts.simhash._SHINGLES_AT_ONCE", 7)
    monkeypatch.setattr("hamtarget.encoders.texts.simhash._REMEMBERED_WORDS", 2)
    encoder = SimHash64()
    assert (np.concatenate([encoder.logits([text]) for text in TEXTS]) == whole).all()
    assert (encoder.logits(np.array(TEXTS, dtype=object)) == whole).all()


def test_shingles_whose_hashes_begin_alike_are_told_apart():
    rows = np.array([3, 3, 3, 3, 1])
    hashes = np.array([9, 8, 9, 8, 9], dtype=np.uint64)
    kept, of_rows = _distinct(hashes, rows)
    assert sorted(zip(of_rows.tolist(), kept.tolist(), strict=True)) == [(1, 9), (3, 8), (3, 9)]
    assert of_rows.tolist() == [1, 3, 3]


def test_codes_never_change():
    assert [code.tobytes().hex() for code in SimHash64().encode(TEXTS)] == GOLDEN


def test_case_punctuation_and_spaces_do_not_count():
    codes = SimHash64().encode(TEXTS)
    assert (codes[0] == codes[1]).all()
    assert not codes[5].any()
    assert not codes[6].any()


def test_a_near_copy_is_near_and_another_text_is_far():
    words = [f"word{number}" for number in range(200)]
    altered = [*words[:100], "inserted", *words[100:150], *words[152:]]
    other = [f"other{number}" for number in range(200)]
    first, near, far = SimHash64().encode([" ".join(each) for each in (words, altered, other)])
    assert distance(first, near) <= 6
    assert distance(first, far) >= 20


def test_no_texts_have_no_codes():
    assert SimHash64().encode([]).shape == (0, 8)
    assert SimHash64().embedding(["a b"]).shape == (1, 64)


def test_halves_of_characters_are_taken():
    assert SimHash64().encode(["half \ud800 of one"]).shape == (1, 8)


@pytest.mark.parametrize(
    ("inputs", "error", "said"),
    [
        ("one text", ShapeError, "expected a list of texts"),
        (np.array([["a"]]), ShapeError, r"shape \(1, 1\)"),
        (["a", 3], DtypeError, "input 1 is a int"),
        (np.zeros(2), DtypeError, "takes texts"),
    ],
)
def test_other_inputs_are_refused(inputs, error, said):
    with pytest.raises(error, match=said):
        SimHash64().encode(inputs)


def test_it_is_opened_by_name_and_from_a_folder(tmp_path):
    encoder = open_encoder("simhash64")
    encoder.save(tmp_path / "kept")
    opened = open_encoder(tmp_path / "kept")
    assert repr(opened) == repr(encoder) == "SimHash64(n_bits=64) [inputs texts]"
    assert (opened.encode(TEXTS) == encoder.encode(TEXTS)).all()
    (tmp_path / "kept" / "text_hash.json").write_text('{"format": 1, "text_hash": "simhash999"}')
    with pytest.raises(UnsupportedFileError, match="simhash999"):
        open_encoder(tmp_path / "kept")
