"""Repair: what can still be read of a damaged store, and a new store of it."""
