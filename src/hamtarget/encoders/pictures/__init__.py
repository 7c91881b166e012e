"""Classic hashes of pictures, which need no training."""
