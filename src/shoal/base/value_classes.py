"""Dataclasses are made in less time: a server defines some 350 of them before it answers, a short command a hundred.

Python before 3.13 writes the text of each method of each dataclass and compiles it, six times a class: a fifth of a
start. Here comparison, hash, representation and the refusal to change are closures over the fields' names, which do the
same. `__init__` is still compiled, for it has its own parameters.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

Method = Callable[..., Any]


def made_quickly() -> None:
    """For a program of ours, before it imports what defines dataclasses. Python 3.13 needs none of this."""
    if sys.version_info >= (3, 13):
        return
    made = {"_cmp_fn": _compared, "_hash_fn": _hashed, "_repr_fn": _shown, "_frozen_get_del_attr": _kept}
    if all(hasattr(dataclasses, name) for name in made):
        vars(dataclasses).update(made)


def _tuple_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    if not names:
        return lambda _: ()
    (name,) = names
    return lambda value: (getattr(value, name),)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _compared(name: str, op: str, self_tuple: str, _other: str, **_: object) -> Method:
    """`self_tuple` is `(self.x,self.y,)`: Python tells the fields as the text that it would compile."""
    values = _tuple_of([word.removeprefix("self.") for word in self_tuple.strip("()").split(",") if word])
    holds = _OPERATORS[op]

    def method(self: Any, other: Any) -> Any:
        return holds(values(self), values(other)) if other.__class__ is self.__class__ else NotImplemented

    method.__name__ = name
    return method


def _hashed(fields: Sequence[dataclasses.Field[Any]], _: object) -> Method:
    values = _tuple_of([field.name for field in fields])

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _shown(fields: Sequence[dataclasses.Field[Any]], _: object) -> Method:
    names = [field.name for field in fields]

    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    shown: Method = dataclasses._recursive_repr(__repr__)  # type: ignore[attr-defined]
    return shown


def _kept(cls: type[Any], fields: Sequence[dataclasses.Field[Any]], _: object) -> tuple[Method, Method]:
    names = frozenset(field.name for field in fields)

    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__
