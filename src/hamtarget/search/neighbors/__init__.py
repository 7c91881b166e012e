"""Parts of `NeighborIndex`: training, sketches, tuning, exact scans and its file."""
