"""Pictures: reading, listing, altering, and what is noted of them."""
