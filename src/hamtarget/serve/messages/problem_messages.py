"""Refusals, as JSON."""

from __future__ import annotations

from pydantic import BaseModel, Field


class ErrorDetail(BaseModel):
    """The reason of a refusal."""

    kind: str
    message: str
    limit: str | None = Field(default=None, description="With `too_much`: what there is too much of.")
    value: float | None = Field(default=None, description="With `too_much`: the most of it.")
    role: str | None = Field(default=None, description="With `role`: the role that the request needs.")


class ErrorAnswer(BaseModel):
    """A refusal."""

    error: ErrorDetail
