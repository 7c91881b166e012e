"""Encoders that turn inputs into binary codes without torch.

`HashEncoder`, which learns with torch, lives in `hamtarget.learn`. What it exports runs here as an `OnnxEncoder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports

if TYPE_CHECKING:
    from hamtarget.encoders.onnx_encoder import OnnxEncoder
    from hamtarget.encoders.opening import open_encoder, register_encoder
    from hamtarget.encoders.protocol import Encoder
    from hamtarget.encoders.vectors.itq import ITQ
    from hamtarget.encoders.vectors.lsh import LSH

__all__ = ["Encoder", "ITQ", "LSH", "OnnxEncoder", "open_encoder", "register_encoder"]

_HOMES = {
    "Encoder": "hamtarget.encoders.protocol",
    "ITQ": "hamtarget.encoders.vectors.itq",
    "LSH": "hamtarget.encoders.vectors.lsh",
    "OnnxEncoder": "hamtarget.encoders.onnx_encoder",
    "open_encoder": "hamtarget.encoders.opening",
    "register_encoder": "hamtarget.encoders.opening",
}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
