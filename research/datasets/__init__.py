"""Sets to measure with: images of the paper, vectors with their true neighbours, generated vectors, sentences."""

from research.datasets.image_data import ImageData, open_image_data

__all__ = ["ImageData", "open_image_data"]
