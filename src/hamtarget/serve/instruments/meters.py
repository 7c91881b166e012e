"""Counters of a service, for Prometheus.

Gauges say how several processes of one service become one number: `livesum` adds up what each living process has,
`livemax` takes the worst of them, `mostrecent` what is the same for all.
"""

from __future__ import annotations

import os
import platform
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

import hamtarget

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_POWERS_OF_TEN = tuple(10.0**power for power in range(8))
_POWERS_OF_TWO = tuple(2.0**power for power in range(0, 15, 2))


class Meters:
    """Counters of one service; each service has its own."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def total(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"hamtarget_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"hamtarget_{name}", text, labels, buckets=buckets, registry=registry)

        def sum_of_processes(name: str, text: str) -> Gauge:
            return Gauge(f"hamtarget_{name}", text, registry=registry, multiprocess_mode="livesum")

        def worst_process(name: str, text: str) -> Gauge:
            return Gauge(f"hamtarget_{name}", text, registry=registry, multiprocess_mode="livemax")

        def same_for_all(name: str, text: str) -> Gauge:
            gauge = Gauge(f"hamtarget_{name}", text, registry=registry, multiprocess_mode="mostrecent")
            # Not known is not 0: no alert compares with it.
            gauge.set(float("nan"))
            return gauge

        self.requests = total("requests", "Requests answered.", "endpoint", "status")
        self.errors = total("errors", "Requests refused or failed, by reason.", "kind")
        self.cancelled = total("cancelled", "Requests that had begun and were ended from outside.", "reason")
        self.latency = histogram(
            "request_seconds", "From the head of a request to the end of its answer.", "endpoint", buckets=_SECONDS
        )
        self.candidates = histogram("query_candidates", "Rows read for a query.", buckets=_POWERS_OF_TEN)
        self.comparisons = histogram(
            "query_comparisons", "Embedding distances computed for a query.", buckets=_POWERS_OF_TEN
        )
        self.batch = histogram("batch_rows", "Queries, inputs or changes of one batch.", "work", buckets=_POWERS_OF_TWO)
        self.work_seconds = total("work_seconds", "Time in the encoder, the index and the store.", "work")
        self.waiting = sum_of_processes("waiting", "Requests that wait for their turn.")
        self.connections = sum_of_processes("connections", "Open connections.")
        self.held_bytes = sum_of_processes("held_bytes", "Memory of the requests under way: bodies and answers.")
        self.resident_bytes = sum_of_processes("resident_bytes", "Memory of the service.")
        self.index_bytes = sum_of_processes("index_bytes", "Memory of the index.")
        self.open_descriptors = worst_process("open_descriptors", "Open files and sockets of a process.")
        self.max_descriptors = worst_process("max_descriptors", "Files and sockets that a process may have open.")
        self.rows = same_for_all("rows", "Items in the store.")
        self.disk_bytes = same_for_all("disk_bytes", "Files of the store.")
        self.log_bytes = same_for_all("log_bytes", "Log of changes (WAL) of the store.")
        self.disk_free_bytes = same_for_all("disk_free_bytes", "Free bytes of the disk that the store lies on.")
        start = Gauge(
            "hamtarget_start_time_seconds",
            "When the service began, in seconds since 1970; the uptime is time() less this.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        start.set(time.time())
        build = Gauge(
            "hamtarget_build_info",
            "1, with the versions as labels.",
            ("version", "python"),
            registry=registry,
            multiprocess_mode="livemax",
        )
        build.labels(hamtarget.__version__, platform.python_version()).set(1)

    def text(self) -> bytes:
        """Return all counters in Prometheus' text format, of all processes of the service together."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        of_all = CollectorRegistry()
        MultiProcessCollector(of_all)  # type: ignore[no-untyped-call]
        return generate_latest(of_all)
