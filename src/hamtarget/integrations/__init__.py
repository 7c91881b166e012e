"""Adapters to other systems: scikit-learn, Spark, threatexchange, ann-benchmarks. Each needs its own extra."""
