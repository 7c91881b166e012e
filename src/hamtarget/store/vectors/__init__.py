"""Vectors that a store keeps: to rank by, and to find the nearest of."""
