"""Losses of other hashing methods (DHN, HashNet, DBR, CSQ, OrthoHash), and the fine-tuning that all share."""

from research.comparators.csq import CSQLoss
from research.comparators.dbr import DBRLoss
from research.comparators.dhn import DHNLoss
from research.comparators.fine_tuning import FineTuner
from research.comparators.hashnet import HashNetLoss
from research.comparators.no_pairs import NoPairs
from research.comparators.orthohash import OrthoHashLoss

__all__ = ["CSQLoss", "DBRLoss", "DHNLoss", "FineTuner", "HashNetLoss", "NoPairs", "OrthoHashLoss"]
