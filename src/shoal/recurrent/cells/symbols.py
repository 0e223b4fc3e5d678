"""Expressions of a cell: what one hidden unit computes in one step.

An expression is a node of an acyclic graph. Equal nodes are one object, so that identity is equality and a shared part
is computed once. A leaf is the input vector, a state of the step before, a parameter with one value for each unit, or a
number. `dot` is a matrix times a vector; `mean` is over all units; all else works unit by unit.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from shoal.recurrent.errors import NotPure

UNARY = ("neg", "abs", "exp", "log", "sqrt", "sigmoid", "tanh")
BINARY = ("add", "sub", "mul", "div", "max", "min")
LEAVES = ("input", "state", "parameter", "number")
ARITY = {**dict.fromkeys(LEAVES, 0), **dict.fromkeys(UNARY, 1), **dict.fromkeys(BINARY, 2)} | {
    "where": 4,  # (a, b, c, d): c where a > b, else d; d where a or b is not a number
    "dot": 1,
    "mean": 1,
}

HIDDEN, PROJECTION = "hidden", "projection"
"""The spaces of units: a cell with a projection has fewer units in its output than in its gates."""


class Expression:
    """One node. Made by the functions of this module and by operators, never directly."""

    __slots__ = ("args", "name", "op", "space", "value")
    __array_ufunc__ = None  # NumPy's operators leave it to this class, and its functions refuse it

    op: str
    args: tuple[Expression, ...]
    name: str
    value: float
    space: str

    def __add__(self, other: Any) -> Expression:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Expression:
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return binary("div", other, self)

    def __neg__(self) -> Expression:
        return unary("neg", self)

    def __abs__(self) -> Expression:
        return unary("abs", self)

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotPure("a symbol has no value while the cell is traced", hint="use where(a, b, c, d) for a choice")

    __bool__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __array__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = _refuse

    def __repr__(self) -> str:
        return text_of(self)


_KNOWN: dict[tuple[Any, ...], Expression] = {}


def make(op: str, args: Sequence[Expression] = (), name: str = "", value: float = 0.0, space: str = "") -> Expression:
    """The one node of this description."""
    key = (op, tuple(map(id, args)), name, repr(value), space)
    found = _KNOWN.get(key)
    if found is None:
        found = object.__new__(Expression)
        found.op, found.args, found.name, found.value, found.space = op, tuple(args), name, value, space
        _KNOWN[key] = found
    return found


def lift(value: Any) -> Expression:
    """An operand as an expression. Raises NotPure for what is neither one nor a number."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return make("number", value=float(value))
    raise NotPure(f"{type(value).__name__} is neither an expression nor a number")


def unary(op: str, a: Any) -> Expression:
    return make(op, (lift(a),))


def binary(op: str, a: Any, b: Any) -> Expression:
    return make(op, (lift(a), lift(b)))


def exp(a: Any) -> Expression:
    """e to the power of a."""
    return unary("exp", a)


def log(a: Any) -> Expression:
    """The natural logarithm."""
    return unary("log", a)


def sqrt(a: Any) -> Expression:
    """The square root."""
    return unary("sqrt", a)


def sigmoid(a: Any) -> Expression:
    """1 / (1 + exp(-a))."""
    return unary("sigmoid", a)


def tanh(a: Any) -> Expression:
    """The hyperbolic tangent."""
    return unary("tanh", a)


def relu(a: Any) -> Expression:
    """a where it is positive, else 0."""
    return where(0.0, a, 0.0, a)  # so that what is not a number stays so


def maximum(a: Any, b: Any) -> Expression:
    """The larger of both."""
    return binary("max", a, b)


def minimum(a: Any, b: Any) -> Expression:
    """The smaller of both."""
    return binary("min", a, b)


def where(a: Any, b: Any, c: Any, d: Any) -> Expression:
    """c where a > b, else d."""
    return make("where", tuple(map(lift, (a, b, c, d))))


def mean(a: Any) -> Expression:
    """The mean over all units."""
    return make("mean", (lift(a),))


def dot(name: str, vector: Expression, space: str = HIDDEN) -> Expression:
    """The matrix `name` times a vector; one value for each unit of `space`."""
    return make("dot", (vector,), name, space=space)


def parameter(name: str) -> Expression:
    """One learnt value for each unit."""
    return make("parameter", name=name)


def linear(name: str, *vectors: Expression, bias: bool = True) -> Expression:
    """The gate `name` before its activation: a matrix times each vector, and a bias. The matrices are called
    `NAME.VECTOR` for the input and for states, `NAME.1`, `NAME.2` ... for computed vectors; the bias `NAME.b`."""
    total: Expression | None = parameter(f"{name}.b") if bias else None
    computed = 0
    for vector in vectors:
        if lift(vector).op not in ("input", "state"):
            computed += 1
        label = vector.name if vector.op in ("input", "state") else str(computed)
        product = dot(f"{name}.{label}", vector)
        total = product if total is None else total + product
    if total is None:
        raise NotPure(f"the gate {name!r} is linear in nothing")
    return total


def walk(roots: Iterable[Expression], known: Container[Expression] = ()) -> list[Expression]:
    """All nodes below the roots, each once, arguments first. What is below a node that is `known` is left out."""
    done: dict[Expression, None] = {}
    left = [(root, False) for root in reversed(list(roots))]
    while left:
        node, ready = left.pop()
        if node in done:
            continue
        if ready:
            done[node] = None
        else:
            left.append((node, True))
            if node not in known:
                left += [(arg, False) for arg in reversed(node.args)]
    return list(done)


def text_of(node: Expression, names: Mapping[Expression, str] = MappingProxyType({})) -> str:
    """The expression as a person writes it; nodes with a name are called by it."""
    if node in names:
        return names[node]
    args = [text_of(arg, names) for arg in node.args]
    signs = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
    match node.op:
        case "number":
            return f"{node.value:g}"
        case "input" | "state" | "parameter":
            return node.name
        case "dot":
            return f"{node.name}·{args[0]}"
        case op if op in signs:
            return f"({args[0]} {signs[op]} {args[1]})"
        case "where":
            return f"({args[2]} if {args[0]} > {args[1]} else {args[3]})"
    return f"{node.op}({', '.join(args)})"


def to_json(roots: Mapping[str, Expression]) -> dict[str, Any]:
    """The graph as a list of nodes that name their arguments by position."""
    nodes = walk(roots.values())
    at = {node: index for index, node in enumerate(nodes)}
    return {
        "nodes": [[node.op, [at[arg] for arg in node.args], node.name, node.value, node.space] for node in nodes],
        "roots": {name: at[root] for name, root in roots.items()},
    }


def from_json(data: Any) -> dict[str, Expression]:
    """The graph that `to_json` wrote. Raises NotPure for anything else."""
    made: list[Expression] = []
    try:
        for op, args, name, value, space in data["nodes"]:
            if ARITY.get(op) != len(args) or not isinstance(name, str) or space not in ("", HIDDEN, PROJECTION):
                raise NotPure(f"node {len(made)} is no node of a cell", where="cell")
            if any(not 0 <= at < len(made) for at in args):
                raise NotPure(f"node {len(made)} uses one that does not come before it", where="cell")
            made.append(make(op, [made[at] for at in args], name, float(value), space))
        return {str(name): made[int(at)] for name, at in data["roots"].items() if int(at) >= 0}
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise NotPure(f"this is no cell: {error!r}", where="cell") from None
