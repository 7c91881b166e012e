"""What a person at the terminal meets: options, output, progress, errors."""
