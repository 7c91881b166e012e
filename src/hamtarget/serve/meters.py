"""Counters of a service, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_POWERS_OF_TEN = tuple(10.0**power for power in range(8))
_POWERS_OF_TWO = tuple(2.0**power for power in range(0, 15, 2))


class Meters:
    """Counters of one service; each service has its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "hamtarget_requests", "Requests answered.", ("endpoint", "status"), registry=self._registry
        )
        self.errors = Counter(
            "hamtarget_errors", "Requests refused or failed, by kind.", ("kind",), registry=self._registry
        )
        self.latency = Histogram(
            "hamtarget_request_seconds",
            "From the head of a request to the end of its answer.",
            ("endpoint",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.candidates = Histogram(
            "hamtarget_query_candidates", "Rows read for a query.", buckets=_POWERS_OF_TEN, registry=self._registry
        )
        self.comparisons = Histogram(
            "hamtarget_query_comparisons",
            "Embedding distances computed for a query.",
            buckets=_POWERS_OF_TEN,
            registry=self._registry,
        )
        self.batch = Histogram(
            "hamtarget_batch_rows",
            "Queries, inputs or changes of one batch.",
            ("work",),
            buckets=_POWERS_OF_TWO,
            registry=self._registry,
        )
        self.work_seconds = Counter(
            "hamtarget_work_seconds",
            "Time in the encoder, the index and the store.",
            ("work",),
            registry=self._registry,
        )
        self.rows = Gauge("hamtarget_rows", "Items in the store.", registry=self._registry)
        self.index_bytes = Gauge("hamtarget_index_bytes", "Memory of the index.", registry=self._registry)
        self.waiting = Gauge("hamtarget_waiting", "Requests that wait for their turn.", registry=self._registry)

    def text(self) -> bytes:
        """Return all counters in Prometheus' text format."""
        return generate_latest(self._registry)
