"""Groups of commands that know what the user may have meant."""

import difflib
from collections.abc import Iterable
from typing import Any

from typer.core import TyperGroup

from siltstone.errors import UsageError


class CommandGroup(TyperGroup):
    """A command with commands of its own; alone it shows its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args[0] not in known:
            raise UsageError(f"unknown command {args[0]}{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Complete a message with the nearest known name, if one is near."""
    nearest = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {nearest[0]}?" if nearest else ""
