"""Texts as inputs of an encoder, and a hash of them that needs no training."""
