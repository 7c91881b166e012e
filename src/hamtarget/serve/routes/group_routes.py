"""Endpoints of groups."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hamtarget.serve.messages.answer_bodies import AnswerBody, groups_body, members_body
from hamtarget.serve.messages.group_messages import GroupMembersAnswer, GroupMembersRequest, GroupsAnswer, GroupsRequest
from hamtarget.serve.messages.openapi import ERRORS, json_body
from hamtarget.serve.messages.request_bodies import read_json
from hamtarget.serve.service import Service


def group_routes(service: Service) -> APIRouter:
    """Return the routes of /v1/groups."""
    router = APIRouter(prefix="/v1", tags=["groups"], responses=ERRORS)

    @router.post("/groups", response_model=GroupsAnswer, openapi_extra=json_body(GroupsRequest))
    async def groups(request: Request) -> Response:
        """List groups of near duplicates, largest first; 503 while they are made for the first time."""
        asker = service.asker(request)
        asked = await read_json(request, GroupsRequest, asker)
        found = await service.groups(asked, asker)
        n_members = sum(len(group.members) for group in found.groups.groups)
        return AnswerBody(await service.written(asker, partial(groups_body, found), n_members))

    @router.post(
        "/groups/members",
        response_model=GroupMembersAnswer,
        openapi_extra=json_body(GroupMembersRequest),
    )
    async def group_members(request: Request) -> Response:
        """List members of a group, the representative first, then those nearest to it."""
        asker = service.asker(request)
        asked = await read_json(request, GroupMembersRequest, asker)
        found = await service.group_members(asked, asker)
        return AnswerBody(await service.written(asker, partial(members_body, found), len(found.members)))

    return router
