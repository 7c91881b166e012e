"""Trials: which settings were tried, and what they gave."""
