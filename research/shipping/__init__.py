"""Scripts that make the models that come with the package."""
