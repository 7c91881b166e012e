"""Groups around the best row, against a naive twin that compares all pairs."""

import numpy as np
import pytest

from hamtarget.copies.grouping import group_around_best
from hamtarget.query import Work


def naive_groups(codes, ranks, radius):
    """Do what `group_around_best` promises, by all distances: a list of {row: distance}, the best row first."""
    bits = np.unpackbits(codes, axis=1).astype(int)
    distances = (bits[:, None] != bits[None]).sum(axis=2)
    best, own = {}, {}
    for row in np.argsort(ranks).tolist():
        if row in best:
            continue
        for other in range(len(codes)):
            if distances[row, other] <= radius and distances[row, other] < own.get(other, 1000):
                best[other], own[other] = row, int(distances[row, other])
    groups = {}
    for row in sorted(best, key=lambda row: (own[row], ranks[row])):
        groups.setdefault(best[row], {})[row] = own[row]
    wanted = [group for group in groups.values() if len(group) > 1]
    return sorted(wanted, key=lambda group: (-len(group), max(group.values()), ranks[next(iter(group))]))


def near_codes(rng, n_rows, n_bits, flips):
    """Random codes around few centres, so that groups touch each other."""
    centres = rng.integers(0, 2, (max(1, n_rows // 6), n_bits))
    bits = centres[rng.integers(0, len(centres), n_rows)]
    for row in bits:
        row[rng.choice(n_bits, rng.integers(0, flips + 1), replace=False)] ^= 1
    return np.packbits(bits, axis=1)


@pytest.mark.parametrize("seed", range(12))
def test_groups_are_those_of_the_naive_twin(seed):
    rng = np.random.default_rng(seed)
    n_bits = (16, 32, 64)[seed % 3]
    codes = near_codes(rng, 150, n_bits, flips=n_bits // 8)
    ranks = rng.permutation(len(codes))
    for radius in (0, 1, n_bits // 8, n_bits // 4):
        found = group_around_best(codes, ranks, radius)
        assert [dict(zip(g.rows.tolist(), g.distances.tolist(), strict=True)) for g in found] == naive_groups(
            codes, ranks, radius
        )
        assert [list(g.rows) for g in found] == [list(g) for g in naive_groups(codes, ranks, radius)]


def test_small_blocks_give_the_same_groups(monkeypatch):
    rng = np.random.default_rng(5)
    codes, ranks = near_codes(rng, 300, 32, 5), rng.permutation(300)
    whole = group_around_best(codes, ranks, 6)
    monkeypatch.setattr("hamtarget.copies.grouping._FIRST_QUERIES", 1)
    monkeypatch.setattr("hamtarget.copies.grouping._MOST_HITS", 3)
    small = group_around_best(codes, ranks, 6)
    assert [g.rows.tolist() for g in small] == [g.rows.tolist() for g in whole]


def test_a_chain_is_not_one_group():
    # Each row is two bits from the next; the ends are ten bits apart.
    codes = np.packbits([[1] * (2 * n) + [0] * (16 - 2 * n) for n in range(6)], axis=1)
    groups = group_around_best(codes, np.arange(6), 2)
    assert [g.rows.tolist() for g in groups] == [[0, 1], [2, 3], [4, 5]]


def test_a_row_goes_to_the_nearer_best():
    codes = np.packbits([[0] * 16, [1] * 6 + [0] * 10, [1] * 4 + [0] * 12], axis=1)
    (group,) = group_around_best(codes, np.arange(3), 4)
    assert (group.rows.tolist(), group.distances.tolist()) == ([1, 2], [0, 2])


def test_nothing_and_one_row():
    assert group_around_best(np.zeros((0, 8), np.uint8), np.zeros(0, int), 2) == []
    assert group_around_best(np.zeros((1, 8), np.uint8), np.zeros(1, int), 2) == []


def test_a_giant_group_takes_few_searches(monkeypatch):
    from hamtarget.search.multi import MultiIndex

    asked = []
    search = MultiIndex.search_batch
    monkeypatch.setattr(
        MultiIndex,
        "search_batch",
        lambda self, codes, *args, **how: asked.append(len(codes)) or search(self, codes, *args, **how),
    )
    rng = np.random.default_rng(0)
    # 20,000 different codes within 3 bits of one, and each of them twice.
    numbers = rng.choice(41_000, 20_000, replace=False)
    places = np.array([(a, b, c) for a in range(64) for b in range(a) for c in range(b)])[numbers]
    bits = np.zeros((20_000, 64), np.uint8)
    np.put_along_axis(bits, places, 1, axis=1)
    codes = np.concatenate([np.zeros((1, 8), np.uint8), np.packbits(bits, axis=1), np.packbits(bits, axis=1)])
    (group,) = group_around_best(codes, np.arange(len(codes)), 3)
    assert len(group.rows) == 40_001
    assert sum(asked) <= 256


def test_progress_reaches_the_end():
    told = []
    group_around_best(
        np.eye(8, dtype=np.uint8), np.arange(8), 1, Work(progress=lambda done, total: told.append((done, total)))
    )
    assert told[-1] == (8, 8)
