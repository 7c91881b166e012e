"""The bundled sample; vectors from files, and their exact neighbours; images, and sets of them."""

from hamtarget.data.descriptors import generated_descriptors
from hamtarget.data.ground_truth import exact_neighbors
from hamtarget.data.image_data import ImageData, open_image_data
from hamtarget.data.image_sets import ImageSet, PackedImages, image_files
from hamtarget.data.images import DecodedImages, decode_images, read_image, read_images
from hamtarget.data.neighbor_cache import cached_neighbors
from hamtarget.data.sample import FASHION_CLASSES, Sample, fashion_sample
from hamtarget.data.vector_files import open_vectors
from hamtarget.data.vector_sets import VectorSet, open_vector_set

__all__ = [
    "DecodedImages",
    "FASHION_CLASSES",
    "ImageData",
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
    "open_image_data",
    "open_vector_set",
    "open_vectors",
    "read_image",
    "read_images",
]
