"""Commands that take another command's line behind `--`."""

from __future__ import annotations

from typing import Any

from shoal.base.console.quick import QuickCommand


class WithLine(QuickCommand):
    """All that follows `--` is the command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        left: list[str] = super().parse_args(ctx, args[:at])
        ctx.params["line"] = args[at + 1 :]
        return left

    def make_parser(self, ctx: Any) -> Any:
        parser = super().make_parser(ctx)
        del parser._long_opt["--line"]  # nobody types it
        return parser

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return ["[OPTIONS]", "JOB -- COMMAND..."]
