"""What watches a service: counters that are true, and rules and a dashboard that name only what there is."""

import contextlib
import importlib.resources
import inspect
import json
import math
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from services import N_BITS, service

import hamtarget.serve
from hamtarget.serve.instruments import meters as meters_module
from hamtarget.serve.instruments.machine import (
    descriptor_limit,
    free_bytes,
    log_bytes,
    open_descriptors,
    resident_bytes,
)
from hamtarget.serve.instruments.meters import Meters
from hamtarget.store import Store

FOLDER = importlib.resources.files("hamtarget.integrations") / "monitoring"
# What Prometheus itself adds to what it scrapes.
OF_PROMETHEUS = {"up"}
# What Grafana puts in place before it asks.
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*"}


def samples(text):
    """Return the numbers of a scrape by name and labels."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode() if isinstance(text, bytes) else text)
        for sample in family.samples
    }


def families():
    """Return all families of a service, without the times of their beginning, which the library adds."""
    found = text_string_to_metric_families(Meters().text().decode())
    return [family for family in found if not family.name.endswith("_created")]


def known_names():
    """Return the names of all series that a service can have, with those of histograms and counters."""
    names = set()
    for family in families():
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {family.name + ending for ending in endings}
    return names


def alert_rules():
    return [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]


def dashboard():
    return json.loads((FOLDER / "dashboard.json").read_text())


def expressions():
    yield from ((rule["alert"], rule["expr"]) for rule in alert_rules())
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for variable, value in VARIABLES.items():
                text = text.replace(variable, value)
            yield panel["title"], text


def selectors(expression):
    """Yield (metric, labels) of every series that an expression of PromQL reads."""
    parser = pytest.importorskip("promql_parser")

    def visit(node):
        if isinstance(node, parser.VectorSelector):
            matchers = node.matchers.matchers
            yield node.name, {each.name for each in matchers}
        for name in ("lhs", "rhs", "expr", "args", "vector_selector", "param"):
            part = getattr(node, name, None)
            for each in part if isinstance(part, list) else [part]:
                if isinstance(each, parser.Expr) and each is not node:
                    yield from visit(each)

    yield from visit(parser.parse(expression))


def test_the_parser_sees_names_and_mistakes():
    parser = pytest.importorskip("promql_parser")
    found = list(selectors('histogram_quantile(0.9, sum by (le) (rate(a_bucket{x="1"}[5m]))) / b > 1'))
    assert found == [("a_bucket", {"x"}), ("b", set())]
    with pytest.raises(ValueError, match="."):
        parser.parse("sum by (le (rate(a[5m])))")


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_expression_parses_and_names_what_there_is(where, expression):
    read = list(selectors(expression))
    assert read, where
    assert {name for name, _ in read} <= known_names() | OF_PROMETHEUS
    labels = {"instance", "job", "endpoint", "status", "kind", "reason", "work", "le"}
    assert {label for _, of_one in read for label in of_one} <= labels


def test_kinds_in_rules_are_kinds_of_the_service():
    """A rule that waits for a kind which no line of the service makes would never fire."""
    package = Path(hamtarget.serve.__file__).parent
    source = "".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    made = set(re.findall(r'Problem\(\s*[\w.]+,\s*"(\w+)"', source))
    assert {"token", "role", "storage", "busy"} <= made
    for rule in alert_rules():
        for pattern in re.findall(r'kind=~?"([^"]*)"', rule["expr"]):
            for part in pattern.split("|"):
                assert any(re.fullmatch(part, kind) for kind in made), part


def test_rules_say_what_to_do():
    rules = alert_rules()
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 8
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "action"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


def test_the_dashboard_has_what_grafana_needs():
    board = dashboard()
    assert board["title"]
    assert board["uid"]
    assert board["schemaVersion"] >= 36
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "instance"}
    taken = set()
    for panel in board["panels"]:
        assert {"id", "title", "type", "gridPos", "datasource", "targets", "fieldConfig"} <= set(panel)
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert [target["refId"] for target in panel["targets"]] == ["A", "B", "C"][: len(panel["targets"])]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_dashboard_shows_every_counter():
    shown = {
        re.sub(r"_(total|bucket|sum|count)$", "", name) for _, text in expressions() for name, _ in selectors(text)
    }
    assert {family.name for family in families()} - shown == set()


def test_the_scrape_example_is_yaml():
    (job,) = yaml.safe_load((FOLDER / "scrape.yml").read_text())["scrape_configs"]
    assert job["job_name"] == "hamtarget"


def test_every_counter_is_documented():
    text = (importlib.resources.files("hamtarget") / ".." / ".." / "docs" / "service.md").read_text()
    section = text.partition("## Watching it")[2].partition("\n## ")[0]
    missing = {family.name for family in families() if f"`{family.name}" not in section}
    assert missing == set()


def codes_store(folder):
    store = Store.create(folder, n_bits=N_BITS, radius=2, durability="os")
    store.put_rows([1, 2, 3], codes=np.zeros((3, 8), np.uint8))
    return store


def test_counters_of_a_service_are_true(tmp_path):
    with service(codes_store(tmp_path / "store"), writable=True) as call:
        for _ in range(3):
            assert call.post("/v1/search", {"code": "00" * 8}).status == 200
        assert call.post("/v1/search", {"code": "zz"}).status == 422
        assert call("GET", "/v1/items/nothing").status == 404
        assert call("GET", "/v1/stats", headers={"Host": "evil.example"}).status == 421
        found = samples(call("GET", "/metrics").body)
    assert found["hamtarget_requests_total", "/v1/search", "200"] == 3
    assert found["hamtarget_requests_total", "other", "421"] == 1
    # Each refusal counts once, under its reason, wherever it was refused.
    assert {key[1]: value for key, value in found.items() if key[0] == "hamtarget_errors_total"} == {
        "input": 1,
        "not_found": 1,
        "host": 1,
    }
    assert found["hamtarget_rows",] == 3
    assert 0 < found["hamtarget_open_descriptors",] < found["hamtarget_max_descriptors",]
    assert found["hamtarget_max_descriptors",] == descriptor_limit()
    assert found["hamtarget_disk_free_bytes",] > 0
    assert found["hamtarget_disk_bytes",] > 0
    assert found["hamtarget_resident_bytes",] > 2**20
    assert found["hamtarget_log_bytes",] >= 0
    assert abs(found["hamtarget_start_time_seconds",] - time.time()) < 600
    assert [key for key in found if key[0] == "hamtarget_build_info"]


def test_what_is_not_known_is_not_a_number():
    """Else a store without a disk of its own would look like one whose disk is full."""
    found = samples(Meters().text())
    assert math.isnan(found["hamtarget_disk_free_bytes",])
    assert math.isnan(found["hamtarget_rows",])


def test_open_connections_are_counted(tmp_path):
    with service(codes_store(tmp_path / "store")) as call:

        def n_connections():
            return samples(call("GET", "/metrics").body)["hamtarget_connections",]

        with contextlib.ExitStack() as stack:
            for _ in range(5):
                idle = stack.enter_context(socket.create_connection((call.host, call.port), timeout=10))
                idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert idle.recv(100).startswith(b"HTTP/1.1 200")
            assert n_connections() == 6
        end = time.monotonic() + 10
        while n_connections() > 1:
            assert time.monotonic() < end


def test_requests_that_are_cancelled_count(tmp_path, monkeypatch):
    store = codes_store(tmp_path / "store")
    real = type(store).answer

    def slow(self, *arguments, **options):
        time.sleep(1.5)
        return real(self, *arguments, **options)

    with service(store, deadline=0.5) as call:
        monkeypatch.setattr(type(store), "answer", slow)
        assert call.post("/v1/search", {"code": "00" * 8}).status == 504
        # The deadline holds for this, too, however busy the machine is.
        end = time.monotonic() + 30
        while (answer := call("GET", "/metrics")).status != 200:
            assert time.monotonic() < end
        found = samples(answer.body)
    assert found["hamtarget_cancelled_total", "deadline"] >= 1
    assert found["hamtarget_errors_total", "deadline"] == found["hamtarget_cancelled_total", "deadline"]


def test_the_machine_is_read(tmp_path):
    before = open_descriptors()
    with open(tmp_path / "one", "wb"), open(tmp_path / "two", "wb"):
        assert open_descriptors() == before + 2
    assert resident_bytes() > 2**20
    assert free_bytes(tmp_path) > 0
    assert free_bytes(tmp_path / "nothing") is None
    assert log_bytes(tmp_path) == 0
    (tmp_path / "store.db-wal").write_bytes(bytes(77))
    assert log_bytes(tmp_path) == 77


@pytest.mark.slow
def test_several_processes_add_up(tmp_path):
    """Every gauge has a mode for several processes, and the mode gives the number that a person expects."""
    script = """
