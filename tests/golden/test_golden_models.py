"""Models that were saved and exported earlier still load, and give the codes that they gave."""

from pathlib import Path

import numpy as np
import pytest

from hamtarget.encoders import open_encoder
from hamtarget.encoders.onnx_encoder import OnnxEncoder
from hamtarget.learn import HashEncoder

FOLDER = Path(__file__).parent / "models"
# What each model was trained for, and the shape of one input.
MODELS = {
    "classes": (1, (6,)),
    "colour-images": (1, (3, 8, 8)),
    "grey-images": (1, (10, 8)),
    "vectors-probing": (None, (6,)),
    "vectors-radii-median": ((1, 3), (6,)),
    "vectors-radius": (2, (6,)),
}


def test_every_golden_model_is_tested():
    assert {path.name for path in FOLDER.iterdir()} == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_the_same_codes(name):
    radius, shape = MODELS[name]
    with np.load(FOLDER / name / "expected.npz") as expected:
        for encoder in (
            HashEncoder.load(FOLDER / name, device="cpu"),
            OnnxEncoder(FOLDER / name / "model.onnx"),
            open_encoder(FOLDER / name),
        ):
            np.testing.assert_array_equal(encoder.encode(expected["inputs"]), expected["codes"])
            # No logit is nearer to 0 than .001: other processors round differently, but give the same codes.
            np.testing.assert_allclose(encoder.logits(expected["inputs"]), expected["logits"], atol=1e-4)
            assert (encoder.radius, encoder.input_shape) == (radius, shape)
            assert encoder.n_bits == 8 * expected["codes"].shape[1]
