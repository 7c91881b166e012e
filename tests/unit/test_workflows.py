"""The workflows are checked as far as that can be done here: targets, time, rights, actions, commands."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))


def jobs(path):
    return yaml.safe_load(path.read_text("utf-8"))["jobs"]


def steps(path):
    return [step for job in jobs(path).values() for step in job.get("steps", [])]


def test_there_are_workflows():
    assert {path.stem for path in WORKFLOWS} == {"docs", "release", "soak", "test", "wheels"}
    assert {"check", "coverage", "docs", "sanitize", "test", "test-native", "test-portable", "wheels"} <= TARGETS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_targets_exist(path):
    named = [target for step in steps(path) for target in re.findall(r"\bmake ([a-z][\w-]*)", step.get("run", ""))]
    for target in named:
        # A name that goes on with ${{ matrix.part }} ends with a dash here.
        assert target in TARGETS or (target.endswith("-") and any(each.startswith(target) for each in TARGETS))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_time_and_rights_are_bounded(path):
    text = path.read_text("utf-8")
    assert "\npermissions:\n  contents: read\njobs:\n" in re.sub(r"\nconcurrency:\n(  .*\n)+", "\n", text)
    for name, job in jobs(path).items():
        assert "uses" in job or "timeout-minutes" in job, name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_job_needs_exists(path):
    named = jobs(path)
    for job in named.values():
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(named)
        used = job.get("uses")
        assert used is None or (ROOT / used).is_file()
    for step in steps(path):
        assert ("uses" in step) != ("run" in step)
        assert "uses" not in step or re.fullmatch(r"[\w.-]+/[\w./-]+@[\w./-]+", step["uses"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_take_what_others_write_from_the_environment(path):
    # A branch or a tag in ${{ ... }} would be read by the shell as part of the command.
    for step in steps(path):
        for inside in re.findall(r"\$\{\{(.*?)\}\}", step.get("run", "")):
            assert inside.strip().startswith("matrix.")
