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


GOLDEN = {"golden": "multi_index", "golden wide": "wide_index", "golden shared": "shared_index"}
FILES = [*GOLDEN, "small", "large", "folded", "long ids", "excerpts", "shared", "shared excerpts"]


@pytest.fixture(params=FILES)
def index_file(request, tmp_path):
    path = tmp_path / "index"
    if request.param in GOLDEN:
        shutil.copy(FOLDER / f"{GOLDEN[request.param]}.ham", path)
        return path
    rng = np.random.default_rng(5)
    n_rows = 3 if request.param == "small" else 3000
    n_bytes, radius = {
        "folded": (16, 4),
        "long ids": (3, 2),
        "excerpts": (32, 31),
        "shared": (8, 2),
        "shared excerpts": (32, 31),
    }.get(request.param, (2, 1))
    index = MultiIndex(8 * n_bytes, radius=radius)
    numbers = np.arange(n_rows) * (2**40 if request.param == "long ids" else 1)
    codes = rng.integers(0, 256, (n_rows, n_bytes), dtype=np.uint8)
    if request.param.startswith("shared"):
        codes = codes[rng.integers(0, n_rows, n_rows) // 3]
    index.add(numbers, codes)
    if n_rows > 3:
        index.add([-100, -1, -2], rng.integers(0, 256, (3, n_bytes), dtype=np.uint8))
        index.delete([numbers[7], -2])
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
    magic, version = struct.unpack_from("<8sI", data)
    assert (magic, version) == (b"\x89HAM\r\n\x1a\n", 3)
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


def codes_by_row(found, part, n_bytes):
    """Return the code of each row of a part, as the page says."""
    places = found[f"{part}/codes"].reshape(-1, n_bytes)
    if len(found[f"{part}/key_bits"]) == 0:
        return places
    numbers = found[f"{part}/0/rows"]
    if f"{part}/shared" not in found:
        return places[np.argsort(numbers)]
    lists = found[f"{part}/shared"].tolist()
    codes = np.zeros((len(lists) - len(places), n_bytes), dtype=np.uint8)
    for place, at in enumerate(numbers.tolist()):
        codes[lists[at + 1 : at + 1 + lists[at]]] = places[place]
    return codes


def test_rows_that_share_codes_have_each_code_once(index_file, request):
    found = reader_of_the_page()(index_file)
    n_bytes = int(found["index"][0])
    shared = [name for name in found if name.endswith("/shared")]
    assert bool(shared) == ("shared" in request.node.callspec.id)
    for name in shared:
        part = name.split("/")[0]
        places = found[f"{part}/codes"].reshape(-1, n_bytes)
        assert len(np.unique(places, axis=0)) == len(places) < len(codes_by_row(found, part, n_bytes))
        lists, starts, rows, at = found[name].tolist(), [], [], 0
        while at < len(lists):
            starts.append(at)
            here = lists[at + 1 : at + 1 + lists[at]]
            assert here == sorted(here)
            rows += here
            at += 1 + lists[at]
        assert sorted(rows) == list(range(len(rows)))
        assert sorted(found[f"{part}/0/rows"].tolist()) == starts
        assert [lists[start + 1] for start in starts] == sorted(lists[start + 1] for start in starts)


def test_rows_are_where_the_page_says(index_file):
    found = reader_of_the_page()(index_file)
    n_bytes, _, radius, _, _, _, n_parts, *_ = found["index"].tolist()
    index = MultiIndex.open(index_file)
    assert (index.n_bits, index.radius) == (8 * n_bytes, radius)
    ids, codes = [], []
    for part in range(n_parts):
        rows = codes_by_row(found, part, n_bytes)
        base, above = found[f"{part}/ids"], found[f"{part}/ids_above"]
        if len(base) < len(rows):
            base = base[0] + (above.astype(np.int64) if len(above) else np.arange(len(rows)))
        words = found[f"{part}/deleted"].view(np.uint8)
        deleted = np.unpackbits(words, bitorder="little")[: len(rows)] if len(words) else np.zeros(len(rows))
        ids.append(base[deleted == 0])
        codes.append(rows[deleted == 0])
        assert (np.diff(base) > 0).all() or len(base) == 1
    every = np.concatenate(ids)
    assert sorted(every.tolist()) == list(index)
    stored = index.get(every)
    np.testing.assert_array_equal(stored if index.embeddings is None else stored[0], np.concatenate(codes))


def test_buckets_are_what_the_page_says(index_file):
    found = reader_of_the_page()(index_file)
    n_bytes, _, _, _, _, _, n_parts, *_ = found["index"].tolist()
    with_tables = [part for part in range(n_parts) if len(found[f"{part}/key_bits"])]
    for part in with_tables:
        codes = found[f"{part}/codes"].reshape(-1, n_bytes)
        place_of = dict(zip(found[f"{part}/0/rows"].tolist(), range(len(codes)), strict=True))
        n_tables = len(found[f"{part}/key_bits"])
        quotient, remainder = divmod(8 * n_bytes, n_tables)
        start = 0
        for table, key_bits in enumerate(found[f"{part}/key_bits"].tolist()):
            stop = start + quotient + (table < remainder)
            if f"{part}/{table}/excerpts" in found:
                entries = found[f"{part}/{table}/excerpts"].reshape(len(codes), -1)
                numbers = np.ascontiguousarray(entries[:, -4:]).view("<u4")[:, 0]
                places = found[f"{part}/codes"].reshape(-1, n_bytes)[numbers]
                assert sorted(numbers.tolist()) == list(range(len(codes)))
                first = -(-min(stop, start + 2 * key_bits) // 8)
                kept = [(first + i) % n_bytes for i in range(entries.shape[1] - 4)]
                np.testing.assert_array_equal(entries[:, :-4], places[:, kept])
            else:
                places = found[f"{part}/{table}/codes" if table else f"{part}/codes"].reshape(-1, n_bytes)
                rows = found[f"{part}/{table}/rows"]
                np.testing.assert_array_equal(places, codes[[place_of[row] for row in rows.tolist()]])
                assert sorted(rows.tolist()) == sorted(place_of)
            substring = np.unpackbits(places, axis=1, bitorder="little")[:, start:stop].astype(int)
            folded = substring[:, :key_bits]
            more = substring[:, key_bits : 2 * key_bits]
            folded[:, : more.shape[1]] ^= more
            numbers = folded @ (1 << np.arange(key_bits))
            sizes = np.diff(found[f"{part}/{table}/offsets"].astype(int))
            np.testing.assert_array_equal(np.repeat(np.arange(1 << key_bits), sizes), numbers)
            start = stop
        assert start == 8 * n_bytes
    rows = [len(codes_by_row(found, part, n_bytes)) for part in range(n_parts)]
    assert bool(with_tables) == any(count >= 2048 for count in rows)


@pytest.mark.parametrize("version", [0, 2, 4, 2**32 - 1])
def test_another_version_is_unsupported(index_file, version):
    data = bytearray(index_file.read_bytes())
    struct.pack_into("<I", data, 8, version)
    struct.pack_into("<Q", data, 56, xxh64(data[:56]))
    index_file.write_bytes(data)
    with pytest.raises(UnsupportedFileError, match=f"version {version}; this hamtarget reads version 3"):
        MultiIndex.open(index_file)


def test_another_kind_is_refused(index_file):
    data = bytearray(index_file.read_bytes())
    struct.pack_into("<16s", data, 16, b"recipes")
    struct.pack_into("<Q", data, 56, xxh64(data[:56]))
    index_file.write_bytes(data)
    with pytest.raises(CorruptFileError, match="recipes"):
        MultiIndex.open(index_file)
