"""Encoders that turn inputs into binary codes without torch.

`HashEncoder`, which learns with torch, lives in `hamtarget.learn`. What it exports runs here as an `OnnxEncoder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports

if TYPE_CHECKING:
    from hamtarget.encoders.itq import ITQ
    from hamtarget.encoders.lsh import LSH
    from hamtarget.encoders.onnx_encoder import OnnxEncoder
    from hamtarget.encoders.opening import open_encoder, register_encoder
    from hamtarget.encoders.protocol import Encoder

__all__ = ["Encoder", "ITQ", "LSH", "OnnxEncoder", "open_encoder", "register_encoder"]

_HOMES = {
    "Encoder": "hamtarget.encoders.protocol",
    "ITQ": "hamtarget.encoders.itq",
    "LSH": "hamtarget.encoders.lsh",
    "OnnxEncoder": "hamtarget.encoders.onnx_encoder",
    "open_encoder": "hamtarget.encoders.opening",
    "register_encoder": "hamtarget.encoders.opening",
}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
