"""The help of the whole command: all verbs on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from hamtarget.cli.terminal.failures import CommandGroup

_INDENT = "  "


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
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        width = max(map(len, shown), default=0)
        panel = None
        for name, command in shown.items():
            own = getattr(command, "rich_help_panel", None)
            if isinstance(own, str) and own != panel:
                panel = own
                yield typer.style(own, bold=True)
            yield f"{_INDENT}{name:<{width}}  {command.get_short_help_str(limit=80 - width - 4)}"
        if self.epilog:
            yield self.epilog
