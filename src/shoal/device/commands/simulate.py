"""`shoal device simulate`: ways of sharing a device against each other, without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import CommandContext, JsonFlag, guarded
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.device.simulate import Outcome


def register(app: typer.Typer) -> None:
    app.command("simulate")(simulate)


def simulate(
    mix: Annotated[
        list[str] | None,
        typer.Option("--mix", "-m", help="SERVICE+TRAINING, as bert+whisper-v3-train (repeat it); else one of each."),
    ] = None,
    load: Annotated[
        list[float] | None, typer.Option("--load", "-l", help="Of the service alone, 0 to 1 (repeat it); else 0.5.")
    ] = None,
    system: Annotated[
        list[str] | None, typer.Option("--system", "-s", help="Only these ways of sharing (repeat it); else all.")
    ] = None,
    requests: Annotated[int, typer.Option("--requests", min=1, help="For each.")] = 300,
    seed: Annotated[int, typer.Option("--seed", help="Of kernels and arrivals.")] = 1,
    json: JsonFlag = False,
) -> None:
    """Compare ways of sharing a device, in simulation: nothing runs, and no device is needed.

    Requests arrive in an open loop. Their latency counts from arrival. The gate's decisions are those of the library
    that programs run with.
    """
    context = CommandContext(json, None, None)

    def act() -> None:
        from shoal.device.simulate import DIAGONAL, SYSTEMS, compare

        found = list(
            compare(
                [_mix(one) for one in mix] if mix else DIAGONAL,
                loads=load or (0.5,),
                systems=system or SYSTEMS,
                seed=seed,
                requests=requests,
            )
        )
        context.show([one.as_json() for one in found], lambda: _table(found))

    guarded(context, act)


def _mix(text: str) -> tuple[str, str]:
    service, plus, training = text.partition("+")
    if not plus:
        raise Invalid(f"{text!r} names no pair", where="--mix", hint="SERVICE+TRAINING, as bert+whisper-v3-train")
    return service, training


def _table(found: Sequence[Outcome]) -> None:
    from shoal.base.console import output
    from shoal.device.simulate import SIMULATED

    output.put(
        output.table(
            ("service", "training", "load", "system", "p99 ms", "p99 overhead", "service time", "training"),
            [
                (
                    one.service, one.training, f"{one.load:g}", one.system, f"{one.p99_ms:.2f}",
                    f"{100 * one.p99_overhead:.1f} %", f"{100 * one.p99_service_overhead:.1f} %",
                    f"{one.throughput:.2f}",
                )
                for one in found
            ],
        )
    )  # fmt: skip
    print(SIMULATED)
