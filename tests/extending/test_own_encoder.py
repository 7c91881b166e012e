"""An encoder of your own: a class with the methods of `Encoder`, and one line that lets stores open it again."""

import json
from pathlib import Path

import numpy as np
import pytest

from hamtarget import Encoder, Store, codes, open_encoder
from hamtarget.encoders import register_encoder
from hamtarget.errors import FileError, InputError

N_COLUMNS = 16
FILE_NAME = "thresholds.json"


class Thresholds:
    """A bit for each column of a vector: 1 where the number is above the column's threshold."""

    radius = 1

    def __init__(self, thresholds):
        self.thresholds = np.asarray(thresholds, dtype=np.float32)
        self.n_bits = len(self.thresholds)
        self.input_shape = (self.n_bits,)

    def logits(self, inputs):
        return np.asarray(inputs, dtype=np.float32) - self.thresholds

    def encode(self, inputs):
        return codes.from_logits(self.logits(inputs))

    def embedding(self, inputs):
        logits = self.logits(inputs)
        return logits / np.linalg.norm(logits, axis=1, keepdims=True)

    def save(self, folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / FILE_NAME).write_text(json.dumps(self.thresholds.tolist()))


register_encoder(FILE_NAME, lambda path: Thresholds(json.loads(path.read_text())))


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(200, N_COLUMNS)).astype(np.float32)


@pytest.fixture
def encoder(vectors):
    return Thresholds(np.median(vectors, axis=0))


def test_a_store_searches_by_inputs(tmp_path, encoder, vectors):
    assert isinstance(encoder, Encoder)
    bits = vectors > encoder.thresholds
    within = [np.flatnonzero((bits != one).sum(axis=1) <= 2).tolist() for one in bits[:20]]
    with Store.create(tmp_path / "store", encoder=encoder) as store:
        store.put_rows(range(200), inputs=vectors)
        assert (store.n_bits, store.radius) == (N_COLUMNS, 1)
        found = [sorted(hit.id for hit in store.search(vector, 2)) for vector in vectors[:20]]
        assert found == within
        # With a budget of all rows, by the encoder's logits.
        asked = store.search(vectors[3], 2, budget=1000, rerank=1)
        assert asked[0].id == 3


def test_a_store_opens_it_again(tmp_path, encoder, vectors):
    with Store.create(tmp_path / "store", encoder=encoder) as store:
        store.put_rows(range(200), inputs=vectors)
        before = [store.search(vector, 2) for vector in vectors]
    with Store.open(tmp_path / "store") as store:
        assert isinstance(store.encoder, Thresholds)
        assert [store.search(vector, 2) for vector in vectors] == before


def test_it_is_opened_from_its_folder(tmp_path, encoder, vectors):
    encoder.save(tmp_path / "encoder")
    opened = open_encoder(tmp_path / "encoder")
    np.testing.assert_array_equal(opened.encode(vectors), encoder.encode(vectors))


def test_names_of_the_package_are_not_for_others(tmp_path):
    for name in ("model.onnx", "model.safetensors", "a/b", "", *(path.name for path in saved(tmp_path))):
        with pytest.raises(InputError, match="no kind of the package"):
            register_encoder(name, Thresholds)


def test_a_folder_of_an_unknown_kind_names_the_remedy(tmp_path):
    (tmp_path / "else.json").write_text("[]")
    with pytest.raises(FileError, match="register_encoder"):
        open_encoder(tmp_path)


def saved(folder):
    """Return the file that a hash of the package writes."""
    open_encoder("dhash").save(folder)
    return list(folder.iterdir())
