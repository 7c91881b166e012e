"""Codes of vectors by the signs of a linear map: random, or learned without torch."""
