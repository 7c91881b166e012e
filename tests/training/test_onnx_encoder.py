"""An exported encoder gives the same codes without torch, and says so when its file is not whole."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from hamtarget import codes
from hamtarget.encoders import open_encoder
from hamtarget.encoders.onnx_encoder import OnnxEncoder
from hamtarget.encoders.onnx_file import sealed
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import (
    CorruptFileError,
    DtypeError,
    FileError,
    InputError,
    MissingExtraError,
    NotFiniteError,
    NotFittedError,
    ShapeError,
    UnsupportedFileError,
)
from hamtarget.learn import HammingTargetLoss, HashEncoder, NetworkOptions, ProbingLoss, TrainingOptions

# Three steps do not tell much apart.
pytestmark = pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")

INPUTS = {
    "vectors": lambda rng: rng.normal(size=(300, 12)).astype(np.float32),
    "grey": lambda rng: rng.integers(0, 256, (120, 20, 16), dtype=np.uint8),
    "colour": lambda rng: rng.integers(0, 256, (120, 3, 24, 24), dtype=np.uint8),
}
SHAPES = {"vectors": (12,), "grey": (20, 16), "colour": (3, 24, 24)}


def fitted(kind, *, radius=2, center="mean", network=None, seed=0):
    inputs = INPUTS[kind](np.random.default_rng(0))
    encoder = HashEncoder(
        loss=ProbingLoss(32) if radius is None else HammingTargetLoss(32, radius),
        network=NetworkOptions(width=8, center=center) if network is None else network,
        training=TrainingOptions(steps=3, batch_size=32),
        seed=seed,
        device="cpu",
    )
    return encoder.fit(inputs, np.arange(len(inputs)) % 5), inputs


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(encoder, its inputs, the file)."""
    encoder, inputs = fitted("vectors")
    return encoder, inputs, encoder.export_onnx(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("center", ["mean", "median"])
def test_the_same_codes(kind, center, tmp_path):
    encoder, inputs = fitted(kind, center=center)
    path = encoder.export_onnx(tmp_path)
    assert path == tmp_path / "model.onnx"
    onnx_encoder = OnnxEncoder(path)
    assert (onnx_encoder.n_bits, onnx_encoder.radius) == (32, 2)
    assert onnx_encoder.input_shape == encoder.input_shape == SHAPES[kind]
    logits = encoder.logits(inputs)
    np.testing.assert_allclose(onnx_encoder.logits(inputs), logits, atol=1e-4)
    np.testing.assert_allclose(onnx_encoder.embedding(inputs), encoder.embedding(inputs), atol=1e-4)
    different = codes.unpack(onnx_encoder.encode(inputs), 32) != codes.unpack(encoder.encode(inputs), 32)
    assert not (different & (np.abs(logits) > 1e-4)).any()


def test_any_number_of_rows(exported):
    encoder, inputs, path = exported
    many = np.tile(inputs, (30, 1))
    onnx_encoder = OnnxEncoder(path, threads=1)
    np.testing.assert_array_equal(onnx_encoder.encode(many)[-len(inputs) :], onnx_encoder.encode(inputs))
    np.testing.assert_array_equal(onnx_encoder.encode(inputs[:1]), encoder.encode(inputs[:1]))
    assert onnx_encoder.logits(inputs[:0]).shape == (0, 32)
    assert onnx_encoder.encode(inputs[:0]).shape == (0, 4)


def test_a_grey_image_may_have_its_channel(tmp_path):
    encoder, inputs = fitted("grey")
    onnx_encoder = OnnxEncoder(encoder.export_onnx(tmp_path / "grey.onnx"))
    assert encoder.export_onnx(tmp_path / "grey.onnx") == tmp_path / "grey.onnx"
    np.testing.assert_array_equal(onnx_encoder.encode(inputs[:, None]), onnx_encoder.encode(inputs))


@pytest.mark.parametrize("radius", [None, (1, 4)])
def test_radius_is_kept(radius, tmp_path):
    encoder, _ = fitted("vectors", radius=radius)
    assert OnnxEncoder(encoder.export_onnx(tmp_path)).radius == radius


def test_inputs_are_checked(exported):
    onnx_encoder = OnnxEncoder(exported[2])
    with pytest.raises(ShapeError, match=r"inputs have shape \(rows, 11\); this encoder takes \(rows, 12\)"):
        onnx_encoder.encode(np.zeros((2, 11)))
    with pytest.raises(ShapeError):
        onnx_encoder.encode(np.zeros(12))
    with pytest.raises(NotFiniteError, match="row 1"):
        onnx_encoder.encode(np.array([[0.0] * 12, [np.nan] * 12]))
    with pytest.raises(DtypeError):
        onnx_encoder.encode(np.array([["a"] * 12]))


def test_other_tools_read_the_file(exported):
    import onnx

    model = onnx.load(exported[2])
    onnx.checker.check_model(model)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata["hamtarget"]) == {"format": 1, "input_shape": [12], "n_bits": 32, "radius": 2}


