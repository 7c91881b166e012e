"""What fit chooses is near the best of a grid of settings, counted in work, never by the clock."""

import numpy as np
import pytest

from hamtarget.query import Work
from hamtarget.search.neighbors.cells import Builder, n_cells_for
from hamtarget.search.neighbors.scan import approximate_nearest
from hamtarget.search.neighbors.space import EUCLIDEAN, VectorSpace, metric_of
from hamtarget.search.neighbors.tuning import Truth

K = 10
RECALL = 0.9


def drawn(kind, n_rows):
    """Vectors of 32 numbers in groups, or of low rank."""
    random = np.random.default_rng(4)
    if kind == "groups":
        groups = random.standard_normal((400, 32)) * 1.5
        return (groups[random.integers(400, size=n_rows)] + random.standard_normal((n_rows, 32))).astype(np.float32)
    return (random.standard_normal((n_rows, 8)) @ random.standard_normal((8, 32))).astype(np.float32)


class Measured:
    """An index of chosen form, whose recall and work are measured on queries."""

    def __init__(self, vectors, queries, n_cells):
        self.space = VectorSpace.of(vectors, metric_of("l2"))
        self.vectors = vectors
        self.queries = self.space.queries(queries)[0]
        builder = Builder(vectors, self.space, recall=RECALL, k=K, seed=0, threads=2, n_cells=n_cells)
        self.built = builder.build(np.arange(len(vectors)), self.queries, Work())
        rows, scores = approximate_nearest(self.queries, [self.space.rows(vectors)], 2 * K, EUCLIDEAN)
        self.truth = Truth(self.queries, rows, scores, None, self.rows_of, EUCLIDEAN)

    def rows_of(self, numbers):
        return self.space.rows(self.vectors[numbers])

    def recall_and_work(self, budget, comparisons):
        ids, _, counts = self.built.core.search(self.queries, K, budget, comparisons, 2)
        shares = self.truth.shares_found(ids, K)
        return shares.mean(), self.built.tuned.curves[K].costs.work(*counts.mean(axis=0))

    def least_work(self, recall, near):
        """The least work of settings around one that reach a recall."""
        works = [np.inf]
        for comparisons in sorted({round(near.comparisons * factor) for factor in (0.6, 0.75, 0.9, 1, 1.15, 1.4, 1.8)}):
            for budget in np.geomspace(near.budget / 3, near.budget * 3, 24).astype(int):
                if budget >= comparisons >= K:
                    reached, work = self.recall_and_work(int(budget), comparisons)
                    if reached >= recall:
                        works.append(work)
                        break
        return min(works)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["groups", "low rank"])
def test_defaults_are_within_a_tenth_of_the_best_of_a_grid(kind):
    data = drawn(kind, 10_600)
    vectors, queries = data[:10_000], data[10_000:]
    default = Measured(vectors, queries, None)
    setting = default.built.tuned.curves[K].setting(RECALL)
    reached, work = default.recall_and_work(setting.budget, setting.comparisons)
    assert reached >= RECALL
    best = default.least_work(reached, setting)
    for factor in (0.5, 2.0):
        other = Measured(vectors, queries, round(factor * n_cells_for(len(vectors))))
        near = other.built.tuned.curves[K].setting(RECALL)
        best = min(best, other.least_work(reached, near))
    assert work <= 1.1 * best
