"""Training: batches of groups, the loop over them, its checkpoints and its log."""
