"""Files that somebody forged: a typed error each, before memory is spent or another file is opened."""

import io
import json
import os
import resource
import struct
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from hamtarget._reading import lines_of, max_bytes_of, parse_json, reason_of
from hamtarget.datasets import ImageSet, open_vectors
from hamtarget.datasets.pictures.images import read_image
from hamtarget.errors import (
    CorruptFileError,
    DtypeError,
    FileError,
    HamtargetError,
    ImageError,
    InputError,
    UnsupportedFileError,
)

VECTORS = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
CONTENT = VECTORS.tobytes()
N_CASES = 300
PEAK = 30_000_000


@pytest.fixture(autouse=True)
def little_memory():
    """Fail where a test takes much memory: a forged file is refused before it does."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < PEAK


def npy(shape="(40, 8)", descr="'<f4'", content=CONTENT, header=None):
    text = header or f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    text = text.ljust((len(text) + 11) // 64 * 64 + 53) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + content


def npz(path, content, *, name="vectors.npy", claimed=None, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, content)
    if claimed is not None:
        # Local header and directory, as a forger would.
        whole = bytearray(path.read_bytes())
        whole[22:26] = struct.pack("<I", claimed)
        place = whole.index(b"PK\x01\x02")
        whole[place + 24 : place + 28] = struct.pack("<I", claimed)
        path.write_bytes(bytes(whole))


def bomb(path, size):
    """Write an npz of a few kilobytes with an array of zeros, without having it in memory."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        with archive.open("vectors.npy", "w", force_zip64=True) as member:
            member.write(npy(f"({size // 400}, 100)", content=b""))
            for _ in range(size // (1 << 20)):
                member.write(bytes(1 << 20))


def test_an_npz_that_unpacks_beyond_the_limit_is_refused_before_it_does(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    bomb(path, 100 << 20)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(CorruptFileError, match="HAMTARGET_MAX_BYTES"):
        open_vectors(path, max_bytes=10 << 20)
    monkeypatch.setenv("HAMTARGET_MAX_BYTES", str(10 << 20))
    with pytest.raises(CorruptFileError, match="max_bytes="):
        open_vectors(path)


@pytest.mark.parametrize("claimed", [500, 1408, 100_000])
def test_an_npz_whose_directory_lies_is_refused_after_what_it_claims(tmp_path, claimed):
    path = tmp_path / "lies.npz"
    npz(path, npy("(5000000, 1)", descr="'|u1'", content=bytes(5_000_000)), claimed=claimed)
    with pytest.raises(CorruptFileError):
        open_vectors(path, max_bytes=10 << 20)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_npz_packed_in_another_way_is_refused(tmp_path, method):
    npz(tmp_path / "other.npz", npy(), method=method)
    # Packing by LZMA takes 100 MB.
    tracemalloc.reset_peak()
    with pytest.raises(UnsupportedFileError, match="another method"):
        open_vectors(tmp_path / "other.npz")


FORGED_ARRAYS = {
    "more rows than there are": npy("(1152921504606846976, 8)"),
    "a product beyond 64 bits": npy("(4294967296, 4294967296, 8)"),
    "fewer rows than there are": npy("(39, 8)"),
    "negative": npy("(-40, -8)"),
    "objects": npy(descr="'|O'", content=b"cos\nsystem\n(S'true'\ntR."),
    "nothing in an element": npy(descr="'|V0'", content=b""),
    "a structure": npy("(40,)", descr="[('a', '<f4', (8,))]"),
    "nested brackets": npy(header="[" * 5000 + "]" * 5000),
    "no header": npy(header="42"),
    "a key too many": npy(header="{'descr': '<f4', 'fortran_order': False, 'shape': (40, 8), 'more': 1}"),
    "a call": npy(header="{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': (40, 8)}"),
    "a header of gigabytes": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b" " * 100,
    "a later version": b"\x93NUMPY\x03\x00" + npy()[8:],
    "cut off": npy()[:-5],
    "cut in the header": npy()[:40],
    "nothing": b"",
}


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize("forged", FORGED_ARRAYS)
def test_forged_arrays_are_refused(tmp_path, forged, kind):
    path = tmp_path / f"forged.{kind}"
    if kind == "npy":
        path.write_bytes(FORGED_ARRAYS[forged])
    else:
        npz(path, FORGED_ARRAYS[forged])
    with pytest.raises((CorruptFileError, DtypeError)):
        open_vectors(path)


def test_limits_of_memory_are_numbers(monkeypatch):
    assert max_bytes_of(7) == 7
    assert 1 << 20 < max_bytes_of(None) < 1 << 60
    monkeypatch.setenv("HAMTARGET_MAX_BYTES", "much")
    for wrong in (None, 0, -1, "x"):
        with pytest.raises(InputError, match="bytes|1 or more"):
            max_bytes_of(wrong)


@pytest.fixture
def hdf5(tmp_path):
    """Opens a new HDF5 file for writing."""
    with h5py.File(tmp_path / "other.hdf5", "w") as other:
        other["train"] = VECTORS
    (tmp_path / "secret.bin").write_bytes(VECTORS.tobytes())
    return lambda **how: h5py.File(tmp_path / "forged.hdf5", "w", **how)


def external_link(file):
    file["train"] = h5py.ExternalLink("other.hdf5", "/train")


def soft_link(file):
    file["away"] = h5py.ExternalLink("other.hdf5", "/")
    file["train"] = h5py.SoftLink("/away/train")


def external_storage(file):
    file.create_dataset("train", shape=(40, 8), dtype="f4", external=[("secret.bin", 0, VECTORS.nbytes)])


def virtual(file):
    layout = h5py.VirtualLayout((40, 8), "f4")
    layout[:] = h5py.VirtualSource("other.hdf5", "train", (40, 8))
    file.create_virtual_dataset("train", layout)


@pytest.mark.parametrize(
    "forge", [external_link, soft_link, external_storage, virtual], ids=lambda forge: forge.__name__
)
def test_an_hdf5_that_refers_to_other_files_is_refused_before_they_are_opened(tmp_path, hdf5, monkeypatch, forge):
    monkeypatch.chdir(tmp_path)
    with hdf5() as file:
        forge(file)
    for name in ("other.hdf5", "secret.bin"):
        Path(name).unlink()
        # Whoever opened it would wait for ever.
        os.mkfifo(name)
    with pytest.raises(UnsupportedFileError, match="elsewhere|other files"):
        open_vectors(tmp_path / "forged.hdf5")


def test_forged_shapes_types_and_filters_of_hdf5_are_refused(tmp_path, hdf5):
    path = tmp_path / "forged.hdf5"
    with hdf5() as file:
        file.create_dataset("train", shape=(2**50, 8), dtype="f4", chunks=(1024, 8))
    with pytest.raises(CorruptFileError, match="HAMTARGET_MAX_BYTES"):
        open_vectors(path)
    with hdf5() as file:
        file.create_dataset("train", shape=(2, 2), maxshape=(None, 2), dtype="f4", chunks=(2**28, 2))
    with pytest.raises(CorruptFileError, match="chunk"):
        open_vectors(path, max_bytes=1 << 20)
    with hdf5() as file:
        file.create_dataset("train", data=["a", "b"], dtype=h5py.string_dtype())
    with pytest.raises(DtypeError, match="no fixed size"):
        open_vectors(path)
    with hdf5() as file:
        file.create_dataset("train", data=VECTORS.astype("i4"), scaleoffset=0, chunks=(40, 8))
    with pytest.raises(UnsupportedFileError, match="h5repack"):
        open_vectors(path)


def test_a_chunk_of_hdf5_that_unpacks_to_more_than_its_size_is_refused(tmp_path, hdf5):
    with hdf5() as file:
        dataset = file.create_dataset("train", shape=(40, 8), dtype="f4", chunks=(40, 8), compression="gzip")
        packer = zlib.compressobj(9)
        packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(100)) + packer.flush()
        dataset.id.write_direct_chunk((0, 0), packed)
    with pytest.raises(CorruptFileError, match="unpacks to more"):
        open_vectors(tmp_path / "forged.hdf5")


@pytest.mark.parametrize(
    "packed", [{}, {"compression": "gzip", "shuffle": True, "fletcher32": True}, {"compression": "lzf"}]
)
def test_an_ordinary_hdf5_is_read(tmp_path, hdf5, packed):
    with hdf5() as file:
        file.create_dataset("train", data=VECTORS, chunks=(16, 8) if packed else None, **packed)
        file.create_group("more")["x"] = 1
    np.testing.assert_array_equal(open_vectors(tmp_path / "forged.hdf5"), VECTORS)


@pytest.mark.parametrize("suffix", ["fvecs", "ivecs", "bvecs"])
@pytest.mark.parametrize("dimension", [0, -1, 2**31 - 1, -(2**31), 1_000_001, 7])
def test_absurd_dimensions_are_refused(tmp_path, suffix, dimension):
    path = tmp_path / f"forged.{suffix}"
    path.write_bytes(struct.pack("<i", dimension) + bytes(100))
    with pytest.raises(CorruptFileError):
        open_vectors(path)


def png(width, height):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    )


