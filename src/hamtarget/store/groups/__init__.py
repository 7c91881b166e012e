"""Groups of near duplicates that stay: they keep their ids, and follow a store change by change."""
