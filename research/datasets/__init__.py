"""Image sets of the paper, and generated vectors."""

from research.datasets.image_data import ImageData, open_image_data

__all__ = ["ImageData", "open_image_data"]
