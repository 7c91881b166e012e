"""The laboratory: the paper's tables and figures, comparators, peers, benchmarks and their results.

It is not part of the installed package; run it from the root of the repository: `python -m research --help`.
"""
