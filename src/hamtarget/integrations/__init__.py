"""Adapters to other systems: scikit-learn, Spark and ann-benchmarks. Each needs its own extra."""
