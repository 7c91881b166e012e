"""The index of a store in a folder: made of its rows, kept in files, and searched with filters."""
