"""Queues and the bounds of the work in them."""
