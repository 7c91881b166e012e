"""The scan of every code on a device of torch: rows that live there, and kernels that read them.

`FlatIndex(n_bits, device="cuda")` is the door. Nothing here needs the native core.
"""
