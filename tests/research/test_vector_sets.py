"""Every layout gives the same set; what is missing or does not belong together is named."""

import os
import stat
import struct
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from hamtarget.errors import CorruptFileError, DtypeError, FileError, HamtargetError, ShapeError, UnsupportedFileError
from hamtarget.evaluation import exact_neighbors
from research.datasets import vector_sets
from research.datasets.vector_sets import cached_neighbors, open_vector_set

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("HAMTARGET_DATA", REPOSITORY.parent / "shared" / "data"))


@pytest.fixture
def parts():
    random = np.random.default_rng(0)
    made = {"learn": (30, 4), "base": (50, 4), "query": (7, 4)}
    made = {name: random.integers(0, 200, shape).astype(np.uint8) for name, shape in made.items()}
    return made | {"neighbors": exact_neighbors(made["query"], made["base"], 5)}


def write_records(path, array):
    element = {"fvecs": "f", "ivecs": "i", "bvecs": "B"}[path.suffix[1:]]
    path.write_bytes(b"".join(struct.pack(f"<i{len(row)}{element}", len(row), *row) for row in array.tolist()))


def write_npz(folder, parts):
    np.savez(folder / "base-0.npz", vectors=parts["base"][:20])
    np.savez(folder / "base-1.npz", vectors=parts["base"][20:])
    np.savez(folder / "learn.npz", vectors=parts["learn"])
    np.savez(folder / "query.npz", vectors=parts["query"], neighbors=parts["neighbors"])


def write_texmex(folder, parts, suffix="fvecs"):
    for name in ("base", "learn", "query"):
        write_records(folder / f"sift_{name}.{suffix}", parts[name])
    write_records(folder / "sift_groundtruth.ivecs", parts["neighbors"])


def write_bytes(folder, parts):
    write_texmex(folder, parts, "bvecs")


def write_npy(folder, parts):
    for name in parts:
        np.save(folder / f"{name}.npy", parts[name])


def check(found, parts):
    assert np.array_equal(found.learn, parts["learn"])
    assert np.array_equal(found.base, parts["base"])
    assert np.array_equal(found.queries, parts["query"])
    assert np.array_equal(found.neighbors, parts["neighbors"])
    assert found.neighbors.dtype == np.int64


@pytest.mark.parametrize("write", [write_npz, write_texmex, write_bytes, write_npy])
def test_every_layout_gives_the_same_set(tmp_path, parts, write):
    write(tmp_path, parts)
    (tmp_path / "README.md").write_text("not part of it")
    found = open_vector_set(tmp_path)
    check(found, parts)
    assert found.name == tmp_path.name


def test_missing_neighbors_are_computed_and_kept(tmp_path, parts):
    write_npy(tmp_path, parts)
    (tmp_path / "neighbors.npy").unlink()
    check(open_vector_set(tmp_path, k=5), parts)
    assert len(list(tmp_path.glob("exact-neighbors-*.npz"))) == 1
    # The file of computed neighbours is no piece of the set.
    seen = []
    check(open_vector_set(tmp_path, k=5, progress=lambda *state: seen.append(state)), parts)
    assert seen == []


def write_hdf5(path, parts, distance=b"euclidean", **more):
    with h5py.File(path, "w") as file:
        file.attrs["distance"] = distance
        for key, array in {
            "train": parts["base"],
            "test": parts["query"],
            "neighbors": parts["neighbors"],
            **more,
        }.items():
            if array is not None:
                file[key] = array


def test_hdf5_learns_from_a_part_of_its_base(tmp_path, parts, monkeypatch):
    write_hdf5(tmp_path / "some.hdf5", parts)
    monkeypatch.setattr(vector_sets, "LEARN_ROWS", 10)
    found = open_vector_set(tmp_path / "some.hdf5", seed=3)
    check(found, parts | {"learn": found.learn})
    assert found.name == "some (learn: 10 rows of base, seed 3)"
    assert found.learn.shape == (10, 4)
    assert {tuple(row) for row in found.learn.tolist()} <= {tuple(row) for row in parts["base"].tolist()}
    assert np.array_equal(open_vector_set(tmp_path, seed=3).learn, found.learn)
    assert not np.array_equal(open_vector_set(tmp_path, seed=4).learn, found.learn)


def test_hdf5_without_neighbors(tmp_path, parts):
    write_hdf5(tmp_path / "some.hdf5", parts, neighbors=None)
    check(open_vector_set(tmp_path, k=5), parts | {"learn": parts["base"]})