def test_a_long_description_is_one_entry():
    import onnx

    for length in (1, 60, 130, 20_000):
        model = onnx.ModelProto.FromString(sealed(b"", {"text": "x" * length}))
        assert json.loads(model.metadata_props[0].value)["text"] == "x" * length
        assert len(model.metadata_props) == 2


def test_every_kind_of_damage_is_noticed(exported, tmp_path):
    whole = exported[2].read_bytes()
    rng = np.random.default_rng(0)
    damaged = [whole[:length] for length in (0, 1, 50, 100, len(whole) // 2, len(whole) - 1)]
    damaged += [whole + b"\0", b"not a model at all"]
    for place in [0, len(whole) - 1, len(whole) - 70, *rng.integers(0, len(whole), 30).tolist()]:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(changed))
    for content in damaged:
        (tmp_path / "model.onnx").write_bytes(content)
        with pytest.raises(CorruptFileError, match="checksum"):
            OnnxEncoder(tmp_path)


def test_files_of_others_and_of_the_future(exported, tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(FileError, match="No such file"):
        OnnxEncoder(path)
    path.write_bytes(sealed(exported[2].read_bytes(), {"format": 4}))
    with pytest.raises(UnsupportedFileError, match="format 4"):
        OnnxEncoder(path)
    path.write_bytes(sealed(b"", {}))
    with pytest.raises(UnsupportedFileError, match="cannot run it"):
        OnnxEncoder(path)


def test_export_needs_a_model_and_onnx(exported, monkeypatch, tmp_path):
    with pytest.raises(NotFittedError):
        HashEncoder(32).export_onnx(tmp_path)
    with pytest.raises(NotFittedError):
        _ = HashEncoder(32).input_shape
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"hamtarget\[onnx\]"):
        exported[0].export_onnx(tmp_path)
    assert list(tmp_path.iterdir()) == []


class Unwritable(nn.Module):
    out_features = 12

    def forward(self, inputs):
        return torch.linalg.matrix_exp(inputs[:, :, None] * inputs[:, None, :]).sum(2)


def test_what_onnx_cannot_express_is_refused(tmp_path):
    encoder, _ = fitted("vectors", network=Unwritable())
    with pytest.raises(InputError, match="cannot be written as ONNX"):
        encoder.export_onnx(tmp_path)


def test_export_leaves_the_encoder_as_it_is(exported):
    encoder, inputs, path = exported
    before = encoder.logits(inputs)
    encoder.model.train()
    encoder.export_onnx(path)
    assert encoder.model.training
    np.testing.assert_array_equal(encoder.logits(inputs), before)


def test_open_encoder_prefers_the_export(exported, monkeypatch, tmp_path):
    encoder, inputs, path = exported
    encoder.save(tmp_path)
    assert isinstance(open_encoder(tmp_path), HashEncoder)
    shutil.copy(path, tmp_path)
    assert isinstance(open_encoder(tmp_path), OnnxEncoder)
    assert isinstance(open_encoder(tmp_path / "model.onnx"), OnnxEncoder)
    for each in (open_encoder(tmp_path), encoder):
        assert isinstance(each, Encoder)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert isinstance(open_encoder(tmp_path), HashEncoder)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(MissingExtraError, match=r"hamtarget\[onnx\]"):
        open_encoder(tmp_path)


def test_a_new_model_does_not_keep_the_old_export(exported, tmp_path):
    exported[0].save(tmp_path)
    exported[0].export_onnx(tmp_path)
    other, inputs = fitted("vectors", seed=1)
    other.save(tmp_path)
    np.testing.assert_array_equal(open_encoder(tmp_path).encode(inputs), other.encode(inputs))


def test_open_encoder_says_what_is_missing(exported, monkeypatch, tmp_path):
    with pytest.raises(FileError, match="does not exist; expected a trained encoder"):
        open_encoder(tmp_path / "nothing")
    with pytest.raises(FileError, match="has no encoder; expected a trained encoder"):
        open_encoder(tmp_path)
    exported[0].save(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"hamtarget\[learn\]"):
        open_encoder(tmp_path)


def test_save_makes_a_copy(exported, tmp_path):
    OnnxEncoder(exported[2]).save(tmp_path / "copy")
    assert (tmp_path / "copy" / "model.onnx").read_bytes() == exported[2].read_bytes()


@pytest.mark.slow
def test_torch_is_not_imported(exported, tmp_path):
    encoder, inputs, path = exported
    np.save(tmp_path / "inputs.npy", inputs)
    script = (
        "import sys, numpy; from hamtarget.encoders import open_encoder\n"
        f"codes = open_encoder({str(path.parent)!r}).encode(numpy.load({str(tmp_path / 'inputs.npy')!r}))\n"
        "print('torch' in sys.modules, codes.tobytes().hex())"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", encoder.encode(inputs).tobytes().hex()]
