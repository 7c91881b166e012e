"""Fitting an encoder: its inputs, its defaults, its choices, and what comes of it."""
