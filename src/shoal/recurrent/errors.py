"""The errors of this component."""

from __future__ import annotations

from shoal.core import Invalid


class BadNetwork(Invalid):
    """The file cannot be used; `where` names the node and attribute, or the tensor."""


class NotPure(Invalid):
    """A cell that is not a pure expression of its inputs; `where` names the line."""


class BadInput(Invalid):
    """An array of a call that the network cannot take."""


class TooInexact(Invalid):
    """Quantisation errs by more than was allowed."""