import sys
from hamtarget.serve.instruments.meters import Meters
meters = Meters()
meters.requests.labels("/v1/search", 200).inc(2)
meters.waiting.set(int(sys.argv[1])); meters.connections.set(3); meters.open_descriptors.set(int(sys.argv[1]))
meters.max_descriptors.set(100); meters.rows.set(50); meters.latency.labels("/v1/search").observe(0.1)
"""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for number in (4, 9):
        subprocess.run([sys.executable, "-c", script, str(number)], env=environment, check=True)
    read = """
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
registry = CollectorRegistry()
MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""
    told = subprocess.run([sys.executable, "-c", read], env=environment, check=True, capture_output=True, text=True)
    found = samples(told.stdout)
    assert found["hamtarget_requests_total", "/v1/search", "200"] == 4
    assert found["hamtarget_request_seconds_count", "/v1/search"] == 2
    assert found["hamtarget_waiting",] == 13
    assert found["hamtarget_connections",] == 6
    assert found["hamtarget_open_descriptors",] == 9
    assert found["hamtarget_max_descriptors",] == 100
    assert found["hamtarget_rows",] == 50
    assert [key for key in found if key[0] == "hamtarget_build_info"]
    # Without a mode, a gauge would have a line for each process.
    assert inspect.getsource(meters_module).count("Gauge(") == inspect.getsource(meters_module).count(
        "multiprocess_mode="
    )
