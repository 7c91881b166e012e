"""Linear encoders that were saved earlier still open, and give the codes that they gave."""

from pathlib import Path

import numpy as np
import pytest

from hamtarget.encoders import ITQ, LSH, open_encoder

FOLDER = Path(__file__).parent / "linear"
ENCODERS = {"itq-cosine": (ITQ, "cosine"), "lsh": (LSH, None)}


def test_every_golden_encoder_is_tested():
    assert {path.name for path in FOLDER.iterdir()} == set(ENCODERS)


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_gives_the_same_codes(name):
    encoder = open_encoder(FOLDER / name)
    assert (type(encoder), encoder.neighbor_metric) == ENCODERS[name]
    with np.load(FOLDER / name / "expected.npz") as expected:
        # No logit is nearer to 0 than .001: other processors round differently, but give the same codes.
        np.testing.assert_array_equal(encoder.encode(expected["inputs"]), expected["codes"])
        np.testing.assert_allclose(encoder.logits(expected["inputs"]), expected["logits"], atol=1e-5)
