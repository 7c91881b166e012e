"""Similarities: which inputs are similar, by labels, neighbours, pairs, or any function."""
