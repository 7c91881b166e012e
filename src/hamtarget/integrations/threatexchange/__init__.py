"""An index for Meta's `threatexchange` package: `pdq_index.PDQMultiIndex`, exact, with updates while it is queried."""
