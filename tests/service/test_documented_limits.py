"""The numbers of the guide are those of the settings."""

from pathlib import Path

import pytest

import hamtarget
from hamtarget.serve import ServiceSettings
from hamtarget.serve.access.tokens import MAX_TOKENS
from hamtarget.serve.instruments import readiness as readiness_module

PAGE = (Path(hamtarget.__file__).parents[2] / "docs" / "service.md").read_text()
MIB = 2**20
SETTINGS = ServiceSettings()


def section(title):
    text = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    assert text, title
    return text


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ("What it lets in", f"413 at {SETTINGS.max_body_bytes // MIB} MiB"),
        ("What it lets in", f"| {SETTINGS.max_header_bytes // 1024} KiB;"),
        ("What it lets in", f"| {SETTINGS.read_seconds:g} s each"),
        ("What it lets in", f"| {SETTINGS.max_pixels // 10**6} million pixels"),
        (
            "What it lets in",
            f"| {SETTINGS.max_queries:,} queries, {SETTINGS.max_items:,} items, {SETTINGS.max_hits:,} hits",
        ),
        ("What it lets in", f"({SETTINGS.max_items:,} with payloads)"),
        ("What it lets in", f"| {SETTINGS.max_held_bytes // MIB} MiB of bodies and answers in all"),
        ("What it lets in", f"| {SETTINGS.max_answer_bytes // MIB} MiB an answer"),
        ("What it lets in", f"{SETTINGS.max_waiting_each} requests of a client wait"),
        ("What it lets in", f"| {SETTINGS.max_waiting} wait for each thread"),
        ("What it lets in", f"{SETTINGS.max_connections:,} connections"),
        ("What it lets in", f"| {SETTINGS.deadline:g} s, then 504"),
        ("How requests become batches", f"`max_request_bytes`, {SETTINGS.max_request_bytes // MIB} MiB"),
        ("How requests become batches", f"`max_held_bytes`, {SETTINGS.max_held_bytes // MIB} MiB"),
        ("How requests become batches", f"`max_answer_bytes`, {SETTINGS.max_answer_bytes // MIB} MiB"),
        ("How requests become batches", f"`max_rows`, {SETTINGS.max_rows // 10**9} billion"),
        ("How requests become batches", f"`max_found`, {SETTINGS.max_found // 10**6} million"),
        ("How requests become batches", f"`deadline`, {SETTINGS.deadline:g} s"),
        ("Watching it", f"{SETTINGS.disk_reserve_bytes // MIB} MiB left (`disk_reserve_bytes`)"),
        ("Watching it", f"answered within {readiness_module._STORE_SECONDS:g} s"),
        ("Watching it", f"within the last {readiness_module._FAILED_SECONDS:g} s"),
        ("Tokens and roles", f"all entries ({MAX_TOKENS} at"),
    ],
)
def test_a_number_of_the_guide(title, said):
    assert said in " ".join(section(title).split())
