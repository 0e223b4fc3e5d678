"""Exact placement: where each step of a graph of work runs, so that work and copies together take the least time.

After the task assignment by minimum cut of Stone (1977), with outputs that are copied once however many consumers they
have. Two sites are solved exactly by one cut; more by dynamic programming where the graph has no cycle, and else by
alpha-expansion with a lower bound. It is pure: it takes times and sizes, and answers an assignment with its reasons.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.placement.graph import Graph, Link, Node
    from shoal.placement.pipeline import PipelinedPlacement, place_pipelined
    from shoal.placement.solve import Placement, place, short_time

__all__ = ["Graph", "Link", "Node", "PipelinedPlacement", "Placement", "place", "place_pipelined", "short_time"]

__getattr__ = on_first_use(globals(), {
    "graph": "Graph Link Node",
    "pipeline": "PipelinedPlacement place_pipelined",
    "solve": "Placement place short_time",
})  # fmt: skip
