"""OnnxEncoder: an exported encoder, run by onnxruntime and without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._files import write_atomically
from hamtarget.codes import Codes, check_finite, from_logits
from hamtarget.encoders.onnx_file import DESCRIPTION_KEY, ONNX_NAME, parse_description, read_sealed
from hamtarget.errors import DtypeError, MissingExtraError, ShapeError, UnsupportedFileError

# Inputs sent through the network at a time.
_ENCODED_ROWS = 4096
# As torch has it: a row of zeros stays one.
_SHORTEST = np.float32(1e-12)


class OnnxEncoder:
    """What `HashEncoder.export_onnx` wrote: gives the same codes, but for logits within rounding of 0.

    Args:
        path: the file, or the folder in which it is `model.onnx`.
        threads: of one batch; 0: as many as there are cores.

    Raises:
        FileError: there is no such file. CorruptFileError: it is damaged, or nothing that hamtarget exported.
        UnsupportedFileError: it is of a later version, or too new for the installed onnxruntime.
        MissingExtraError: onnxruntime is not installed.
    """

    n_bits: int
    """Bits of a code."""
    radius: int | tuple[int, ...] | None
    """The Hamming distance target, or targets, that it was trained for."""
    input_shape: tuple[int, ...]
    """Shape of one input: (columns,), (height, width) of a grey image, or (channels, height, width)."""

    def __init__(self, path: str | Path, *, threads: int = 0) -> None:
        path = Path(path)
        self.path = path / ONNX_NAME if path.is_dir() else path
        self._content = read_sealed(self.path)
        self._session = _session(self._content, threads, self.path)
        metadata = self._session.get_modelmeta().custom_metadata_map
        description = parse_description(metadata.get(DESCRIPTION_KEY), self.path)
        radius = description["radius"]
        self.n_bits = int(description["n_bits"])
        self.radius = tuple(radius) if isinstance(radius, list) else radius
        self.input_shape = tuple(description["input_shape"])

    def logits(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Real values before the sign, (rows, n_bits).

        Raises:
            ShapeError: an input does not have `input_shape`.
            DtypeError: the inputs are not numbers.
            NotFiniteError: one holds NaN or infinity.
        """
        rows = np.asarray(inputs)
        if rows.dtype.kind not in "fiub":
            raise DtypeError(f"inputs have dtype {rows.dtype}; expected numbers")
        # A grey image may come with its one channel or without.
        shape = (1, *self.input_shape) if len(self.input_shape) == 2 else self.input_shape
        if rows.ndim == 0 or rows.shape[1:] not in (self.input_shape, shape):
            found = ", ".join(map(str, rows.shape[1:]))
            raise ShapeError(
                f"inputs have shape (rows, {found}); this encoder takes (rows, {', '.join(map(str, self.input_shape))})"
            )
        result = np.empty((len(rows), self.n_bits), dtype=np.float32)
        for start in range(0, len(rows), _ENCODED_ROWS):
            block = rows[start : start + _ENCODED_ROWS]
            check_finite(block, name="inputs")
            block = np.ascontiguousarray(block, dtype=np.float32).reshape(-1, *shape)
            result[start : start + _ENCODED_ROWS] = self._session.run(["logits"], {"inputs": block})[0]
        return result

    def encode(self, inputs: ArrayLike) -> Codes:
        """Packed codes, (rows, n_bits / 8)."""
        return from_logits(self.logits(inputs))

    def embedding(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Logits scaled to unit length, (rows, n_bits): what HDT-E ranks hits by."""
        logits = self.logits(inputs)
        scaled: NDArray[np.float32] = logits / np.maximum(np.linalg.norm(logits, axis=1, keepdims=True), _SHORTEST)
        return scaled

    def save(self, folder: str | Path) -> None:
        """Put a copy of the file into `folder`, as `model.onnx`."""
        write_atomically(Path(folder) / ONNX_NAME, self._content)

    def __repr__(self) -> str:
        return f"OnnxEncoder(n_bits={self.n_bits}, radius={self.radius}) [inputs {self.input_shape}]"


def _session(content: bytes, threads: int, path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "onnxruntime is not installed; to run an exported encoder: pip install 'hamtarget[onnx]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Only errors, and those come as exceptions.
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    # Its errors have nothing in common but this; the checksum says that the file itself is whole.
    except Exception as error:
        raise UnsupportedFileError(f"{path}: onnxruntime {onnxruntime.__version__} cannot run it: {error}") from error
