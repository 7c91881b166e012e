"""Run an exported encoder by onnxruntime, without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._files import write_atomically
from hamtarget._metric import MetricName
from hamtarget._picture_form import PictureForm
from hamtarget.codes import Codes, check_finite, from_logits, unit_rows
from hamtarget.encoders.onnx_file import DESCRIPTION_KEY, ONNX_NAME, parse_description, read_sealed
from hamtarget.encoders.shipped import recorded_figures
from hamtarget.errors import CorruptFileError, DtypeError, MissingExtraError, ShapeError, UnsupportedFileError

# Inputs sent through the network at a time, and the numbers that they may have together: a network of pictures needs
# many times as much memory.
_ENCODED_ROWS = 4096
_ENCODED_CELLS = 1 << 22


class OnnxEncoder:
    """An encoder that `HashEncoder.export_onnx` wrote, run by onnxruntime.

    It gives the same codes as the `HashEncoder`; bits may differ only where a logit is within rounding of 0.

    Args:
        path: the ONNX file, or the folder that holds it as `model.onnx`.
        threads: threads for one batch; 0: one for each core.

    Raises:
        FileError: there is no such file.
        CorruptFileError: the file is damaged, or was not exported by hamtarget.
        UnsupportedFileError: a later version wrote the file, or it is too new for the installed onnxruntime.
        MissingExtraError: onnxruntime is not installed.

    Example:
        Open the small encoder that the package brings for its demonstration, and encode a blank image:

        >>> from pathlib import Path
        >>> import hamtarget
        >>> encoder = OnnxEncoder(Path(hamtarget.__file__).parent / "serve" / "demo_encoder")
        >>> encoder
        OnnxEncoder(n_bits=64, radius=(...)) [inputs (28, 28), 0.2 MB]
        >>> encoder.encode(np.zeros((1, 28, 28))).shape
        (1, 8)
    """

    n_bits: int
    """Bits of a code."""
    radius: int | tuple[int, ...] | None
    """The Hamming distance target or targets that the codes were trained for; None: they were trained for none."""
    input_shape: tuple[int, ...]
    """Shape of one input: (columns,), (height, width) of a grey image, or (channels, height, width)."""
    picture_form: PictureForm | None
    """How pictures become inputs, as `read_images` takes it; None: their centres are cropped to `input_shape`."""
    name: str | None
    """Name of an encoder that comes with the package; None for others."""
    substrings: int | None
    """Number of substrings that the codes were trained to be probed by; None: they were not."""
    neighbor_metric: MetricName | None
    """By what vectors are near, if the codes were learned from near vectors; None: from anything else."""

    def __init__(self, path: str | Path, *, threads: int = 0) -> None:
        path = Path(path)
        self.path = path / ONNX_NAME if path.is_dir() else path
        self._content = read_sealed(self.path)
        self._session = onnx_session(self._content, threads, self.path)
        description = parse_description(metadata_of(self._session, self.path).get(DESCRIPTION_KEY), self.path)
        self.n_bits, self.radius, self.input_shape = description.n_bits, description.radius, description.input_shape
        self.picture_form, self.name = description.picture_form, description.name
        self.substrings, self.neighbor_metric = description.substrings, description.metric

    @property
    def recorded(self) -> Mapping[str, Any] | None:
        """Figures that were measured of an encoder that comes with the package; None for others."""
        return recorded_figures(self.name, self._content)

    def logits(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the real values before the sign, (rows, n_bits).

        Raises:
            ShapeError: an input does not have `input_shape`.
            DtypeError: the inputs are not numbers.
            NotFiniteError: an input holds NaN or infinity.
            CorruptFileError: the network is not what the file's description says.
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
        at_once = max(1, min(_ENCODED_ROWS, _ENCODED_CELLS // math.prod(shape)))
        for start in range(0, len(rows), at_once):
            block = rows[start : start + at_once]
            check_finite(block, name="inputs")
            block = np.ascontiguousarray(block, dtype=np.float32).reshape(-1, *shape)
            result[start : start + at_once] = self._run(block)
        return result

    def _run(self, block: NDArray[np.float32]) -> NDArray[Any]:
        try:
            logits = np.asarray(self._session.run(["logits"], {"inputs": block})[0])
        # onnxruntime's errors have no other base class.
        except Exception as error:
            raise CorruptFileError(f"{self.path}: the network does not take its inputs: {error}") from error
        if logits.shape != (len(block), self.n_bits) or logits.dtype.kind != "f":
            raise CorruptFileError(
                f"{self.path}: the network returns {logits.dtype} of shape {logits.shape}; expected numbers of shape "
                f"({len(block)}, {self.n_bits}): export it again"
            )
        return logits

    def encode(self, inputs: ArrayLike) -> Codes:
        """Return packed codes, (rows, n_bits / 8)."""
        return from_logits(self.logits(inputs))

    def embedding(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the logits scaled to unit length, (rows, n_bits), by which hits can be re-ranked."""
        return unit_rows(self.logits(inputs))

    def save(self, folder: str | Path) -> None:
        """Write a copy of the file to `folder`, as `model.onnx`."""
        write_atomically(Path(folder) / ONNX_NAME, self._content)

    def __repr__(self) -> str:
        size = f"{len(self._content) / 1e6:.1f} MB"
        name = "" if self.name is None else f"{self.name}, "
        return f"OnnxEncoder(n_bits={self.n_bits}, radius={self.radius}) [{name}inputs {self.input_shape}, {size}]"


def metadata_of(session: Any, path: Path) -> dict[str, str]:
    """Return the metadata of the file that a session runs.

    Raises:
        CorruptFileError: it is no text.
    """
    try:
        metadata: dict[str, str] = session.get_modelmeta().custom_metadata_map
    except ValueError as error:
        raise CorruptFileError(f"{path}: its metadata is no text ({error}); export it again") from error
    return metadata


def onnx_session(content: bytes, threads: int, path: Path) -> Any:
    """Return a session of onnxruntime.

    Args:
        content: the ONNX file.
        threads: threads for one batch; 0: one for each core.
        path: of the file, for messages.

    Raises:
        MissingExtraError: onnxruntime is not installed.
        UnsupportedFileError: it cannot run the file.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "onnxruntime is not installed; to run an exported encoder: pip install 'hamtarget[onnx]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Only errors are logged, and those come as exceptions.
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    # onnxruntime's errors have no other base class. The checksum says that the file itself is intact.
    except Exception as error:
        raise UnsupportedFileError(f"{path}: onnxruntime {onnxruntime.__version__} cannot run it: {error}") from error
