"""Tables and figures of the paper, one module each, started by `python -m research <name>`."""