def test_images_beyond_the_limit_are_refused():
    with pytest.raises(ImageError, match="pixels"):
        read_image(png(100_000, 100_000), (3, 8, 8))
    with pytest.raises(ImageError):
        read_image(png(9000, 8000), (3, 8, 8))


def test_lines_that_do_not_end_are_refused(tmp_path):
    path = tmp_path / "endless.csv"
    path.write_bytes(b"a.png,cat\n" + b"x" * (5 << 20))
    with pytest.raises(CorruptFileError, match="longer than"):
        ImageSet.from_csv(path)
    assert list(lines_of(io.StringIO("ab\ncd"), where="here", max_line=3)) == ["ab\n", "cd"]
    with pytest.raises(CorruptFileError, match="line 2"):
        list(lines_of(io.StringIO("ab\ncdef\n"), where="here", max_line=3))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 10_000, "{", "", "\ud800", b"\xff"])
def test_what_is_no_json_is_damage(text):
    with pytest.raises(CorruptFileError, match="here"):
        parse_json(text, where="here")
    assert parse_json('"\\ud800"', where="here") == "\ud800"


TOO_MANY = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from hamtarget.datasets import ImageSet, open_vectors
from hamtarget.datasets.pictures.images import read_image
from hamtarget.errors import HamtargetError
import numpy as np, h5py, PIL.Image
from hamtarget.encoders import OnnxEncoder
calls = {"a.npy": open_vectors, "a.npz": open_vectors, "a.hdf5": open_vectors, "a.fvecs": open_vectors,
         "a.png": lambda path: read_image(path, (3, 8, 8)), "a.csv": ImageSet.from_csv, "a.onnx": OnnxEncoder}
