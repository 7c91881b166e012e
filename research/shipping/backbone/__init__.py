"""The pretrained network that comes with the package."""
