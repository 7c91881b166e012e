"""A damaged file of vectors is refused: every length, every bit of the headers, and never with another error."""

import os
import struct

import h5py
import numpy as np
import pytest

from hamtarget.datasets import open_vectors
from hamtarget.errors import CorruptFileError, HamtargetError, NotFiniteError

N_ROWS, DIMENSION = 6, 5
SIZES = {"fvecs": 4, "ivecs": 4, "bvecs": 1}


@pytest.fixture(params=SIZES)
def records(tmp_path, request):
    """A small file, and the bytes of one of its rows."""
    element = {"fvecs": "f", "ivecs": "i", "bvecs": "B"}[request.param]
    path = tmp_path / f"some.{request.param}"
    rows = [struct.pack(f"<i{DIMENSION}{element}", DIMENSION, *range(row, row + DIMENSION)) for row in range(N_ROWS)]
    path.write_bytes(b"".join(rows))
    return path, len(rows[0])


def test_every_truncation_within_a_row_is_refused(records):
    path, row_bytes = records
    whole = np.array(open_vectors(path))
    for length in reversed(range(N_ROWS * row_bytes)):
        os.truncate(path, length)
        if length and length % row_bytes == 0:
            # The format has no number of rows: a file that ends with a row is whole, as far as anyone can tell.
            assert np.array_equal(open_vectors(path), whole[: length // row_bytes])
            continue
        message = rf"row {length // row_bytes} is cut off" if length > row_bytes else "row"
        with pytest.raises(CorruptFileError, match=message):
            open_vectors(path)


@pytest.mark.parametrize("row", range(N_ROWS))
@pytest.mark.parametrize("bit", range(32))
def test_every_flipped_bit_of_a_dimension_is_refused(records, row, bit):
    path, row_bytes = records
    content = bytearray(path.read_bytes())
    content[row * row_bytes + bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    # With another dimension in row 0, it is row 1 that seems wrong; but refused it is.
    told = r"row \d+ (claims|is cut off|holds)" if row else "row"
    with pytest.raises((CorruptFileError, NotFiniteError), match=told):
        open_vectors(path)


@pytest.mark.parametrize("extra", [1, 3, 4, 7])
def test_appended_bytes_are_refused(records, extra):
    path, _ = records
    path.write_bytes(path.read_bytes() + bytes(extra))
    with pytest.raises(CorruptFileError, match=f"row {N_ROWS} is cut off after {extra} bytes"):
        open_vectors(path)


@pytest.fixture(params=["npy", "npz", "compressed.npz", "hdf5"])
def array_file(tmp_path, request):
    path = tmp_path / f"some.{request.param}"
    vectors = np.arange(20, dtype=np.float32).reshape(4, 5)
    if request.param == "npy":
        np.save(path, vectors)
    elif request.param == "npz":
        np.savez(path, vectors=vectors)
    elif request.param == "hdf5":
        with h5py.File(path, "w") as file:
            file["train"] = vectors
    else:
        np.savez_compressed(path, vectors=vectors)
    return path, vectors


def test_every_truncation_of_an_array_file_is_refused(array_file):
    path, _ = array_file
    size = path.stat().st_size
    for length in reversed(range(0, size, 1 if size < 1000 else 7)):
        os.truncate(path, length)
        with pytest.raises(CorruptFileError):
            open_vectors(path)


def test_a_flipped_bit_is_refused_or_changes_one_number(array_file):
    path, vectors = array_file
    content = path.read_bytes()
    positions = range(8 * len(content)) if len(content) < 1000 else range(0, 8 * len(content), 97)
    for position in positions:
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            found = open_vectors(path)
        except HamtargetError:
            continue
        # npy and HDF5 have no checksums, npz has: of its bits only those survive that mean nothing.
        assert found.ndim == 2
        if path.suffix == ".npz":
            assert np.array_equal(found, vectors)


def test_npy_with_something_appended_is_refused(tmp_path):
    np.save(tmp_path / "some.npy", np.ones((2, 2)))
    with open(tmp_path / "some.npy", "ab") as file:
        file.write(b"more")
    with pytest.raises(CorruptFileError, match="164 bytes; expected 160 by its header"):
        open_vectors(tmp_path / "some.npy")


@pytest.mark.parametrize("suffix", ["npy", "npz", "hdf5", "fvecs", "ivecs", "bvecs"])
@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04" * 100, b"\xff" * 4096, b"\x93NUMPY\x01\x00\xff\xff" + b"{" * 99]
)
def test_other_contents_are_refused(tmp_path, suffix, content):
    path = tmp_path / f"some.{suffix}"
    path.write_bytes(content)
    with pytest.raises(CorruptFileError):
        open_vectors(path)


def test_a_forged_npy_cannot_make_the_reader_allocate(tmp_path):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1000000000), }"
    header += b" " * (118 - len(header) - 1) + b"\n"
    (tmp_path / "some.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    with pytest.raises(CorruptFileError):
        open_vectors(tmp_path / "some.npy")
