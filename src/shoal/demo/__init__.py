"""`shoal demo`: three tenants train thirteen real models, a fourth serves two, and the server is killed.

The demo starts a server of its own in a fresh directory, and plays a fixed scenario against it through the
interfaces that users have (HTTP, SDK, tokens). It judges the outcome by what the workloads recorded themselves, not by
what the server says. Its parts: `scenario` is the cast, `acts` the plot, `serving` and `isolation` what is measured
meanwhile, `stage` the server process, `evidence` the independent checker, `report` the result, `screen` the output.

Adding to it: append a function to `acts.ACTS`; it gets the running `Demo` and adds keys and checks to its report.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.demo.run import run_demo

__all__ = ["run_demo"]

__getattr__ = on_first_use(globals(), {"run": "run_demo"})
