"""The bundled sample, vectors from files, and their exact neighbours."""

from hamtarget.data.descriptors import generated_descriptors
from hamtarget.data.ground_truth import exact_neighbors
from hamtarget.data.neighbor_cache import cached_neighbors
from hamtarget.data.sample import FASHION_CLASSES, Sample, fashion_sample
from hamtarget.data.vector_files import open_vectors
from hamtarget.data.vector_sets import VectorSet, open_vector_set

__all__ = [
    "FASHION_CLASSES",
    "Sample",
    "VectorSet",
    "cached_neighbors",
    "exact_neighbors",
    "fashion_sample",
    "generated_descriptors",
    "open_vector_set",
    "open_vectors",
]
