"""NeighborTransformer keeps scikit-learn's rules, and gives the graph that scikit-learn's own transformer gives."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
from sklearn.cluster import DBSCAN
from sklearn.datasets import make_blobs
from sklearn.manifold import Isomap
from sklearn.neighbors import KNeighborsClassifier, KNeighborsTransformer
from sklearn.neighbors._base import _is_sorted_by_data
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from hamtarget.errors import InputError
from hamtarget.integrations.sklearn import NeighborTransformer


@parametrize_with_checks(
    [NeighborTransformer(), NeighborTransformer(mode="connectivity", n_neighbors=3), NeighborTransformer(n_jobs=2)]
)
def test_scikit_learn_s_own_checks_of_neighbors(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(300, 10, centers=4, cluster_std=2.0, random_state=0)


def test_no_torch_is_needed():
    import subprocess
    import sys

    text = "import sys; from hamtarget.integrations.sklearn import NeighborTransformer; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "minkowski", "l2"])
@pytest.mark.parametrize("mode", ["distance", "connectivity"])
def test_the_graph_is_that_of_scikit_learn(blobs, metric, mode):
    rows, _ = blobs
    ours = NeighborTransformer(mode=mode, n_neighbors=7, metric=metric)
    theirs = KNeighborsTransformer(mode=mode, n_neighbors=7, metric=metric, algorithm="brute")
    for seen, asked in ((rows, rows), (rows[:200], rows[200:])):
        graph, wanted = ours.fit(seen).transform(asked), theirs.fit(seen).transform(asked)
        assert graph.format == "csr"
        assert graph.nnz == wanted.nnz
        np.testing.assert_allclose(graph.toarray(), wanted.toarray(), atol=1e-6)
        assert _is_sorted_by_data(graph)


def test_the_own_sample_is_the_first_neighbour_at_distance_0(blobs):
    rows, _ = blobs
    # Duplicates are at distance 0, too.
    rows = np.concatenate([rows, rows[:50]])
    graph = NeighborTransformer(n_neighbors=4).fit_transform(rows)
    assert graph.shape == (350, 350)
    assert graph.nnz == 350 * 5
    assert graph.indices.reshape(350, 5)[:, 0].tolist() == list(range(350))
    assert not graph.data.reshape(350, 5)[:, 0].any()


def test_no_fitted_row_is_its_own_neighbour_without_x(blobs):
    rows, _ = blobs
    transformer = NeighborTransformer(n_neighbors=4).fit(rows)
    distances, ids = transformer.kneighbors()
    apart = np.linalg.norm(rows[:, None] - rows, axis=2)
    np.fill_diagonal(apart, np.inf)
    np.testing.assert_array_equal(ids, np.argsort(apart, axis=1)[:, :4])
    np.testing.assert_allclose(distances, np.sort(apart, axis=1)[:, :4])
    np.testing.assert_array_equal(transformer.kneighbors(return_distance=False), ids)
    graph = transformer.kneighbors_graph()
    assert graph.nnz == 1200
    assert set(graph.data) == {1.0}
    assert graph.diagonal().sum() == 0


def test_as_a_step_before_others(blobs):
    rows, labels = blobs
    model = make_pipeline(NeighborTransformer(n_neighbors=10), KNeighborsClassifier(10, metric="precomputed"))
    score = model.fit(rows[:200], labels[:200]).score(rows[200:], labels[200:])
    assert score == KNeighborsClassifier(10).fit(rows[:200], labels[:200]).score(rows[200:], labels[200:])
    graph = NeighborTransformer(n_neighbors=50).fit_transform(rows)
    alike = DBSCAN(eps=4.0, metric="precomputed").fit(graph).labels_
    np.testing.assert_array_equal(alike, DBSCAN(eps=4.0).fit(rows).labels_)
    flat = make_pipeline(NeighborTransformer(n_neighbors=10), Isomap(n_neighbors=10, metric="precomputed"))
    one = rows[labels == 0]
    np.testing.assert_allclose(flat.fit_transform(one), Isomap(n_neighbors=10).fit_transform(one), atol=1e-6)


class Partial:
    """An index that misses what a test says."""

    def __init__(self, index, ids):
        self.index, self.ids = index, ids

    def nearest_batch(self, rows, count, *, recall=None, work=None):
        exact = self.index.nearest_batch(rows, count, work=work)
        return exact if recall == 1.0 else exact._replace(ids=self.ids)


def test_what_the_index_misses_is_mended(blobs):
    """A row that is not found by its own search is put first; where too few are found, all rows are scanned."""
    rows = blobs[0][:20]
    transformer = NeighborTransformer(n_neighbors=2).fit(rows)
    exact = transformer.kneighbors(rows, 3)[1]
    missed = exact.copy()
    missed[4] = [x for x in np.argsort(np.linalg.norm(rows - rows[4], axis=1)) if x != 4][:3]
    missed[5, 1:] = -1
    transformer.index_ = Partial(transformer.index_, missed)
    distances, ids = transformer.kneighbors(rows, 3)
    np.testing.assert_array_equal(ids, exact)
    assert not distances[:, 0].any()


def test_pickles_answer_alike(blobs):
    rows, _ = blobs
    transformer = NeighborTransformer().fit(rows[:200])
    again = pickle.loads(pickle.dumps(transformer))
    np.testing.assert_array_equal(again.transform(rows).toarray(), transformer.transform(rows).toarray())


def test_names_of_columns(blobs):
    names = NeighborTransformer().fit(blobs[0]).get_feature_names_out()
    assert names[0] == "neighbortransformer0"
    assert len(names) == 300


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"metric": "manhattan"}, "metric is 'manhattan'; expected one of euclidean"),
        ({"mode": "both"}, "mode is 'both'"),
        ({"n_neighbors": 0}, "n_neighbors is 0; expected 1 or more"),
        ({"n_neighbors": 2.5}, "expected an integer"),
    ],
)
def test_wrong_arguments(blobs, arguments, text):
    with pytest.raises(InputError, match=text):
        NeighborTransformer(**arguments).fit(blobs[0])


def test_more_neighbours_than_rows(blobs):
    transformer = NeighborTransformer(n_neighbors=5).fit(blobs[0][:5])
    with pytest.raises(InputError, match="n_neighbors is 6, n_samples_fit is 5; expected at most 5"):
        transformer.transform(blobs[0])
    with pytest.raises(InputError, match="expected at most 4"):
        transformer.kneighbors()
    with pytest.raises(InputError, match="mode is 'x'"):
        transformer.kneighbors_graph(mode="x")
