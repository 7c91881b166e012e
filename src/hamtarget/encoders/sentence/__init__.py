"""Sentence models: from a folder of a sentence-transformers model to an encoder of texts, without torch."""
