"""A measure of codes of your own: a function beside those of an evaluation."""

import json
from functools import partial

import numpy as np
import pytest

from hamtarget.codes import distances
from hamtarget.errors import InputError
from hamtarget.evaluation import by_label, evaluate_codes, mean_average_precision

N_BITS = 16
LABELS = np.arange(60) % 4
CODES = np.random.default_rng(0).integers(0, 256, (60, 2), dtype=np.uint8)


def margin(query_codes, database_codes, relevant, *, n_bits):
    """Return by how many bits relevant rows are nearer than others, in the mean over queries."""
    far = distances(query_codes, database_codes, n_bits)
    good = relevant.rows(0, len(far))
    return np.mean([row[~wanted].mean() - row[wanted].mean() for row, wanted in zip(far, good, strict=True)])


def evaluate(**more):
    return evaluate_codes(CODES, CODES, by_label(LABELS, LABELS), n_bits=N_BITS, radius=2, k=5, **more)


def test_its_figure_is_one_of_the_evaluation():
    found = evaluate(measures={"margin": margin})
    bits = np.unpackbits(CODES, axis=1)
    far = (bits[:, None] != bits).sum(axis=2)
    same = LABELS[:, None] == LABELS
    naive = np.mean([far[row, ~same[row]].mean() - far[row, same[row]].mean() for row in range(60)])
    assert found.measures == {"margin": pytest.approx(naive)}
    assert json.loads(json.dumps(found.as_dict()))["margin"] == found.measures["margin"]
    assert found.mean_average_precision == evaluate().mean_average_precision
    assert "measures" not in found.as_dict()
    assert evaluate().measures == {}


def test_measures_of_the_package_with_other_arguments():
    found = evaluate(measures={"MAP@20": partial(mean_average_precision, k=20)})
    expected = mean_average_precision(CODES, CODES, by_label(LABELS, LABELS), n_bits=N_BITS, k=20)
    assert found.measures["MAP@20"] == expected


def test_progress_counts_it():
    told = []
    evaluate(measures={"margin": margin}, progress=lambda *counts: told.append(counts))
    assert told == [(step, 5) for step in range(1, 6)]


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(InputError, match="'recall'"):
        evaluate(measures={"recall": margin})
