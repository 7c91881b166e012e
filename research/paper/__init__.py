"""Each table and figure of the paper as one module, started by `python -m research <name>`."""
