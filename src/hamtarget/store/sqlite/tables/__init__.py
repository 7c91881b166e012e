"""The database of a store in a folder: its file, its rows, and the statements that read and write them."""
