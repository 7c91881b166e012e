"""Every format gives the array that was written; whatever else a file holds is refused with the row and the reason."""

import os
import struct

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hamtarget.datasets import open_vectors
from hamtarget.datasets.vector_files import MAX_DIMENSION, checked_vectors, row_blocks
from hamtarget.errors import (
    CorruptFileError,
    DtypeError,
    FileError,
    MissingExtraError,
    NotFiniteError,
    ShapeError,
    UnsupportedFileError,
)

ELEMENTS = {"fvecs": "f", "ivecs": "i", "bvecs": "B"}
DTYPES = {"fvecs": np.float32, "ivecs": np.int32, "bvecs": np.uint8}


def write_records(path, rows):
    """One row after another: its length, then its numbers."""
    element = ELEMENTS[path.suffix[1:]]
    path.write_bytes(b"".join(struct.pack(f"<i{len(row)}{element}", len(row), *row) for row in rows))
    return path


def read_records(path):
    """The naive twin: one number after another."""
    element, content, rows, place = ELEMENTS[path.suffix[1:]], path.read_bytes(), [], 0
    while place < len(content):
        (length,) = struct.unpack_from("<i", content, place)
        rows.append(struct.unpack_from(f"<{length}{element}", content, place + 4))
        place += 4 + length * struct.calcsize(element)
    return rows


@st.composite
def vectors(draw, dtype):
    shape = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    bounds = {"allow_nan": False, "allow_infinity": False} if dtype == np.float32 else {}
    return draw(hnp.arrays(dtype, shape, elements=hnp.from_dtype(np.dtype(dtype), **bounds)))


@pytest.mark.parametrize("kind", ELEMENTS)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_records_are_read_as_the_naive_twin_reads_them(tmp_path_factory, kind, data):
    wanted = data.draw(vectors(DTYPES[kind]))
    path = write_records(tmp_path_factory.mktemp("records") / f"some.{kind}", wanted.tolist())
    found = open_vectors(path)
    assert found.dtype == DTYPES[kind]
    assert np.array_equal(found, wanted)
    assert np.array_equal(found, read_records(path))


@pytest.mark.parametrize("kind", ELEMENTS)
def test_records_are_mapped_and_cannot_be_written_to(tmp_path, kind):
    found = open_vectors(write_records(tmp_path / f"some.{kind}", [[1, 2, 3], [4, 5, 6]]))
    assert not found.flags.owndata
    assert not found.flags.writeable


def test_rows_beyond_the_first_block_are_checked(tmp_path):
    rows = np.zeros((40_000, 64), dtype=np.float32)
    path = write_records(tmp_path / "some.fvecs", rows.tolist())
    blocks = [start for start, _ in row_blocks(open_vectors(path))]
    assert len(blocks) > 1
    content = bytearray(path.read_bytes())
    row = blocks[1] + 7
    struct.pack_into("<f", content, row * 260 + 4 + 4 * 5, float("nan"))
    path.write_bytes(content)
    with pytest.raises(NotFiniteError, match=f"row {row:,} holds NaN"):
        open_vectors(path)
    struct.pack_into("<i", content, row * 260, 63)
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match=f"row {row:,} claims 63 numbers; expected 64"):
        open_vectors(path)


@pytest.mark.parametrize("dimension", [0, -1, -(2**31), MAX_DIMENSION + 1, 2**31 - 1])
@pytest.mark.parametrize("row", [0, 2])
def test_absurd_dimensions(tmp_path, dimension, row):
    path = write_records(tmp_path / "some.fvecs", [[1, 2, 3]] * 4)
    content = bytearray(path.read_bytes())
    struct.pack_into("<i", content, 16 * row, dimension)
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match=rf"row {row} claims {dimension:,} numbers; expected 1 to"):
        open_vectors(path)


