"""Texts: readers of their files, and long texts in chunks."""
