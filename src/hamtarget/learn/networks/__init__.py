"""Networks: from inputs to logits, and random changes of images on the way."""
