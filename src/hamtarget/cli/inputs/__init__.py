"""Reading what a command is given: images, vectors, codes, lines, stores and index files."""
