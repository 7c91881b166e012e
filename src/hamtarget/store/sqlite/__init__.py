"""Stores in a folder: items in SQLite, and an index in memory that follows it."""
