"""The help of the whole command: all verbs on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from hamtarget.cli.terminal.failures import CommandGroup

_GAP = "  "
_COLUMNS = 80


class GroupedCommands(CommandGroup):
    """Verbs that the help shows in groups, by their `rich_help_panel`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without boxes, so that all verbs fit on a screen of 24 lines and 80 columns."""
        # Printed at once, as typer prints every help that rich draws.
        typer.echo("\n".join(self._help_lines(ctx)))

    def _help_lines(self, ctx: Any) -> Iterator[str]:
        options = [parameter.opts[-1] for parameter in self.get_params(ctx) if parameter.opts[0].startswith("-")]
        yield f"Usage: {ctx.command_path} [{'|'.join(options)}] VERB"
        yield self.help or ""
        panels = {name: getattr(command, "rich_help_panel", None) for name, command in self.commands.items()}
        width = max(map(len, self.commands), default=0)
        # Of a panel, the first verb stands in the line of its name.
        indent = max((len(panel) for panel in panels.values() if isinstance(panel, str)), default=0)
        before: object = None
        for name, command in self.commands.items():
            panel = panels[name]
            heading = panel if isinstance(panel, str) and panel != before else ""
            before = panel
            told = command.get_short_help_str(limit=_COLUMNS - indent - width - 2 * len(_GAP))
            yield f"{typer.style(heading.ljust(indent), bold=True)}{_GAP}{name:<{width}}{_GAP}{told}"
        if self.epilog:
            yield self.epilog
