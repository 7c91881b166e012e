"""Shared by all verbs at the terminal: options, help, output, progress, errors."""
