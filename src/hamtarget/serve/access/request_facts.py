"""Facts of one request, kept in its scope: who asks, and how much work the answer took."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Scope

from hamtarget.serve.access.tokens import Role

_FACTS = "hamtarget_facts"
_CLIENT = "hamtarget_client"


@dataclass(slots=True)
class RequestFacts:
    """Facts of one request.

    Attributes:
        id: the request's id, in its answer and in the access log.
        client: name of the token, or the address of the peer where no token is needed.
        role: role of the token; None where no token is needed.
        error: kind of the refusal or failure, if it is one.
        rows: rows that were read for the answer.
        hits: hits in the answer.
    """

    id: str = ""
    client: str = ""
    role: Role | None = None
    error: str | None = None
    rows: int = 0
    hits: int = 0


def put_facts(scope: Scope, facts: RequestFacts) -> None:
    """Put the facts of a request into its scope, and the client's name beside them."""
    state = scope.setdefault("state", {})
    state[_FACTS] = facts
    state[_CLIENT] = facts.client


def facts_of(scope: Scope) -> RequestFacts:
    """Return the facts of a request; what is set there is in the access log."""
    facts: RequestFacts = scope.setdefault("state", {}).setdefault(_FACTS, RequestFacts())
    return facts
