"""Files that were written earlier open, and hold what was put into them.

The files in this folder are not written again: see golden_files.py.
"""

import hashlib
import shutil

import golden_files
import numpy as np
import pytest

from hamtarget.codes import distances
from hamtarget.query import Asked

# A change of one of these breaks the files that people have.
SHA256 = {
    "empty_index.ham": "dbbd511b7e844a1ebd2838d00b6c242be4e848f6d4a7d770e9b169e49fbf038a",
    "flat_index.ham": "1348391bbd87303a53fddc143164702157d0456439c0274f0bf2b14592cd6852",
    "multi_index.ham": "9fb9964932197cb46feeb5d38b630dc775ecf388b372cd4972e3fe06619b0885",
    "shared_index.ham": "246d8711676d524111cb495b364e195c6de8b274570decb1a8295a94d7a1f811",
    "wide_index.ham": "4309650da662a58b4310c10e7e4ad0a6696b13baf3fa9c999ce236e4a2ebf9d2",
}
ROWS_NAMES = [name for name in golden_files.FILES if name != "empty_index.ham"]


@pytest.mark.parametrize("name", golden_files.FILES)
def test_the_file_is_the_one_that_was_written(name):
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
    found = index.get(ids)
    codes, vectors = (found, None) if embedding is None else found
    np.testing.assert_array_equal(codes, golden_files.codes(name)[kept])
    if embedding is not None:
        np.testing.assert_array_equal(vectors, golden_files.embeddings(embedding.n_dims, embedding.dtype)[kept])


@pytest.mark.parametrize("name", ROWS_NAMES)
def test_every_row_is_found(name):
    kind, n_bits, _, embedding = golden_files.FILES[name]
    index = kind.open(golden_files.FOLDER / name)
    kept = golden_files.kept()
    ids, codes = golden_files.ids()[kept], golden_files.codes(name)[kept]
    queries = golden_files.codes(name)[::40]
    for radius in (0, 1, 4, 9):
        hits = index.search_batch(queries, radius)
        for q, query in enumerate(queries):
            away = distances(query, codes, n_bits)[0]
            expected = sorted(zip(away[away <= radius].tolist(), ids[away <= radius].tolist(), strict=True))
            assert [(hit.distance, hit.id) for hit in hits[q]] == expected
    if embedding is None:
        return
    vectors = golden_files.embeddings(embedding.n_dims, embedding.dtype)
    (closest,) = index.search(Asked(queries[0], embeddings=vectors[0].astype(embedding.dtype)), n_bits - 1, rerank=1)
    assert closest.embedding_distance == pytest.approx(0, abs=1e-3)


def test_an_empty_index_opens():
    kind, n_bits, _, _ = golden_files.FILES["empty_index.ham"]
    index = kind.open(golden_files.FOLDER / "empty_index.ham")
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
