"""Learning codes: the loss, what goes around it, and `HashEncoder`, which puts it all together. Needs torch."""

from hamtarget.errors import MissingExtraError

try:
    import safetensors
    import torch
except ImportError as error:
    raise MissingExtraError("hamtarget.learn needs torch and safetensors: pip install 'hamtarget[learn]'") from error

from hamtarget.learn.augment import CropFlipColor, Resize
from hamtarget.learn.backbones import backbone
from hamtarget.learn.batch_loss import BatchLoss, LossTerms
from hamtarget.learn.batches import GroupBatchSampler
from hamtarget.learn.binomial import log_cdf, log_sf
from hamtarget.learn.checkpoint import Progress
from hamtarget.learn.class_codes import class_means, codes_by_likeness, hadamard_centers, max_min_codes
from hamtarget.learn.csq import CSQLoss
from hamtarget.learn.dbr import DBRLoss
from hamtarget.learn.dhn import DHNLoss
from hamtarget.learn.distributed import gather_rows
from hamtarget.learn.encoder import HashEncoder, available_device
from hamtarget.learn.fine_tuning import FineTuner
from hamtarget.learn.guided import GuidedLoss
from hamtarget.learn.hashnet import HashNetLoss
from hamtarget.learn.head import HashHead, HashModel
from hamtarget.learn.held_out import HeldOutLoss
from hamtarget.learn.label_loss import LabelLoss
from hamtarget.learn.loss import HammingTargetLoss
from hamtarget.learn.networks import DenseNet, SmallResNet
from hamtarget.learn.options import TrainingOptions
from hamtarget.learn.orthohash import OrthoHashLoss
from hamtarget.learn.pair_loss import PairLoss
from hamtarget.learn.probing import ProbingLoss
from hamtarget.learn.proxies import ProxyLoss
from hamtarget.learn.pull import ProxyPull
from hamtarget.learn.resnet50 import ResNet50
from hamtarget.learn.shipped import shipped_encoder
from hamtarget.learn.similarity import Custom, Labels, MultiLabels, Neighbors, Pairs, Similarity, nearest_neighbors
from hamtarget.learn.threads import one_thread
from hamtarget.learn.trainer import train

del safetensors, torch

__all__ = [
    "BatchLoss",
    "CSQLoss",
    "CropFlipColor",
    "Custom",
    "DBRLoss",
    "DHNLoss",
    "DenseNet",
    "FineTuner",
    "GroupBatchSampler",
    "GuidedLoss",
    "HammingTargetLoss",
    "HashEncoder",
    "HashHead",
    "HashModel",
    "HashNetLoss",
    "HeldOutLoss",
    "LabelLoss",
    "Labels",
    "LossTerms",
    "MultiLabels",
    "Neighbors",
    "OrthoHashLoss",
    "PairLoss",
    "Pairs",
    "ProbingLoss",
    "Progress",
    "ProxyLoss",
    "ProxyPull",
    "ResNet50",
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
    "one_thread",
    "shipped_encoder",
    "train",
]
