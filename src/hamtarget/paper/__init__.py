"""Each table and figure of the paper as one module, started by `hamtarget paper <name>`."""