def test_rows_of_different_dimension(tmp_path):
    path = write_records(tmp_path / "some.ivecs", [[1, 2, 3], [1, 2, 3], [1, 2]])
    with pytest.raises(CorruptFileError, match="row 2 is cut off"):
        open_vectors(path)
    write_records(path, [[1, 2, 3], [1, 2], [1, 2, 3, 4]])
    with pytest.raises(CorruptFileError, match="row 1 claims 2 numbers; expected 3"):
        open_vectors(path)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_files(tmp_path, dtype, order):
    wanted = np.arange(12).reshape(4, 3).astype(dtype, order=order)
    np.save(tmp_path / "some.npy", wanted)
    np.savez(tmp_path / "named.npz", vectors=wanted, other=np.zeros(3))
    np.savez_compressed(tmp_path / "single.npz", anything=wanted)
    for name in ("some.npy", "named.npz", "single.npz"):
        found = open_vectors(tmp_path / name)
        assert found.dtype == dtype
        assert np.array_equal(found, wanted)
    assert not open_vectors(tmp_path / "some.npy").flags.writeable


def test_hdf5(tmp_path):
    with h5py.File(tmp_path / "some.hdf5", "w") as file:
        file["train"], file["test"] = np.ones((3, 2)), np.zeros((1, 2))
        file.create_group("not an array")
    assert np.array_equal(open_vectors(tmp_path / "some.hdf5"), np.ones((3, 2)))
    assert np.array_equal(open_vectors(tmp_path / "some.hdf5", key="test"), np.zeros((1, 2)))
    with pytest.raises(FileError, match=r"'test', 'train'; expected 'nothing'"):
        open_vectors(tmp_path / "some.hdf5", key="nothing")


def test_hdf5_without_h5py(tmp_path, monkeypatch):
    (tmp_path / "some.h5").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"hamtarget\[hdf5\]"):
        open_vectors(tmp_path / "some.h5")


def test_a_name_without_ending_is_told_by_its_first_bytes(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    np.savez(tmp_path / "b.npz", np.ones((2, 2)))
    with h5py.File(tmp_path / "c.hdf5", "w") as file:
        file["train"] = np.ones((2, 2))
    for name in ("a.npy", "b.npz", "c.hdf5"):
        (tmp_path / name).rename(tmp_path / name[0])
        assert np.array_equal(open_vectors(tmp_path / name[0]), np.ones((2, 2)))


@pytest.mark.parametrize("name", ["sift.tar.gz", "vectors", "some.txt"])
def test_other_formats(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x1f\x8b something")
    with pytest.raises(UnsupportedFileError, match=r"expected one of \.fvecs.*unpack or convert"):
        open_vectors(tmp_path / name)


def test_several_arrays_want_a_key(tmp_path):
    np.savez(tmp_path / "some.npz", a=np.ones((1, 1)), b=np.zeros((1, 1)))
    with pytest.raises(FileError, match=r"'a', 'b'; expected 'vectors': name one of them by key="):
        open_vectors(tmp_path / "some.npz")
    assert open_vectors(tmp_path / "some.npz", key="b") == 0


@pytest.mark.parametrize("save", [np.save, np.savez])
@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.zeros(3), ShapeError, r"shape \(3,\); expected \(rows, columns\)"),
        (np.zeros((2, 3, 4)), ShapeError, r"shape \(2, 3, 4\)"),
        (np.zeros((0, 3)), ShapeError, r"shape \(0, 3\)"),
        (np.zeros((3, 0)), ShapeError, r"shape \(3, 0\)"),
        (np.zeros((2, 2), dtype=complex), DtypeError, "complex128; expected integers or floats"),
        (np.array([["a"]]), DtypeError, "<U1"),
        (np.array([[True]]), DtypeError, "bool"),
        (np.array([[1.0, 2.0], [3.0, np.inf]]), NotFiniteError, "row 1 holds NaN or infinity"),
        (np.array([[object()]]), CorruptFileError, r"[Oo]bject"),
    ],
)
def test_arrays_that_are_no_vectors(tmp_path, save, array, error, message):
    path = tmp_path / ("some.npy" if save is np.save else "some.npz")
    save(path, array)
    with pytest.raises(error, match=message):
        open_vectors(path)


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileError, match="do(es)? not exist"):
        open_vectors(tmp_path / "some.fvecs")
    with pytest.raises(FileError, match="is a folder"):
        open_vectors(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe.fvecs")
    with pytest.raises(FileError, match="not an ordinary file"):
        open_vectors(tmp_path / "pipe.fvecs")


def test_checked_vectors_names_the_array():
    with pytest.raises(NotFiniteError, match="my array: row 1"):
        checked_vectors(np.array([[0.0], [np.nan]]), where="my array")
