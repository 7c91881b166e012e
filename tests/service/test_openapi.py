"""Random requests by the service's own OpenAPI document: none of them makes it fail."""

import os

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode
from services import service

from hamtarget.serve.demo_store import demo_encoder
from hamtarget.store import Store

# Requests of each kind for each endpoint; more before a release.
EXAMPLES = int(os.environ.get("HAMTARGET_EXAMPLES", "12"))


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """The document of a writable service of images."""
    store = Store.create(tmp_path_factory.mktemp("any") / "store", encoder=demo_encoder(), radius=2, durability="os")
    store.put_rows([1, "a"], codes=np.zeros((2, 8), np.uint8), payloads=[{"image": "x.png"}, None])
    with service(store, writable=True) as call:
        yield schemathesis.openapi.from_url(f"{call.address}openapi.json")


def ask(operation, mode):
    """Statuses of random requests to one endpoint, as the document allows them or as it forbids them."""
    statuses = []

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def send(case):
        response = case.call()
        assert response.status_code < 500, f"{case.as_curl_command()}\n{response.text}"
        assert "Traceback" not in response.text
        statuses.append(response.status_code)

    send()
    return statuses


def test_no_request_that_is_allowed_makes_the_service_fail(described):
    tried = {each.ok().label: ask(each.ok(), GenerationMode.POSITIVE) for each in described.get_all_operations()}
    assert len(tried) >= 11
    assert all(tried.values())
    # Not all is refused: the document says what the service takes.
    for label in ("GET /v1/stats", "POST /v1/search"):
        assert 200 in tried[label], tried


def test_no_request_that_is_forbidden_makes_the_service_fail(described):
    tried = 0
    for each in described.get_all_operations():
        # An endpoint that takes nothing cannot be asked wrongly.
        if each.ok().body or each.ok().query:
            tried += len(ask(each.ok(), GenerationMode.NEGATIVE))
    assert tried >= 8 * EXAMPLES // 2
