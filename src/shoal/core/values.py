"""Dataclasses whose methods are made when they are first called.

Python before 3.13 writes and compiles the text of six methods for each frozen dataclass as it is defined: 1.2 ms each,
and a server defines 350 before it answers. Here `__init__` alone is compiled, at its first use; the others are closures
over the names of the fields. What is defined is a dataclass in every respect: `fields`, `replace`, `asdict`, slots,
order and equality of types are `dataclasses`' own work.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """As `dataclasses.dataclass`, with `frozen`, `eq`, `order`, `slots` and `kw_only`, without `InitVar`.

        A frozen class that is made by the one does not inherit from one that is made by the other.
        """
        return (lambda one: _made(one, **options)) if cls is None else _made(cls, **options)


_Method = Callable[..., Any]
_set = object.__setattr__


_ORDER = {"__lt__": operator.lt, "__le__": operator.le, "__gt__": operator.gt, "__ge__": operator.ge}


def _made(
    cls: type[Any], *, frozen: bool = False, eq: bool = True, order: bool = False, slots: bool = False,
    kw_only: bool = False,
) -> type[Any]:  # fmt: skip
    cls.__doc__ = cls.__doc__ or cls.__name__  # else it is composed of the signature
    own = set(vars(cls))
    hashed = vars(cls).get("__hash__") is not None  # Python sets None beside an own `__eq__`
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    found = dataclasses.fields(made)
    methods: dict[str, Any] = {"__init__": _Init(made, frozen)}
    if "__repr__" not in own:
        methods["__repr__"] = _shown([one.name for one in found if one.repr])
    compared = _tuple_of([one.name for one in found if one.compare])
    if eq and "__eq__" not in own:
        methods["__eq__"] = _compared(compared, operator.eq)
    if order:
        methods |= {name: _compared(compared, holds) for name, holds in _ORDER.items()}
    if eq and not hashed:
        kept = [one.name for one in found if (one.compare if one.hash is None else one.hash)]
        methods["__hash__"] = _hashed(_tuple_of(kept)) if frozen else None
    if frozen:
        methods |= _kept(made, frozenset(one.name for one in found))
    if frozen and slots:
        methods |= {name: method for name, method in _STATE.items() if name not in own}
    for name, method in methods.items():
        setattr(made, name, method)
    return made


class _Init:
    """`__init__` until it is asked for, which puts the compiled one in its place."""

    def __init__(self, owner: type[Any], frozen: bool) -> None:
        self._owner = owner
        self._frozen = frozen

    def __get__(self, instance: object, _: type[Any] | None = None) -> _Method:
        method = _init_of(self._owner, self._frozen)
        self._owner.__init__ = method  # type: ignore[misc]
        bound: _Method = method.__get__(instance) if instance is not None else method
        return bound


def _init_of(cls: type[Any], frozen: bool) -> _Method:
    given: dict[str, Any] = {"_set": _set, "_absent": dataclasses.MISSING}
    positional, keyword, body = [], [], []
    for one in dataclasses.fields(cls):
        default = f"_of_{one.name}"
        value, parameter = one.name, one.name
        if one.default_factory is not dataclasses.MISSING:
            given[default] = one.default_factory
            parameter = f"{one.name}=_absent"
            value = f"{default}() if {one.name} is _absent else {one.name}" if one.init else f"{default}()"
        elif one.default is not dataclasses.MISSING:
            given[default] = one.default
            parameter = f"{one.name}={default}"
            value = one.name if one.init else default
        elif not one.init:
            continue
        body.append(f"  _set(self, {one.name!r}, {value})" if frozen else f"  self.{one.name} = {value}")
        if one.init:
            (keyword if one.kw_only else positional).append(parameter)
    if hasattr(cls, "__post_init__"):
        body.append("  self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *keyword] if keyword else [])])
    names = ", ".join(given)
    text = "\n".join(
        [f"def make({names}):", f" def __init__({parameters}):", *(body or ["  pass"]), " return __init__"]
    )
    scope: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), scope)  # noqa: S102  # of the names of fields alone, as Python does it
    method: _Method = scope["make"](**given)
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    method.__annotations__ = {one.name: one.type for one in dataclasses.fields(cls) if one.init} | {"return": None}
    return method


def _tuple_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    if not names:
        return lambda _: ()
    (name,) = names
    return lambda value: (getattr(value, name),)


def _compared(values: Callable[[Any], tuple[Any, ...]], holds: Callable[[Any, Any], bool]) -> _Method:
    def method(self: Any, other: Any) -> bool:
        return holds(values(self), values(other)) if other.__class__ is self.__class__ else NotImplemented

    return method


def _hashed(values: Callable[[Any], tuple[Any, ...]]) -> _Method:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _shown(names: Sequence[str]) -> _Method:
    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _kept(cls: type[Any], names: frozenset[str]) -> dict[str, _Method]:
    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _restore(self: Any, state: Sequence[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        _set(self, one.name, value)


_STATE: dict[str, _Method] = {"__getstate__": _state, "__setstate__": _restore}
