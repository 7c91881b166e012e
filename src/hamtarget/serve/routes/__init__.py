"""Endpoints of the service: what they take, what they answer, and how both are written down."""
