"""Roles that endpoints need: every endpoint is here, and an application with another one does not start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hamtarget.serve.access.tokens import ROLES, Role

ITEMS_PATH = "/v1/items/"
GROUP_PATHS = ("/v1/groups", "/v1/groups/members")
# Needs no token: the page that asks for it, and the checks that the service lives.
OPEN_PATHS = frozenset({"/", "/docs", "/healthz", "/readyz", "/favicon.ico"})
OPEN_PREFIX = "/page/"

_ROLES: dict[tuple[str, str], Role] = {
    ("GET", "/metrics"): "read",
    ("GET", "/openapi.json"): "read",
    ("HEAD", "/openapi.json"): "read",
    ("GET", "/v1/stats"): "read",
    ("GET", "/v1/map"): "read",
    ("POST", "/v1/search"): "read",
    ("POST", "/v1/nearest"): "read",
    ("POST", "/v1/probe"): "read",
    ("POST", "/v1/match"): "read",
    ("POST", "/v1/search/batch"): "read",
    ("POST", "/v1/nearest/batch"): "read",
    ("POST", "/v1/probe/batch"): "read",
    ("POST", "/v1/groups"): "read",
    ("POST", "/v1/groups/members"): "read",
    ("PUT", "/v1/items"): "write",
    # Whatever lies below /v1/items/.
    ("GET", ITEMS_PATH): "read",
    ("DELETE", ITEMS_PATH): "write",
}
_RANK = {role: rank for rank, role in enumerate(ROLES)}


def is_open(path: str) -> bool:
    """Return True for what needs no token."""
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIX)


def needed_role(method: str, path: str) -> Role | None:
    """Return the role that a request needs; None where there is no such endpoint."""
    return _ROLES.get((method, ITEMS_PATH if path.startswith(ITEMS_PATH) else path))


def allows(role: Role, needed: Role) -> bool:
    """Return True if a role allows what another one does."""
    return _RANK[role] >= _RANK[needed]


def check_roles(routes: Iterable[Any]) -> None:
    """Check that every endpoint has a role, so that a new one is not open by mistake.

    Raises:
        TypeError: an endpoint has none.
    """
    for route in routes:
        for method in route.methods:
            if not is_open(route.path) and needed_role(method, route.path) is None:
                raise TypeError(f"{method} {route.path} has no role; add it to hamtarget/serve/access/roles.py")
