"""The laboratory: tables and figures of the paper, other methods and libraries, benchmarks, trials and results.

It is not part of the installed package. Run it from the root of the repository: `python -m research --help`.
"""
