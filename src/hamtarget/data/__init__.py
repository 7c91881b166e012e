"""The bundled sample, and vectors from files."""

from hamtarget.data.sample import FASHION_CLASSES, Sample, fashion_sample
from hamtarget.data.vector_files import open_vectors

__all__ = ["FASHION_CLASSES", "Sample", "fashion_sample", "open_vectors"]
