"""What the command reads: images, vectors, codes and lines, as records."""
