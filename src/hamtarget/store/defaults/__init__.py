"""Defaults of stores: of copies, of texts, and of probing."""
