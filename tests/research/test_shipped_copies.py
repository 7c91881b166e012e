"""The files of the learned perceptual hashes: written from trained weights, and as good as their record says."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import save_file  # noqa: E402

from hamtarget import OnnxEncoder, open_encoder  # noqa: E402
from hamtarget.encoders.shipped import shipped_names, shipped_path  # noqa: E402
from research.shipping.copies.generated import figures_on_generated, generated_pictures  # noqa: E402
from research.shipping.copies.network import CopyNetwork  # noqa: E402
from research.shipping.copies.ship import read_network, ship  # noqa: E402

# Bits, of 64: other versions of Pillow round otherwise.
TOLERANCE = 0.3


@pytest.fixture
def weights(tmp_path):
    """Return weights of a small network whose norms have seen pictures."""
    torch.manual_seed(0)
    network = CopyNetwork(16, width=4)
    with torch.no_grad():
        for _ in range(5):
            network(torch.rand(8, 3, 64, 64))
    save_file({name: value.contiguous() for name, value in network.state_dict().items()}, tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


def test_the_file_computes_what_the_network_does(weights, tmp_path):
    figures = {"share_within": [0.0] * 16 + [1.0], "recall_within": [0.5] * 17}
    record = ship(weights, "tiny", [3, 5], figures, tmp_path)
    encoder = OnnxEncoder(tmp_path / "tiny.onnx")
    assert (encoder.n_bits, encoder.radius, encoder.name) == (16, (3, 5), "tiny")
    assert (encoder.picture_form.fit, encoder.picture_form.shape) == ("squeeze", (3, 64, 64))
    network, side = read_network(weights)
    assert side == 64
    pixels = np.random.default_rng(0).integers(0, 256, (50, 3, 64, 64)).astype(np.float32)
    with torch.inference_mode():
        wanted = network(torch.from_numpy(pixels) / 255).numpy()
    # Weights are kept in half precision.
    assert np.abs(encoder.logits(pixels) - wanted).max() < 0.02 * np.abs(wanted).max()
    written = json.loads((tmp_path / "tiny.json").read_text())
    assert written["share_within"] == record["share_within"] == figures["share_within"]
    assert written["recall_within"] == figures["recall_within"]


def test_larger_networks_are_read_with_their_side(tmp_path):
    network = CopyNetwork(8, width=4, side=96)
    save_file({name: value.contiguous() for name, value in network.state_dict().items()}, tmp_path / "a.safetensors")
    assert read_network(tmp_path / "a.safetensors")[1] == 96


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_names())
def test_shipped_files_reach_their_recorded_figures(name):
    recorded = open_encoder(name).recorded["on_generated_pictures"]
    found = figures_on_generated(shipped_path(name))
    assert found.keys() == recorded.keys()
    tolerance = TOLERANCE * open_encoder(name).n_bits / 64
    for key, value in found.items():
        # The nearest is one pair, of which single bits may differ; all others are means.
        assert value == pytest.approx(recorded[key], abs=2 if key.startswith("nearest") else tolerance), key
    altered = [value for key, value in found.items() if "different" not in key]
    assert max(altered) < found["different pictures"] / 2


def test_generated_pictures_are_the_same_every_time():
    first, second = generated_pictures(3), generated_pictures(3)
    assert [picture.tobytes() for picture in first] == [picture.tobytes() for picture in second]
    assert len({picture.tobytes() for picture in first}) == 3
