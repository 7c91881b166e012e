"""Vectors: readers of their files, sets to measure search with, and exact neighbours."""
