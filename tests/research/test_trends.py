"""What must hold on any vectors with neighbours, on a small set: 2,000 to learn from, 20,000 to search in."""

import pytest

from hamtarget.encoders import ITQ, LSH
from hamtarget.evaluation import exact_neighbors
from hamtarget.learn import HammingTargetLoss, HashEncoder, NetworkOptions, TrainingOptions
from research.datasets.descriptors import generated_descriptors
from research.datasets.vector_sets import VectorSet
from research.paper.lookup import exact_lookup
from research.paper.probing import ProbedIndex, nearest_read

READS = (20, 50, 100, 200)


@pytest.fixture(scope="module")
def vectors():
    learn, base, queries = (generated_descriptors(rows, seed=seed) for rows, seed in ((2000, 1), (20_000, 2), (500, 3)))
    return VectorSet(learn, base, queries, exact_neighbors(queries, base, 10), "generated")


def settings(steps):
    return {"network": NetworkOptions(width=128), "training": TrainingOptions(steps=steps)}


@pytest.fixture(scope="module")
def probing_encoder(vectors):
    return HashEncoder(32, **settings(400)).fit(vectors.learn)


def test_learned_codes_find_neighbours_sooner_than_itq_and_itq_sooner_than_lsh(vectors, probing_encoder):
    learned, itq, lsh = (
        nearest_read(encoder, vectors, substrings=2, reads=READS)
        for encoder in (probing_encoder, ITQ(32).fit(vectors.learn), LSH(32).fit(vectors.learn))
    )
    for read in READS:
        assert learned[read] > itq[read] > lsh[read]
    # By far, not by chance.
    assert learned[50] > itq[50] + 0.04


def test_a_larger_budget_finds_no_less(vectors, probing_encoder):
    probed = ProbedIndex.of(probing_encoder, vectors, substrings=2, ranking="vectors")
    budgets = (50, 100, 200, 400, 800, 1600, 3200)
    records = probed.measure(vectors, [(budget, budget) for budget in budgets], repeats=1)
    recalls = [record["recall_at_100"] for record in records]
    assert recalls == sorted(recalls)
    assert recalls[0] < 0.9 < recalls[-1]


def test_logits_rank_what_was_read(vectors, probing_encoder):
    by_vectors, by_logits = (
        ProbedIndex.of(probing_encoder, vectors, substrings=2, ranking=ranking).measure(
            vectors, [(2000, 2000)], repeats=1
        )[0]["recall_at_100"]
        for ranking in ("vectors", "logits")
    )
    assert by_vectors >= by_logits > by_vectors - 0.1


def test_a_larger_lambda_means_fewer_comparisons_and_less_recall(vectors):
    few, many = (
        exact_lookup(
            HashEncoder(loss=HammingTargetLoss(32, 2, dissimilar_weight=weight), **settings(300)).fit(vectors.learn),
            vectors,
            2,
        )
        for weight in (1000.0, 30.0)
    )
    assert few["comparisons"] < many["comparisons"] / 2
    assert few["nearest_within"] < many["nearest_within"]
    assert few["recall_at_100"] < many["recall_at_100"]
