"""Learning codes: the loss, what goes around it, and `HashEncoder`, which puts it all together. Needs torch."""

from hamtarget.errors import MissingExtraError

try:
    import safetensors
    import torch
except ImportError as error:
    raise MissingExtraError("hamtarget.learn needs torch and safetensors: pip install 'hamtarget[learn]'") from error

from hamtarget.learn.checkpoint import Progress
from hamtarget.learn.distributed import gather_rows
from hamtarget.learn.encoder import HashEncoder, available_device
from hamtarget.learn.held_out import HeldOutLoss
from hamtarget.learn.losses.base import BatchLoss, LossTerms
from hamtarget.learn.losses.binomial import log_cdf, log_sf
from hamtarget.learn.losses.class_codes import class_means, codes_by_likeness, hadamard_centers, max_min_codes
from hamtarget.learn.losses.guided import GuidedLoss
from hamtarget.learn.losses.hamming_target import HammingTargetLoss
from hamtarget.learn.losses.label_loss import LabelLoss
from hamtarget.learn.losses.pair_loss import PairLoss
from hamtarget.learn.losses.probing import ProbingLoss
from hamtarget.learn.losses.proxies import ProxyLoss
from hamtarget.learn.networks.augmentation import CropFlipColor, Resize
from hamtarget.learn.networks.backbones import backbone
from hamtarget.learn.networks.class_pull import ProxyPull
from hamtarget.learn.networks.head import HashHead, HashModel
from hamtarget.learn.networks.small import DenseNet, SmallResNet
from hamtarget.learn.options import TrainingOptions
from hamtarget.learn.sampling import GroupBatchSampler
from hamtarget.learn.shipped import shipped_encoder
from hamtarget.learn.similarity import Custom, Labels, MultiLabels, Neighbors, Pairs, Similarity, nearest_neighbors
from hamtarget.learn.trainer import train

del safetensors, torch

__all__ = [
    "BatchLoss",
    "CropFlipColor",
    "Custom",
    "DenseNet",
    "GroupBatchSampler",
    "GuidedLoss",
    "HammingTargetLoss",
    "HashEncoder",
    "HashHead",
    "HashModel",
    "HeldOutLoss",
    "LabelLoss",
    "Labels",
    "LossTerms",
    "MultiLabels",
    "Neighbors",
    "PairLoss",
    "Pairs",
    "ProbingLoss",
    "Progress",
    "ProxyLoss",
    "ProxyPull",
    "Resize",
    "Similarity",
    "SmallResNet",
    "TrainingOptions",
    "available_device",
    "backbone",
    "class_means",
    "codes_by_likeness",
    "gather_rows",
    "hadamard_centers",
    "log_cdf",
    "log_sf",
    "max_min_codes",
    "nearest_neighbors",
    "shipped_encoder",
    "train",
]