def test_angular_rows_have_length_one(tmp_path, parts):
    base, queries = (parts[name].astype(float) - 100 for name in ("base", "query"))
    base[3] = 0
    with np.errstate(invalid="ignore"):
        cosine = queries @ base.T / np.linalg.norm(base, axis=1)
    cosine[:, 3] = -np.inf
    nearest = np.argsort(-cosine, axis=1)[:, :5]
    write_hdf5(tmp_path / "some.hdf5", {"base": base, "query": queries, "neighbors": nearest}, b"angular")
    found = open_vector_set(tmp_path / "some.hdf5")
    lengths = np.linalg.norm(found.base, axis=1)
    assert lengths[3] == 0
    assert np.delete(lengths, 3) == pytest.approx(1)
    assert np.array_equal(exact_neighbors(found.queries, found.base, 5), nearest)


def test_hdf5_of_another_distance(tmp_path, parts):
    write_hdf5(tmp_path / "some.hdf5", parts, "jaccard")
    with pytest.raises(UnsupportedFileError, match="'jaccard'; expected 'euclidean' or 'angular'"):
        open_vector_set(tmp_path)


@pytest.mark.parametrize("missing", ["base", "learn", "query"])
def test_a_missing_piece_is_named(tmp_path, parts, missing):
    write_npy(tmp_path, parts)
    (tmp_path / f"{missing}.npy").unlink()
    role = "queries" if missing == "query" else missing
    with pytest.raises(FileError, match=rf"holds .*neighbors\.npy.*; no {role}: expected base, learn and query"):
        open_vector_set(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(FileError, match="holds nothing; no base, learn, queries"):
        open_vector_set(tmp_path)
    with pytest.raises(FileError, match="does not exist; expected a folder"):
        open_vector_set(tmp_path / "absent")


def test_a_missing_number(tmp_path, parts):
    write_npz(tmp_path, parts)
    (tmp_path / "base-0.npz").unlink()
    with pytest.raises(FileError, match=r"holds base-1\.npz; piece 0 of base is missing"):
        open_vector_set(tmp_path)


def test_two_files_for_one_place(tmp_path, parts):
    write_npz(tmp_path, parts)
    np.save(tmp_path / "learn.npy", parts["learn"])
    with pytest.raises(FileError, match=r"learn\.npy and learn\.npz; expected one of them"):
        open_vector_set(tmp_path)


def test_two_sets_in_one_folder(tmp_path, parts):
    write_npy(tmp_path, parts)
    write_texmex(tmp_path, parts)
    with pytest.raises(FileError, match="prefixes '', 'sift'; expected one set"):
        open_vector_set(tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"learn": np.zeros((3, 5), np.uint8)}, ShapeError, "base 4, learn 5, queries 4"),
        ({"neighbors": np.zeros((6, 5), np.int32)}, ShapeError, r"shape \(6, 5\); expected \(7, k\)"),
        ({"neighbors": np.zeros((7, 5))}, DtypeError, "neighbors are float64"),
        ({"neighbors": np.full((7, 5), 50)}, CorruptFileError, "query 0 are row 50; base has 50 rows"),
        ({"neighbors": np.full((7, 5), -1)}, CorruptFileError, "query 0 are row -1"),
    ],
)
def test_parts_that_do_not_fit(tmp_path, parts, change, error, message):
    write_npy(tmp_path, parts | change)
    with pytest.raises(error, match=message):
        open_vector_set(tmp_path)


def test_neighbors_of_another_base(tmp_path, parts):
    write_npy(tmp_path, parts | {"base": parts["base"][::-1]})
    with pytest.raises(CorruptFileError, match="not in the order of their Euclidean distances"):
        open_vector_set(tmp_path)


def test_pieces_of_different_kinds(tmp_path, parts):
    write_npz(tmp_path, parts)
    np.savez(tmp_path / "base-1.npz", vectors=parts["base"].astype(np.float32))
    with pytest.raises(ShapeError, match=r"base-1\.npz has 4 columns of float32; expected 4 of uint8, as base-0\.npz"):
        open_vector_set(tmp_path)


