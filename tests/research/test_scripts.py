"""Every script of research/ starts as research/README.md says, and explains itself."""

import importlib
import re
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
README = REPOSITORY / "research" / "README.md"


def scripts():
    """Return the names of all modules below research that can be started."""
    return sorted(
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        for path in (REPOSITORY / "research").rglob("*.py")
        if 'if __name__ == "__main__"' in path.read_text("utf-8") and path.name != "__main__.py"
    )


@pytest.mark.parametrize("script", scripts())
def test_a_script_explains_itself(script, monkeypatch, capsys):
    # One script sets these for itself; afterwards they are as they were.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(script).main()
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_the_page_names_every_script():
    text = README.read_text("utf-8")
    assert [script for script in scripts() if f"python -m {script}" not in text] == []


def test_the_page_names_no_other_script():
    named = set(re.findall(r"python -m (research\.[a-z0-9_.]+)", README.read_text("utf-8")))
    assert named <= set(scripts())
