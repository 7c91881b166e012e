"""Requests and answers as JSON: what they hold, how they are read and written. The OpenAPI document is made of them."""
