"""Endpoints of the service."""
