"""Counters, gauges and readiness of a service."""
