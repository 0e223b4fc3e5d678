"""Dataclasses whose methods are made when they are first called.

Python before 3.13 writes and compiles the text of six methods for each frozen dataclass as it is defined: 1.2 ms each,
and a server defines 350 before it answers. Here each is compiled at its first use, if it has one; those that are seldom
called are closures over the names of the fields. What is defined is a dataclass in every respect: `fields`, `replace`,
`asdict`, slots and what a class inherits are `dataclasses`' own work.
"""

from __future__ import annotations

import dataclasses
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
_ORDER = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


def _made(
    cls: type[Any], *, frozen: bool = False, eq: bool = True, order: bool = False, slots: bool = False,
    kw_only: bool = False,
) -> type[Any]:  # fmt: skip
    cls.__doc__ = cls.__doc__ or cls.__name__  # else it is composed of the signature
    own = set(vars(cls))
    hashed = vars(cls).get("__hash__") is not None  # Python sets None beside an own `__eq__`
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    found = dataclasses.fields(made)
    methods: dict[str, Any] = {"__init__": _Later(made, "__init__", lambda: _init_of(made, frozen))}
    compared = [one.name for one in found if one.compare]
    signs = {**({"__eq__": "=="} if eq and "__eq__" not in own else {}), **(_ORDER if order else {})}
    for name, sign in signs.items():
        methods[name] = _Later(made, name, partial(_comparison, made, name, sign, compared))
    if eq and not hashed:
        kept = [one.name for one in found if (one.compare if one.hash is None else one.hash)]
        methods["__hash__"] = _Later(made, "__hash__", partial(_hash_of, made, kept)) if frozen else None
    if "__repr__" not in own:
        methods["__repr__"] = _shown([one.name for one in found if one.repr])
    if frozen:
        methods |= _kept(made, frozenset(one.name for one in found))
    if frozen and slots:
        methods |= {name: method for name, method in _STATE.items() if name not in own}
    for name, method in methods.items():
        setattr(made, name, method)
    return made


class _Later:
    """A method until it is first asked for, which puts the compiled one in its place."""

    def __init__(self, owner: type[Any], name: str, make: Callable[[], _Method]) -> None:
        self._owner = owner
        self._name = name
        self._make = make

    def __get__(self, instance: object, _: type[Any] | None = None) -> _Method:
        method = self._make()
        setattr(self._owner, self._name, method)
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
        body.append(f"_set(self, {one.name!r}, {value})" if frozen else f"self.{one.name} = {value}")
        if one.init:
            (keyword if one.kw_only else positional).append(parameter)
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ["self", *positional, *(["*", *keyword] if keyword else [])]
    method = _compiled(cls, "__init__", parameters, body or ["pass"], given)
    method.__annotations__ = {one.name: one.type for one in dataclasses.fields(cls) if one.init} | {"return": None}
    return method


def _comparison(cls: type[Any], name: str, sign: str, fields: Sequence[str]) -> _Method:
    values = f"{_tuple_of('self', fields)} {sign} {_tuple_of('other', fields)}"
    body = f"return {values} if other.__class__ is self.__class__ else NotImplemented"
    return _compiled(cls, name, ["self", "other"], [body])


def _hash_of(cls: type[Any], fields: Sequence[str]) -> _Method:
    return _compiled(cls, "__hash__", ["self"], [f"return hash({_tuple_of('self', fields)})"])


def _tuple_of(whose: str, fields: Sequence[str]) -> str:
    return f"({''.join(f'{whose}.{name}, ' for name in fields)})"


def _compiled(
    cls: type[Any], name: str, parameters: Sequence[str], body: Sequence[str], given: Mapping[str, Any] | None = None
) -> _Method:
    """Of the names of fields alone, as Python does it."""
    lines = [f"def make({', '.join(given or ())}):", f" def {name}({', '.join(parameters)}):"]
    text = "\n".join([*lines, *(f"  {line}" for line in body), f" return {name}"])
    scope: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), scope)  # noqa: S102
    method: _Method = scope["make"](**(given or {}))
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method


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
