"""Learning binary codes: `HashEncoder`, and its parts for a training loop of your own. Needs torch."""

from hamtarget.errors import MissingExtraError

try:
    import safetensors
    import torch
except ImportError as error:
    raise MissingExtraError("hamtarget.learn needs torch and safetensors: pip install 'hamtarget[learn]'") from error

from hamtarget.learn.encoder import HashEncoder
from hamtarget.learn.fitting.objectives import ClassCodes
from hamtarget.learn.losses.base import PairLoss
from hamtarget.learn.losses.hamming_target import HammingTargetLoss
from hamtarget.learn.losses.probing import ProbingLoss
from hamtarget.learn.networks.augmentation import CropFlipColor
from hamtarget.learn.networks.backbones import backbone
from hamtarget.learn.networks.builder import NetworkOptions
from hamtarget.learn.networks.head import HashModel
from hamtarget.learn.similarity.custom import Custom
from hamtarget.learn.similarity.labels import Labels, MultiLabels
from hamtarget.learn.similarity.pairs import Neighbors, SimilarPairs
from hamtarget.learn.similarity.relation import Similarity
from hamtarget.learn.training.options import TrainingOptions
from hamtarget.learn.training.sampling import GroupBatchSampler
from hamtarget.learn.training.trainer import train

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
    "PairLoss",
    "ProbingLoss",
    "SimilarPairs",
    "Similarity",
    "TrainingOptions",
    "backbone",
    "train",
]


def __dir__() -> list[str]:
    return __all__
