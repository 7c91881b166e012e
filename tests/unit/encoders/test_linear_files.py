"""Saved linear encoders give the codes that they gave, and damaged files are refused."""

import hashlib
import json

import numpy as np
import pytest

from hamtarget.codes import unpack
from hamtarget.encoders import ITQ, LSH, itq, open_encoder
from hamtarget.encoders.itq import learn_vector_codes
from hamtarget.errors import CorruptFileError, FileError, InputError, NotFittedError, ShapeError, UnsupportedFileError

NAME = "linear_encoder.bin"


def vectors(rows, columns, *, seed=0):
    return (3 + np.random.default_rng(seed).normal(size=(rows, columns))).astype(np.float32)


def sealed(head, numbers=b""):
    content = json.dumps(head).encode() + b"\n" + numbers
    return content + hashlib.sha256(content).digest()


@pytest.mark.parametrize("metric", [None, "l2", "cosine", "dot"])
@pytest.mark.parametrize("method", [ITQ, LSH])
def test_a_saved_encoder_gives_the_same_codes(method, metric, tmp_path):
    inputs = vectors(300, 24)
    encoder = method(16, seed=4, metric=metric).fit(inputs)
    encoder.save(tmp_path / "model")
    opened = open_encoder(tmp_path / "model")
    assert repr(opened) == repr(encoder)
    assert (type(opened), opened.input_shape, opened.neighbor_metric) == (method, (24,), metric)
    np.testing.assert_array_equal(opened.encode(inputs), encoder.encode(inputs))
    np.testing.assert_array_equal(opened.logits(inputs), encoder.logits(inputs))
    np.testing.assert_array_equal(opened.fit(inputs).projection, encoder.projection)


@pytest.mark.parametrize("method", ["ITQ", "LSH"])
def test_the_file_is_what_the_format_says(method, tmp_path):
    inputs = vectors(100, 16)
    encoder = {"ITQ": ITQ, "LSH": LSH}[method](8, metric="cosine").fit(inputs)
    encoder.save(tmp_path)
    content = (tmp_path / NAME).read_bytes()
    assert hashlib.sha256(content[:-32]).digest() == content[-32:]
    head, numbers = content[:-32].split(b"\n", 1)
    found = json.loads(head)
    assert (found["format"], found["method"], found["input_shape"]) == (1, method, [16])
    values = np.frombuffer(numbers, "<f4")
    unit = inputs / np.linalg.norm(inputs, axis=1, keepdims=True)
    logits = (unit - values[:16]) @ values[16:].reshape(16, 8)
    firm = np.abs(logits) > 1e-5
    assert firm.mean() > 0.99
    np.testing.assert_array_equal(unpack(encoder.encode(inputs), 8)[firm], logits[firm] > 0)


def test_pictures_keep_their_shape(tmp_path):
    inputs = vectors(50, 24).reshape(50, 4, 6)
    encoder = LSH(8).fit(inputs)
    encoder.save(tmp_path)
    assert open_encoder(tmp_path).input_shape == (4, 6)
    np.testing.assert_array_equal(open_encoder(tmp_path).encode(inputs), encoder.encode(inputs))


def test_only_what_is_fitted_is_saved(tmp_path):
    with pytest.raises(NotFittedError):
        ITQ(8).save(tmp_path)
    assert not any(tmp_path.iterdir())


def test_every_changed_byte_is_noticed(tmp_path):
    ITQ(8).fit(vectors(20, 8)).save(tmp_path)
    whole = (tmp_path / NAME).read_bytes()
    for place in range(0, len(whole), 7):
        (tmp_path / NAME).write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(CorruptFileError, match="checksum"):
            open_encoder(tmp_path)
    for length in (0, 10, 40, len(whole) - 1):
        (tmp_path / NAME).write_bytes(whole[:length])
        with pytest.raises(CorruptFileError, match="checksum"):
            open_encoder(tmp_path)


GOOD = {"format": 1, "method": "LSH", "input_shape": [2], "options": {"n_bits": 8}}


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"format": 2}, UnsupportedFileError, "upgrade"),
        ({"method": "PCA"}, UnsupportedFileError, "upgrade"),
        ({"method": []}, UnsupportedFileError, "upgrade"),
        ({"options": {"n_bits": 12}}, CorruptFileError, "options"),
        ({"options": {"n_bits": 8, "metric": "hamming"}}, CorruptFileError, "options"),
        ({"options": {"n_bits": 8, "other": 1}}, CorruptFileError, "options"),
        ({"options": 7}, CorruptFileError, "options"),
        ({"options": {"n_bits": 16}}, CorruptFileError, "72 bytes.*expected 136"),
        ({"input_shape": [3]}, CorruptFileError, "72 bytes.*expected 108"),
        ({"input_shape": [0]}, CorruptFileError, "input_shape"),
        ({"input_shape": [1] * 5}, CorruptFileError, "input_shape"),
        ({"input_shape": 2}, CorruptFileError, "input_shape"),
    ],
)
def test_forged_files_are_refused(changes, error, words, tmp_path):
    numbers = np.ones(18, "<f4").tobytes()
    (tmp_path / NAME).write_bytes(sealed(GOOD, numbers))
    assert open_encoder(tmp_path).n_bits == 8
    (tmp_path / NAME).write_bytes(sealed({**GOOD, **changes}, numbers))
    with pytest.raises(error, match=words):
        open_encoder(tmp_path)


def test_other_content_is_refused(tmp_path):
    for content in (sealed([1]), sealed(GOOD, np.full(18, np.nan, "<f4").tobytes()), hashlib.sha256(b"").digest()):
        (tmp_path / NAME).write_bytes(content)
        with pytest.raises(CorruptFileError):
            open_encoder(tmp_path)
    (tmp_path / NAME).unlink()
    with pytest.raises(FileError):
        open_encoder(tmp_path)


def test_codes_are_learned_from_a_sample(monkeypatch):
    rows = vectors(500, 70)
    monkeypatch.setattr(itq, "MOST_LEARNED_FROM", 100)
    encoder = learn_vector_codes(rows, "l2")
    assert (type(encoder), encoder.n_bits, encoder.neighbor_metric) == (ITQ, 64, "l2")
    chosen = np.sort(np.random.default_rng(0).choice(500, 100, replace=False, shuffle=False))
    assert len(set(chosen)) == 100
    np.testing.assert_array_equal(encoder.encode(rows), ITQ(64, metric="l2").fit(rows[chosen]).encode(rows))
    assert type(learn_vector_codes(rows[:, :63], "l2")) is LSH
    assert learn_vector_codes(rows, "dot", n_bits=8).n_bits == 8


def test_codes_need_two_rows_with_directions():
    with pytest.raises(ShapeError, match="at least 2"):
        learn_vector_codes(vectors(1, 70), "l2")
    rows = vectors(30, 70)
    rows[21] = 0
    with pytest.raises(InputError, match="row 21 is all zeros"):
        learn_vector_codes(rows, "cosine")
    assert learn_vector_codes(rows, "l2").n_bits == 64
