"""Data that comes with the package."""

from hamtarget.data.sample import FASHION_CLASSES, Sample, fashion_sample

__all__ = ["FASHION_CLASSES", "Sample", "fashion_sample"]
