"""Adapters to other systems: scikit-learn, Spark, ann-benchmarks. Each needs its own extra."""