held = []
try:
    while True:
        held.append(open("a.npy"))
except OSError:
    pass
for name, call in calls.items():
    try:
        call(name)
    except HamtargetError as error:
        assert "ulimit -n" in str(error) and "64" in str(error), (name, str(error))
    else:
        raise SystemExit(name)
print("all told")
"""


def test_too_many_open_files_are_told_as_that(tmp_path):
    np.save(tmp_path / "a.npy", VECTORS)
    np.savez(tmp_path / "a.npz", vectors=VECTORS)
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["train"] = VECTORS
    for name in ("a.fvecs", "a.png", "a.csv", "a.onnx"):
        (tmp_path / name).write_bytes(struct.pack("<if", 1, 1.0))
    done = subprocess.run([sys.executable, "-c", TOO_MANY], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "all told" in done.stdout, done.stderr
    assert "ulimit" in reason_of(OSError(24, "Too many open files"))
    assert "file-max" in reason_of(OSError(23, "Too many open files in system"))
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64


def mutated(content, random):
    """Return content with a few bytes changed, repeated, removed or put elsewhere, the beginning most often."""
    found = bytearray(content)
    for _ in range(random.integers(1, 5)):
        end = len(found) if random.random() < 0.4 else min(len(found), 256)
        place = int(random.integers(0, max(1, end)))
        way = random.integers(0, 6)
        if way == 0 and found:
            found[place % len(found)] ^= 1 << int(random.integers(0, 8))
        elif way == 1:
            found[place : place + 4] = random.choice([b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\1\0\0\0"])
        elif way == 2:
            del found[place : place + int(random.integers(1, 64))]
        elif way == 3:
            found[place:place] = found[place : place + int(random.integers(1, 64))]
        elif way == 4:
            found = found[: int(random.integers(0, len(found) + 1))]
        else:
            found[place : place + 8] = bytes(random.integers(0, 256, 8, dtype=np.uint8))
    return bytes(found)


def valid_files(folder):
    """Return readers by the name of a valid file."""
    from PIL import Image

    np.save(folder / "a.npy", VECTORS)
    np.savez(folder / "a.npz", vectors=VECTORS)
    np.savez_compressed(folder / "b.npz", vectors=VECTORS)
    images = [io.BytesIO() for _ in range(2)]
    for image in images:
        Image.new("RGB", (9, 9), "red").save(image, "JPEG")
    data = np.frombuffer(b"".join(image.getvalue() for image in images), dtype=np.uint8)
    offsets = np.array([0, len(images[0].getvalue()), len(data)])
    np.savez(folder / "packed.npz", jpegs=data, offsets=offsets, labels=np.array([0, 1]))
    rows = np.zeros(40, dtype=[("dimension", "<i4"), ("vector", "<f4", (8,))])
    rows["dimension"], rows["vector"] = 8, VECTORS
    (folder / "a.fvecs").write_bytes(rows.tobytes())
    with h5py.File(folder / "a.hdf5", "w") as file:
        file["train"], file["test"] = VECTORS, VECTORS[:3]
        file.attrs["distance"] = "euclidean"
    with h5py.File(folder / "b.hdf5", "w") as file:
        file.create_dataset("train", data=VECTORS, chunks=(16, 8), compression="gzip", shuffle=True)
    (folder / "a.csv").write_text("path,label\na.png,cat\na.png,dog;cat\n")
    for name in ("a.png", "a.jpg", "a.gif", "a.webp", "a.tiff", "a.bmp"):
        Image.effect_noise((20, 30), 50).convert("RGB").save(folder / name)

    def read(path):
        return read_image(path, (3, 8, 8))

    def packed(path):
        return ImageSet.from_packed(path).decode((3, 8, 8))

    return {
        **dict.fromkeys(("a.npy", "a.npz", "b.npz", "a.fvecs", "a.hdf5", "b.hdf5"), open_vectors),
        "packed.npz": packed,
        "a.csv": ImageSet.from_csv,
        **dict.fromkeys(("a.png", "a.jpg", "a.gif", "a.webp", "a.tiff", "a.bmp"), read),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["a.npy", "a.npz", "b.npz", "packed.npz", "a.fvecs", "a.hdf5", "b.hdf5", "a.csv"])
def test_mutated_files_raise_nothing_but_typed_errors(tmp_path, name):
    read = valid_files(tmp_path)[name]
    content = (tmp_path / name).read_bytes()
    read(tmp_path / name)
    random = np.random.default_rng(sum(name.encode()))
    n_refused = 0
    for number in range(N_CASES):
        path = tmp_path / f"mutated-{number}-{name}"
        path.write_bytes(mutated(content, random))
        try:
            read(path)
        except HamtargetError:
            n_refused += 1
        path.unlink()
    assert n_refused > N_CASES / 20


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.gif", "a.webp", "a.tiff", "a.bmp"])
def test_mutated_images_raise_nothing_but_typed_errors(tmp_path, name):
    read = valid_files(tmp_path)[name]
    content = (tmp_path / name).read_bytes()
    random = np.random.default_rng(sum(name.encode()))
    n_refused = 0
    for _ in range(N_CASES):
        try:
            read(mutated(content, random))
        except ImageError:
            n_refused += 1
    assert n_refused > N_CASES / 20


def test_a_missing_file_and_json_of_settings(tmp_path):
    with pytest.raises(FileError):
        open_vectors(tmp_path / "missing.npz")
    assert parse_json(json.dumps({"a": [1]}), where="x") == {"a": [1]}
