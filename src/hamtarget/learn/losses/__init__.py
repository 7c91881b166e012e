"""Losses: what a batch of logits should be, as a number to make small."""
