"""Peers of faiss on a small set: what they find, count and store is what a naive version says."""

import sys

import numpy as np
import pytest

from hamtarget.errors import CorruptFileError, FileError, InputError, MissingExtraError, NotFittedError
from hamtarget.evaluation import exact_neighbors
from hamtarget.evaluation.metrics import recall_at_k
from research.datasets.vector_sets import VectorSet
from research.paper.peers import measure_peers
from research.peers import faiss_peers
from research.peers.faiss_peers import HNSW, IVFADC, IVFRefined, IVFVectors, figure4_peers

faiss = pytest.importorskip("faiss", reason="faiss is not installed: make .venv/.peers")
# torch ships an OpenMP of its own, and on macOS two in a process end it.
pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="two OpenMP in one process")

COLUMNS = 16


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small sets are built with one thread: where cores are busy with other tests, two wait for each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faiss_peers, "_cores", lambda: 1)
        yield


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    centres = random.integers(30, 220, (40, COLUMNS))

    def rows(count):
        noisy = centres[random.integers(0, len(centres), count)] + random.normal(0, 12, (count, COLUMNS))
        return noisy.clip(0, 255).astype(np.uint8)

    base, learn, queries = rows(2000), rows(1000), rows(50)
    return VectorSet(learn, base, queries, exact_neighbors(queries, base, 10), "small")


def small_peers():
    return [
        IVFADC(cells=16, pieces=8),
        IVFVectors(cells=16),
        IVFVectors(cells=16, stored="uint8"),
        IVFRefined(cells=16, pieces=8),
        IVFRefined(cells=16, pieces=8, stored="uint8"),
        HNSW(links=8),
    ]


@pytest.fixture(params=range(6), ids=[peer.name for peer in small_peers()])
def peer(request, vectors):
    return small_peers()[request.param].build(vectors.base, vectors.learn, seed=1)


def widest(peer):
    setting = dict(peer.settings[-1])
    return setting | {"nprobe": 16} if "nprobe" in setting else setting


def test_everything_visited_finds_the_true_neighbor(peer, vectors):
    found = peer.search(vectors.queries, 10, setting=widest(peer))
    assert found.shape == (50, 10)
    recall = recall_at_k(found, vectors.neighbors[:, 0], 10)
    # What is first chosen by codes of 64 or 32 bits loses a little.
    assert recall == 1 or (isinstance(peer, IVFADC | IVFRefined) and recall > 0.9)


def test_bytes_are_stored_without_loss(vectors):
    """Exact distances: the ten nearest in order, but for the order of equal ones."""
    peer = IVFVectors(cells=16, stored="uint8").build(vectors.base, vectors.learn)
    found = peer.search(vectors.queries, 10, setting={"nprobe": 16})
    query = vectors.queries.astype(int)[:, None]
    ours, true = (((vectors.base[ids].astype(int) - query) ** 2).sum(2) for ids in (found, vectors.neighbors))
    assert np.array_equal(ours, true)


@pytest.mark.parametrize("probes", [1, 3, 16, 20])
@pytest.mark.parametrize("kind", [IVFADC, IVFVectors, IVFRefined])
def test_comparisons_of_cells_are_those_of_a_naive_count(vectors, kind, probes):
    pieces = {} if kind is IVFVectors else {"pieces": 8}
    peer = kind(cells=16, **pieces).build(vectors.base, vectors.learn)
    setting = {"nprobe": probes} | ({"k_factor": 2} if kind is IVFRefined else {})
    counted = peer.comparisons(vectors.queries, 10, setting=setting)
    ivf = faiss.extract_index_ivf(peer._index)
    centres = ivf.quantizer.reconstruct_n(0, 16).astype(float)

    def order(row):
        return np.argsort(((centres - row) ** 2).sum(1))

    home = [order(row.astype(float))[0] for row in vectors.base]
    rows = [sum(home.count(cell) for cell in order(query.astype(float))[:probes]) for query in vectors.queries]
    assert counted.rows == pytest.approx(np.mean(rows), rel=0.01)
    assert counted.centroids == 16
    assert counted.refined == (20 if kind is IVFRefined else 0)


def test_comparisons_of_the_graph_grow_with_its_breadth(vectors):
    peer = HNSW(links=8).build(vectors.base, vectors.learn)
    counts = [peer.comparisons(vectors.queries, 10, setting=setting) for setting in peer.settings]
    assert all(each.centroids == 0 for each in counts)
    assert all(10 <= a.rows < b.rows <= 2000 for a, b in zip(counts, counts[1:], strict=False))


def test_bytes_per_row(peer):
    vectors = {"float32": 4, "uint8": 1}[peer.stored] * COLUMNS
    least = {IVFADC: 8 + 8, IVFVectors: vectors + 8, IVFRefined: vectors + 4 + 8, HNSW: vectors + 8 * 2 * 4}[type(peer)]
    # Centroids and code books come on top: on this small set up to 16 KB for 2,000 rows.
    assert least <= peer.bytes_per_row() < least + 30


def test_only_learn_is_learned_from(vectors):
    peer = IVFVectors(cells=16)
    first = peer.build(vectors.base, vectors.learn)._index.quantizer.reconstruct_n(0, 16)
    again = peer.build(vectors.base[::-1], vectors.learn)._index.quantizer.reconstruct_n(0, 16)
    assert np.array_equal(first, again)


