"""Transport of the service: connections, their bounds, and the end of a service."""
