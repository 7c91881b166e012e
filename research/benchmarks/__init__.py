"""Benchmarks: how fast, and beside whom."""
