"""The bundled sample; vectors from files, and their exact neighbours; images, and sets of them."""

from hamtarget.datasets.descriptors import generated_descriptors
from hamtarget.datasets.ground_truth import exact_neighbors
from hamtarget.datasets.image_sets import ImageSet, PackedImages, image_files
from hamtarget.datasets.images import DecodedImages, decode_images, read_image, read_images
from hamtarget.datasets.neighbor_cache import cached_neighbors
from hamtarget.datasets.sample import FASHION_CLASSES, Sample, fashion_sample
from hamtarget.datasets.vector_files import open_vectors
from hamtarget.datasets.vector_sets import VectorSet, open_vector_set

__all__ = [
    "DecodedImages",
    "FASHION_CLASSES",
    "ImageSet",
    "PackedImages",
    "Sample",
    "VectorSet",
    "cached_neighbors",
    "decode_images",
    "exact_neighbors",
    "fashion_sample",
    "generated_descriptors",
    "image_files",
    "open_vector_set",
    "open_vectors",
    "read_image",
    "read_images",
]