@pytest.mark.parametrize("write", [write_npz, write_texmex, write_npy])
def test_a_truncated_file_never_gives_a_set_unnoticed(tmp_path, parts, write):
    write(tmp_path, parts)
    files = {path: path.read_bytes() for path in sorted(tmp_path.iterdir())}
    for path, content in files.items():
        for length in range(0, len(content), max(1, len(content) // 40)):
            path.write_bytes(content[:length])
            try:
                found = open_vector_set(tmp_path)
            except HamtargetError:
                continue
            # fvecs cannot tell that rows are missing at the end; of the set, only what to learn from may be shorter,
            # or a base without rows that are anyone's neighbours.
            assert path.suffix in (".fvecs", ".ivecs")
            assert np.array_equal(found.learn, parts["learn"][: len(found.learn)])
            assert np.array_equal(found.base[found.neighbors], parts["base"][parts["neighbors"]])
        path.write_bytes(content)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Queries, base, a folder for data, the cache folder, and how often neighbours were computed."""
    random = np.random.default_rng(0)
    data, cache, calls = tmp_path / "data", tmp_path / "cache", []
    data.mkdir()
    monkeypatch.setenv("HAMTARGET_CACHE", str(cache))

    def counted(*arguments, **options):
        calls.append(1)
        return exact_neighbors(*arguments, **options)

    monkeypatch.setattr(vector_sets, "exact_neighbors", counted)
    return random.integers(0, 9, (5, 3)), random.integers(0, 9, (20, 3)), data, cache, calls


def test_neighbors_are_computed_once_and_kept_beside_the_data(small):
    queries, base, data, cache, calls = small
    wanted = exact_neighbors(queries, base, 4)
    for _ in range(2):
        assert np.array_equal(cached_neighbors(queries, base, 4, folder=data), wanted)
    assert len(calls) == 1
    assert len(os.listdir(data)) == 1
    assert not cache.exists()


def test_another_content_is_another_file(small):
    queries, base, data, _, calls = small
    other = base.copy()
    other[3, 1] += 1
    for arguments in ((queries, base, 4), (queries, other, 4), (queries + 1, base, 4), (queries, base, 3)):
        cached_neighbors(*arguments, folder=data)
    cached_neighbors(queries.astype(np.int32), base, 4, folder=data)
    assert len(calls) == len(os.listdir(data)) == 5


def test_a_read_only_folder_is_left_alone(small):
    queries, base, data, cache, calls = small
    data.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        for _ in range(2):
            cached_neighbors(queries, base, 4, folder=data)
    finally:
        data.chmod(stat.S_IRWXU)
    assert len(calls) == 1
    assert os.listdir(data) == []
    assert len(os.listdir(cache)) == 1


def test_nowhere_to_write_is_no_error(small, monkeypatch):
    queries, base, data, _, calls = small

    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr(vector_sets, "write_atomically", fail)
    wanted = exact_neighbors(queries, base, 4)
    for _ in range(2):
        assert np.array_equal(cached_neighbors(queries, base, 4, folder=data), wanted)
    assert len(calls) == 2


def test_a_damaged_cache_is_computed_again(small):
    queries, base, data, _, calls = small
    wanted = cached_neighbors(queries, base, 4, folder=data)
    (path,) = data.iterdir()
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(0, len(whole), 13)]
    for position in range(0, 8 * len(whole), 101):
        content = bytearray(whole)
        content[position // 8] ^= 1 << position % 8
        damaged.append(bytes(content))
    for content in damaged:
        path.write_bytes(content)
        assert np.array_equal(cached_neighbors(queries, base, 4, folder=data), wanted)
    assert len(calls) > len(damaged) // 2
    assert path.read_bytes() == whole or len(calls) <= len(damaged)


def test_a_cache_that_unpacks_to_far_more_is_computed_again(small):
    queries, base, data, _, calls = small
    wanted = cached_neighbors(queries, base, 4, folder=data)
    (path,) = data.iterdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("neighbors.npy", bytes(10 << 20))
    assert np.array_equal(cached_neighbors(queries, base, 4, folder=data), wanted)
    assert len(calls) == 2


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "sift1m").is_dir(), reason=f"no sift1m in {DATA.name}: set HAMTARGET_DATA")
def test_real_sift():
    found = open_vector_set(DATA / "sift1m")
    assert (found.base.shape, found.learn.shape, found.queries.shape) == (
        (1_000_000, 128),
        (100_000, 128),
        (10_000, 128),
    )
    assert found.neighbors.shape == (10_000, 100)
    some = np.linspace(0, 9_999, 20).astype(int)
    exact = exact_neighbors(found.queries[some], found.base, 100)
    # The order among equal distances is free in the file, hence distances are compared and not ids.
    query = found.queries[some].astype(np.int64)[:, None]
    ours, theirs = (((found.base[ids].astype(np.int64) - query) ** 2).sum(2) for ids in (exact, found.neighbors[some]))
    assert np.array_equal(ours, theirs)
