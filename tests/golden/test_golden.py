"""Files of every format that was ever released open, and hold what was put into them.

The files beside this test are never rewritten: see golden_files.py.
"""

import hashlib
import shutil

import golden_files
import numpy as np
import pytest

from hamtarget.codes import distances
from hamtarget.query import Asked

# Whoever changes one of these has broken the files that people have.
SHA256 = {
    "empty_index_1.ham": "e8c0f46b8dc1fae1010e9c6c52480f3f01de9d12a5686e49e47f872c9b7969c7",
    "flat_index_1.ham": "bc8ec3c6e127efb0c13b433bc5876901f992cbe2224ba54f3ac754ef5d05776b",
    "flat_index_2.ham": "92ce72eadfcbe20cf88aecc2f741239327a72c617bd8bc0996ba0acba8871ea7",
    "multi_index_2.ham": "c7e5ad34aba97235cc13a97d5f8afc5efc9ffa86fa066425e498cf954a138f6a",
    "multi_index_1.ham": "140a7176f3f1194d91c360678acf809d68cd2ed3b4fcfdb458953f81c8853cd3",
}
ROWS_NAMES = ["multi_index_1.ham", "flat_index_1.ham", "multi_index_2.ham", "flat_index_2.ham"]


@pytest.mark.parametrize("name", golden_files.FILES)
def test_the_file_is_the_one_that_was_released(name):
    assert hashlib.sha256((golden_files.FOLDER / name).read_bytes()).hexdigest() == SHA256[name]


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("name", ROWS_NAMES)
def test_every_row_is_there(name, mmap):
    kind, n_bits, keywords, embedding = golden_files.FILES[name]
    index = kind.open(golden_files.FOLDER / name, mmap=mmap)
    kept = golden_files.kept()
    ids = golden_files.ids()[kept]
    assert list(index) == sorted(ids.tolist())
    assert (index.n_bits, index.embeddings) == (n_bits, embedding)
    assert index.radius == keywords.get("radius")
    codes, vectors = index.get(ids)
    np.testing.assert_array_equal(codes, golden_files.codes(n_bits // 8)[kept])
    np.testing.assert_array_equal(vectors, golden_files.embeddings(embedding.n_dims, embedding.dtype)[kept])


@pytest.mark.parametrize("name", ROWS_NAMES)
def test_every_row_is_found(name):
    kind, n_bits, _, embedding = golden_files.FILES[name]
    index = kind.open(golden_files.FOLDER / name)
    kept = golden_files.kept()
    ids, codes = golden_files.ids()[kept], golden_files.codes(n_bits // 8)[kept]
    queries = golden_files.codes(n_bits // 8)[::40]
    for radius in (0, 1, 4, 9):
        hits = index.search_batch(queries, radius)
        for q, query in enumerate(queries):
            away = distances(query, codes, n_bits)[0]
            expected = sorted(zip(away[away <= radius].tolist(), ids[away <= radius].tolist(), strict=True))
            assert [(hit.distance, hit.id) for hit in hits[q]] == expected
    vectors = golden_files.embeddings(embedding.n_dims, embedding.dtype)
    (closest,) = index.search(Asked(queries[0], embeddings=vectors[0].astype(embedding.dtype)), n_bits - 1, rerank=1)
    assert closest.embedding_distance == pytest.approx(0, abs=1e-3)


def test_an_empty_index_opens():
    kind, n_bits, _, _ = golden_files.FILES["empty_index_1.ham"]
    index = kind.open(golden_files.FOLDER / "empty_index_1.ham")
    assert (len(index), index.n_bits, index.radius, index.embeddings) == (0, n_bits, 2, None)
    assert index.search(np.zeros(8, dtype=np.uint8)) == ()


@pytest.mark.parametrize("name", golden_files.FILES)
def test_an_old_file_can_be_changed_and_saved(name, tmp_path):
    kind, n_bits, _, embedding = golden_files.FILES[name]
    path = tmp_path / name
    shutil.copy(golden_files.FOLDER / name, path)
    index = kind.open(path)
    before = len(index)
    vectors = None if embedding is None else np.ones((1, embedding.n_dims), dtype=embedding.dtype)
    index.add([123_456_789], np.zeros((1, n_bits // 8), dtype=np.uint8), vectors)
    index.save(path)
    assert len(kind.open(path)) == before + 1
    assert 123_456_789 in kind.open(path)
