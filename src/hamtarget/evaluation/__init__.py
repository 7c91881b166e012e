"""Evaluation: how good codes are, as figures and as a report."""
