"""Trials by which defaults and settings were chosen."""
