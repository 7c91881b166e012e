"""Stores in PostgreSQL: the same items and answers as in a folder, in tables that any number of machines share."""
