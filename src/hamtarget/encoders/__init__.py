"""Encoders: what turns inputs into binary codes, without torch.

`HashEncoder`, which learns with torch, lives in `hamtarget.learn`; what it exports runs here as an `OnnxEncoder`.
"""

from hamtarget.encoders.itq import ITQ
from hamtarget.encoders.lsh import LSH
from hamtarget.encoders.onnx_encoder import OnnxEncoder
from hamtarget.encoders.opening import open_encoder
from hamtarget.encoders.protocol import Encoder, TrainedEncoder

__all__ = ["Encoder", "ITQ", "LSH", "OnnxEncoder", "TrainedEncoder", "open_encoder"]
