"""Endpoints of groups."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hamtarget.serve import group_messages as messages
from hamtarget.serve.answers import AnswerBody, groups_body, members_body
from hamtarget.serve.bodies import read_json
from hamtarget.serve.openapi import ERRORS, json_body
from hamtarget.serve.service import Service


def group_routes(service: Service) -> APIRouter:
    """Return the routes of /v1/groups."""
    router = APIRouter(prefix="/v1", tags=["groups"], responses=ERRORS)

    @router.post("/groups", response_model=messages.GroupsAnswer, openapi_extra=json_body(messages.GroupsRequest))
    async def groups(request: Request) -> Response:
        """List groups of near duplicates, largest first; 503 while they are made for the first time."""
        asker = service.asker(request)
        asked = await read_json(request, messages.GroupsRequest, asker)
        found = await service.groups(asked, asker)
        n_members = sum(len(group.members) for group in found.groups.groups)
        return AnswerBody(await service.written(asker, partial(groups_body, found), n_members))

    @router.post(
        "/groups/members",
        response_model=messages.GroupMembersAnswer,
        openapi_extra=json_body(messages.GroupMembersRequest),
    )
    async def group_members(request: Request) -> Response:
        """List members of a group, the representative first, then those nearest to it."""
        asker = service.asker(request)
        asked = await read_json(request, messages.GroupMembersRequest, asker)
        found = await service.group_members(asked, asker)
        return AnswerBody(await service.written(asker, partial(members_body, found), len(found.members)))

    return router