def test_seed_is_used(vectors):
    peer = IVFVectors(cells=16)
    first = peer.build(vectors.base, vectors.learn, seed=1)._index.quantizer.reconstruct_n(0, 16)
    other = peer.build(vectors.base, vectors.learn, seed=2)._index.quantizer.reconstruct_n(0, 16)
    assert not np.array_equal(first, other)


def test_saved_and_loaded(tmp_path, peer, vectors):
    peer.save(tmp_path / "peer")
    setting = peer.settings[0]
    loaded = type(peer).__new__(type(peer))
    vars(loaded).update({name: value for name, value in vars(peer).items() if name != "_index"})
    found = loaded.load(tmp_path / "peer").search(vectors.queries, 5, setting=setting)
    assert np.array_equal(found, peer.search(vectors.queries, 5, setting=setting))


def test_damaged_files_never_reach_faiss(tmp_path, vectors):
    peer = IVFVectors(cells=4).build(vectors.base[:100], vectors.learn)
    path = tmp_path / "peer"
    peer.save(path)
    whole = path.read_bytes()
    for content in (b"", whole[:31], whole[:-1], whole + b"x", whole[:500] + bytes([whole[500] ^ 1]) + whole[501:]):
        path.write_bytes(content)
        with pytest.raises(CorruptFileError, match="checksum"):
            peer.load(path)
    with pytest.raises(FileError, match="cannot be read"):
        peer.load(tmp_path / "absent")


def test_search_leaves_the_number_of_threads(vectors):
    faiss.omp_set_num_threads(2)
    try:
        HNSW(links=8).build(vectors.base, vectors.learn).search(vectors.queries, 5, setting={"efSearch": 16})
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(1)


def test_what_cannot_be_done_is_said(vectors, monkeypatch):
    with pytest.raises(NotFittedError, match="call build or load first"):
        HNSW().search(vectors.queries, 5, setting={"efSearch": 16})
    peer = IVFVectors(cells=4).build(vectors.base, vectors.learn)
    with pytest.raises(InputError, match="'efSearch': 16}; IVF 4 cells, float32 takes nprobe"):
        peer.search(vectors.queries, 5, setting={"efSearch": 16})
    base = vectors.base.astype(np.float32)
    base[7, 3] += 0.5
    with pytest.raises(InputError, match="row 7 is not of whole numbers"):
        IVFRefined(cells=4, stored="uint8").build(base, vectors.learn)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"hamtarget\[research\]"):
        HNSW().build(vectors.base, vectors.learn)


def test_figure4_peers():
    plain, with_bytes = (figure4_peers(whole_bytes=flag) for flag in (False, True))
    names = [peer.name for peer in with_bytes]
    assert len(set(names)) == len(names)
    # A graph has no bytes.
    assert [peer.name.replace("float32", "uint8") for peer in plain[:-1]] == names[:-1]
    assert plain[-1].name == names[-1]
    assert names[0] == "IVFADC 64 bits, 1024 cells"
    assert [dict(setting) for setting in with_bytes[0].settings] == [{"nprobe": n} for n in (1, 8, 64)]


def test_measured_rows(tmp_path, vectors):
    peers, lines = small_peers()[2:4], []
    rows = measure_peers(peers, vectors, k=10, repeats=2, timed_queries=20, cache=tmp_path, report=lines.append)
    assert len(rows) == sum(len(peer.settings) for peer in peers)
    assert len(lines) == len(rows) + len(peers)
    for row in rows:
        assert set(row) == {
            *("peer", "setting", "recall", "rows", "centroids", "refined", "bytes_per_row", "build_seconds"),
            *("queries_per_second", "queries_per_cpu_second", "seconds", "cpu_seconds", "k", "timed_queries"),
        }
        assert row["queries_per_second"] == pytest.approx(20 / np.median(row["seconds"]))
        assert len(row["seconds"]) == len(row["cpu_seconds"]) == 2
        assert row["build_seconds"] > 0
    assert all(peer._index is None for peer in peers)
    recalls = [row["recall"] for row in rows if row["peer"] == peers[0].name]
    assert recalls == sorted(recalls)
    again = measure_peers(small_peers()[2:4], vectors, k=10, repeats=1, cache=tmp_path)
    assert [row["recall"] for row in again] == [row["recall"] for row in rows]
    assert [row["bytes_per_row"] for row in again] == [row["bytes_per_row"] for row in rows]
    assert {row["build_seconds"] for row in again} == {None}


def test_a_damaged_cache_is_built_again(tmp_path, vectors):
    def measured(seed=0):
        return measure_peers([IVFVectors(cells=8)], vectors, k=10, repeats=1, seed=seed, cache=tmp_path)[0]

    first = measured()
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert measured()["build_seconds"] is not None
    assert measured()["build_seconds"] is None
    assert measured()["recall"] == first["recall"]
    assert measured(seed=1)["build_seconds"] is not None
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"timed_queries": 0}])
def test_measuring_nothing_is_refused(vectors, wrong):
    with pytest.raises(InputError, match="expected at least 1"):
        measure_peers([], vectors, **wrong)


def test_the_module_is_there_without_faiss(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match="faiss is not installed"):
        faiss_peers.faiss_version()
