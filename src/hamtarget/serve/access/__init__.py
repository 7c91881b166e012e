"""Who may come in, and what is noted of it."""
