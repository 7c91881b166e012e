"""Learning binary codes: `HashEncoder`, and its parts for a training loop of your own. Needs torch."""

from hamtarget.errors import MissingExtraError

try:
    import safetensors
    import torch
except ImportError as error:
    raise MissingExtraError("hamtarget.learn needs torch and safetensors: pip install 'hamtarget[learn]'") from error

from hamtarget.learn.encoder import HashEncoder
from hamtarget.learn.losses.hamming_target import HammingTargetLoss
from hamtarget.learn.losses.probing import ProbingLoss
from hamtarget.learn.networks.augmentation import CropFlipColor
from hamtarget.learn.networks.backbones import backbone
from hamtarget.learn.networks.builder import NetworkOptions
from hamtarget.learn.networks.head import HashModel
from hamtarget.learn.objectives import ClassCodes
from hamtarget.learn.options import TrainingOptions
from hamtarget.learn.sampling import GroupBatchSampler
from hamtarget.learn.similarity import (
    Custom,
    Labels,
    MultiLabels,
    Neighbors,
    Similarity,
    SimilarPairs,
)
from hamtarget.learn.trainer import train

del safetensors, torch

__all__ = [
    "ClassCodes",
    "CropFlipColor",
    "Custom",
    "GroupBatchSampler",
    "HammingTargetLoss",
    "HashEncoder",
    "HashModel",
    "Labels",
    "MultiLabels",
    "Neighbors",
    "NetworkOptions",
    "ProbingLoss",
    "SimilarPairs",
    "Similarity",
    "TrainingOptions",
    "backbone",
    "train",
]


def __dir__() -> list[str]:
    return __all__
