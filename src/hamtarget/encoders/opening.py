"""Opening a trained encoder, by what is in its folder and what is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hamtarget.encoders.onnx_file import ONNX_NAME
from hamtarget.encoders.protocol import TrainedEncoder
from hamtarget.errors import FileError, MissingExtraError

_WEIGHTS_NAME = "model.safetensors"


def open_encoder(folder: str | Path) -> TrainedEncoder:
    """The encoder in `folder`: its export, which needs no torch, if it and onnxruntime are there; else its weights.

    Args:
        folder: where `HashEncoder.save` or `HashEncoder.export_onnx` wrote; or the ONNX file itself.

    Raises:
        FileError: there is neither `model.onnx` nor `model.safetensors`. CorruptFileError: it is damaged.
        UnsupportedFileError: it is of a later version.
        MissingExtraError: what the file needs is not installed.
        InputError: the encoder was built on a network of the caller's: load it by `HashEncoder.load(network=...)`.
    """
    folder = Path(folder)
    export = folder if folder.suffix == ".onnx" else folder / ONNX_NAME
    weights = folder / _WEIGHTS_NAME
    if export.is_file() and (_installed("onnxruntime") or not weights.is_file()):
        from hamtarget.encoders.onnx_encoder import OnnxEncoder

        return OnnxEncoder(export)
    if not weights.is_file():
        found = "a folder without them" if folder.is_dir() else "a file" if folder.exists() else "not there"
        raise FileError(
            f"{folder} is {found}; expected a trained encoder: a folder with {ONNX_NAME} or {_WEIGHTS_NAME}"
        )
    if not _installed("torch"):
        raise MissingExtraError(
            f"{weights} needs torch: pip install 'hamtarget[learn]'; or export it where torch is "
            "(HashEncoder.export_onnx) and install hamtarget[onnx]"
        )
    from hamtarget.learn import HashEncoder

    return HashEncoder.load(folder)


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:
        # Where a test or a program has blocked the package, it has no spec.
        return False
