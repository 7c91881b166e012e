"""docs/format.md is true: its reader reads our files, and an XXH64 written from the specification checks them."""

import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from golden_files import FOLDER

from hamtarget.errors import CorruptFileError, UnsupportedFileError
from hamtarget.search import MultiIndex

ROOT = Path(__file__).parents[2]
PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


@pytest.fixture(params=["golden", "small", "with tables, deltas and deletes"])
def index_file(request, tmp_path):
    path = tmp_path / "index"
    if request.param == "golden":
        shutil.copy(FOLDER / "multi_index_1.ham", path)
        return path
    rng = np.random.default_rng(5)
    n_rows = 3 if request.param == "small" else 3000
    index = MultiIndex(16, radius=1)
    index.add(np.arange(n_rows), rng.integers(0, 256, (n_rows, 2), dtype=np.uint8))
    if n_rows > 3:
        index.add([-1, -2], rng.integers(0, 256, (2, 2), dtype=np.uint8))
        index.delete([7, -2])
    index.save(path)
    return path


def xxh64(data):
    def rotl(x, n):
        x %= 2**64
        return (x << n | x >> (64 - n)) % 2**64

    def mixed(lane, word):
        return rotl(lane + word * p2, 31) * p1 % 2**64

    p1, p2, p3, p4, p5 = PRIMES
    lanes = [p1 + p2, p2, 0, -p1]
    value, at = p5, 0
    if len(data) >= 32:
        for at in range(0, len(data) - 31, 32):
            words = struct.unpack_from("<4Q", data, at)
            lanes = [mixed(lane, word) for lane, word in zip(lanes, words, strict=True)]
        value, at = sum(map(rotl, lanes, (1, 7, 12, 18))), at + 32
        for lane in lanes:
            value = (value ^ mixed(0, lane)) * p1 + p4
            value %= 2**64
    value = (value + len(data)) % 2**64
    for code, size, step in (
        ("<Q", 8, lambda v, w: rotl(v ^ mixed(0, w), 27) * p1 + p4),
        ("<I", 4, lambda v, w: rotl(v ^ (w * p1 % 2**64), 23) * p2 + p3),
        ("<B", 1, lambda v, w: rotl(v ^ (w * p5 % 2**64), 11) * p1),
    ):
        while len(data) - at >= size:
            value = step(value, *struct.unpack_from(code, data, at)) % 2**64
            at += size
    value = (value ^ value >> 33) * p2 % 2**64
    value = (value ^ value >> 29) * p3 % 2**64
    return value ^ value >> 32


def reader_of_the_page():
    page = (ROOT / "docs" / "format.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(source, names)
    return names["sections"]


def table_of(data):
    n_sections = struct.unpack_from("<I", data, 12)[0]
    return [struct.unpack_from("<32s8s3Q", data, 64 + 64 * i) for i in range(n_sections)]


def test_checksum_gives_published_values():
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"abc") == 0x44BC2CF5AD770999
    assert xxh64(b"The quick brown fox jumps over the lazy dog") == 0x0B242D361FDA71BC


def test_every_byte_is_where_the_page_says(index_file):
    data = index_file.read_bytes()
    assert struct.unpack_from("<8sI", data) == (b"\x89HAM\r\n\x1a\n", 1)
    n_sections, kind, n_bytes, table_checksum, reserved, checksum = struct.unpack_from("<I16s4Q", data, 12)
    assert kind.rstrip(b"\0") == b"multi-index"
    assert reserved == 0
    assert n_bytes == len(data)
    assert checksum == xxh64(data[:56])
    assert table_checksum == xxh64(data[64 : 64 + 64 * n_sections])
    rows = table_of(data)
    assert [row[0] for row in rows] == sorted({row[0] for row in rows})
    end = 64 + 64 * n_sections
    for _, element, offset, length, section_checksum in rows:
        assert re.fullmatch(rb"[uif][1248]\0{6}", element)
        assert offset == end
        assert length % int(element[1:2]) == 0
        assert section_checksum == xxh64(data[offset : offset + length])
        end = (offset + length + 63) // 64 * 64
        assert not any(data[offset + length : end])
    assert end == len(data)


def test_reader_of_the_page_reads_every_section(index_file):
    data = index_file.read_bytes()
    found = reader_of_the_page()(index_file)
    rows = table_of(data)
    assert [name.rstrip(b"\0").decode() for name, *_ in rows] == list(found)
    for array, (_, element, offset, length, _) in zip(found.values(), rows, strict=True):
        assert array.dtype == np.dtype("<" + element.rstrip(b"\0").decode())
        assert array.tobytes() == data[offset : offset + length]


def test_page_names_every_section(index_file):
    page = (ROOT / "docs" / "format.md").read_text()
    for name in reader_of_the_page()(index_file):
        general = re.sub(r"\d+", "N", name)
        assert f"`{general}`" in page, f"docs/format.md says nothing of section {general}"


def bits_of(codes):
    return np.unpackbits(codes, axis=1, bitorder="little").astype(np.int64)


def test_buckets_are_what_the_page_says(index_file):
    found = reader_of_the_page()(index_file)
    n_bytes, n_tables, *_, n_parts = found["index"].tolist()
    with_tables = [part for part in range(n_parts) if len(found[f"{part}/key_bits"])]
    for part in with_tables:
        ids, above, row_places = (found[f"{part}/{name}"] for name in ("ids", "ids_above", "places"))
        codes = found[f"{part}/codes"].reshape(-1, n_bytes)[row_places]
        if len(ids) == 1:
            ids = ids[0] + (above if len(above) else np.arange(len(codes))).astype(np.int64)
        assert (np.diff(ids) > 0).all()
        assert len(ids) == len(codes)
        quotient, remainder = divmod(8 * n_bytes, n_tables)
        start = 0
        for table, key_bits in enumerate(found[f"{part}/key_bits"].tolist()):
            stop = start + quotient + (table < remainder)
            rows = found[f"{part}/{table}/rows"]
            places = found[f"{part}/{table}/codes" if table else f"{part}/codes"].reshape(-1, n_bytes)
            np.testing.assert_array_equal(places, codes[rows])
            assert sorted(rows.tolist()) == list(range(len(codes)))
            bits = bits_of(places)[:, start : min(stop, start + 2 * key_bits)]
            substrings = bits @ (1 << np.arange(bits.shape[1]))
            buckets = (substrings ^ (substrings >> key_bits)) % (1 << key_bits)
            offsets = found[f"{part}/{table}/offsets"]
            np.testing.assert_array_equal(np.repeat(np.arange(1 << key_bits), np.diff(offsets.astype(int))), buckets)
            start = stop
        assert start == 8 * n_bytes
    assert bool(with_tables) == (sum(len(found[f"{part}/codes"]) for part in range(n_parts)) > 2048 * n_bytes)


@pytest.mark.parametrize("version", [2, 3, 2**32 - 1])
def test_newer_version_is_unsupported(index_file, version):
    data = bytearray(index_file.read_bytes())
    struct.pack_into("<I", data, 8, version)
    struct.pack_into("<Q", data, 56, xxh64(data[:56]))
    index_file.write_bytes(data)
    with pytest.raises(UnsupportedFileError, match=f"version {version}"):
        MultiIndex.open(index_file)


def test_another_kind_is_refused(index_file):
    data = bytearray(index_file.read_bytes())
    struct.pack_into("<16s", data, 16, b"recipes")
    struct.pack_into("<Q", data, 56, xxh64(data[:56]))
    index_file.write_bytes(data)
    with pytest.raises(CorruptFileError, match="recipes"):
        MultiIndex.open(index_file)
