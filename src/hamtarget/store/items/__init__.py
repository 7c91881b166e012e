"""Items of a store: checked and encoded when they are put, and found again by the rows of their codes."""
