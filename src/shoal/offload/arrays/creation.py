"""Makes large new arrays tracked: the functions of NumPy that create them, and its random number generators."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from inspect import signature
from types import FunctionType
from typing import Any

import numpy as np
from numpy._core.overrides import ARRAY_FUNCTIONS

from shoal.offload.arrays.lazy import Lazy
from shoal.offload.arrays.results import KINDS
from shoal.offload.arrays.state import is_program, state
from shoal.offload.arrays.tracked import Guarded, Tracked, escaping, memory, plain, strip

_Dispatcher: Any = type(np.sum)

_FRESH = (
    "zeros", "ones", "empty", "full", "arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri",
    "fromfunction", "fromiter", "fromstring", "loadtxt", "genfromtxt", "load", "meshgrid", "indices", "copy",
    "concatenate", "stack", "vstack", "hstack", "tile", "repeat",
)  # fmt: skip
"""Functions that give new arrays. Those that are like a captured one are called through its class."""

_CONVERTING = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "require",
               "asarray_chkfinite")  # fmt: skip
"""Functions that give a new array or their argument: a pending one is computed first."""

_PATIENCE = 10_000
"""Creations without a large array after which the functions of NumPy are put back: this program has none."""

_LISTS = 1000
"""Small lists that one function made arrays of, one after the other, after which it is put back: to make one takes as
long as its wrapper."""

_SHORTEST_ROW = 2048
"""Elements of a row below which an array of several dimensions is left alone: programs loop over the rows of tables,
and an operation on a short row of a tracked array takes twice as long."""

_DRAWS = (
    "random", "uniform", "normal", "standard_normal", "integers", "exponential", "standard_exponential", "poisson",
    "gamma", "standard_gamma", "beta", "binomial", "choice", "lognormal", "laplace", "logistic", "chisquare",
    "triangular", "weibull", "permutation", "permuted", "shuffle", "geometric", "gumbel", "pareto", "power",
    "rayleigh", "standard_t", "wald",
)  # fmt: skip
_LEGACY = ("rand", "randn", "randint", "random_sample")
_SMALL_DRAWS = 200
"""Small draws by one method after which its calls of this generator are left alone."""


def own(result: Any) -> Any:
    """A large array as a tracked one, if nothing else holds it and the program itself asked for it."""
    kind = type(result)
    if kind is np.ndarray:
        # references: the wrapper's variable, the one here, and the argument
        if result.size < state.threshold or sys.getrefcount(result) > 4 or result.dtype.char not in KINDS:
            return result
        if 0 < _row(result) < min(_SHORTEST_ROW, state.threshold):
            return result
        if result.base is None:
            return result.view(Tracked)
        if _only_view(result):
            return result.base.view(Tracked).reshape(result.shape)
    elif kind is list or kind is tuple:
        return kind(map(own, result))
    return result


def _row(array: np.ndarray) -> int:
    """The elements of one row, as a loop over the array gives it; 0 where it gives single numbers."""
    return array.size // array.shape[0] if array.ndim > 1 else 0


def _only_view(array: np.ndarray) -> bool:
    """Whether it is all of another array's memory, in its order, and nothing else has that."""
    base = array.base
    if type(base) is not np.ndarray or base.base is not None or sys.getrefcount(base) > 3:  # the array's, two here
        return False
    return base.nbytes == array.nbytes and base.dtype == array.dtype and array.flags.c_contiguous


def _concatenated(arrays: Any, axis: Any = None, out: Any = None, **_: Any) -> Any:  # noqa: ARG001
    """The arguments of `np.concatenate` whose classes may decide."""
    return arrays if out is None else [*arrays, out]


def _with_signature(original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    text = getattr(original, "__text_signature__", None)
    if text is not None:
        wrapper.__text_signature__ = text  # type: ignore[attr-defined]
    return wrapper


def _like(original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper with all that `inspect` tells of the original."""
    functools.update_wrapper(wrapper, original)
    wrapper.__qualname__ = original.__name__
    wrapper.__module__ = original.__module__ or "numpy.random"  # a method of the legacy generator has none
    _with_signature(original, wrapper)
    if original.__name__ != "concatenate":
        return wrapper
    # NumPy's own has no signature but that of what it wraps, which a function of Python cannot have
    kind: Any = type(original)
    dispatcher = kind(_concatenated, wrapper)
    functools.update_wrapper(dispatcher, original)
    dispatcher.__wrapped__ = original.__wrapped__  # type: ignore[attr-defined]
    return dispatcher  # type: ignore[no-any-return]


def _by_class(original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any] | None:
    """For a function in Python, what asks the class of `like`: that is told of the function that `numpy` has now.
    Those in C look that up themselves."""
    return _Dispatcher(None, wrapper) if isinstance(original, FunctionType) else None


_NOTHING = object()


class _Unbound(staticmethod):  # type: ignore[type-arg]
    """A wrapper that stays what it is as an attribute of a class, like the function in C that it stands for."""

    def __reduce__(self) -> str:
        return self.__qualname__


class Creation:
    """The wrapped functions of NumPy, and how to take them out."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []
        self._wrapped: dict[int, tuple[Any, Any]] = {}
        self._declared: list[Any] = []
        self._small = 0

    def install(self) -> None:
        for name in _FRESH:
            self._replace(np, name, self._fresh(getattr(np, name)))
        for name in _CONVERTING:
            self._replace(np, name, self._converting(getattr(np, name)))
        self._replace(np, "concat", np.concatenate)
        for name in (*_DRAWS, *_LEGACY):
            if hasattr(np.random, name) and name != "shuffle":  # the legacy one writes as the program would
                self._replace(np.random, name, self._fresh(getattr(np.random, name)))
        self._replace(np, "nditer", _iterators(np.nditer))
        self._replace(np, "nested_iters", with_plain_arrays(np.nested_iters))
        self._replace(np.random, "default_rng", _generators(np.random.default_rng))

    def _replace(self, module: Any, name: str, wrapper: Any) -> None:
        original = getattr(module, name)
        if isinstance(wrapper, FunctionType) and not isinstance(original, FunctionType):
            wrapper = _with_signature(original, _Unbound(wrapper))
        self._replaced.append((module, name, original))
        self._wrapped[id(wrapper)] = wrapper, original
        setattr(module, name, wrapper)
        if original in ARRAY_FUNCTIONS:
            self._declared.append(wrapper)
            ARRAY_FUNCTIONS.add(wrapper)

    def uninstall(self) -> None:
        for module, name, original in self._replaced:
            setattr(module, name, original)
        self._replaced.clear()
        for module in [each for name, each in sys.modules.items() if name.startswith("numpy.")]:
            for name, value in list(vars(module).items()):  # NumPy's modules that were imported meanwhile
                if id(value) in self._wrapped:
                    setattr(module, name, self._wrapped[id(value)][1])
        self._wrapped.clear()
        ARRAY_FUNCTIONS.difference_update(self._declared)
        self._declared.clear()

    def _fresh(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def create(*args: Any, **options: Any) -> Any:
            if options and by_class is not None and options.get("like") is not None:
                return by_class(options.pop("like"), *args, **options)
            result = original(*args, **options)
            if type(result) is not np.ndarray or result.size < state.threshold:
                self._small += 1
                if self._small > _PATIENCE:
                    self.uninstall()
                return own(result) if type(result) in (list, tuple) and is_program(sys._getframe(1)) else result
            self._small = 0
            return own(result) if is_program(sys._getframe(1)) else result

        by_class = _by_class(original, create)
        return _like(original, create)

    def _converting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        lists = 0

        def convert(given: Any = _NOTHING, /, *args: Any, **options: Any) -> Any:
            nonlocal lists
            if type(given) is list and not options and not args:
                result = original(given)
                if result.size < state.threshold:
                    lists += 1
                    if lists > _LISTS:
                        setattr(np, original.__name__, original)
                    return result
                lists = 0
                return own(result) if is_program(sys._getframe(1)) else result
            if given is not _NOTHING:
                args = (given, *args)
            if by_class is not None and options.get("like") is not None:
                return by_class(options.pop("like"), *args, **options)
            if type(given) in _CAPTURED:
                return _converted(original, given, args[1:], options, is_program(sys._getframe(1)))
            result = original(*args, **options)
            if type(result) is not np.ndarray or result.size < state.threshold:
                self._small += 1
                if self._small > _PATIENCE:
                    self.uninstall()
                return result
            self._small = 0
            return own(result) if is_program(sys._getframe(1)) else result

        by_class = _by_class(original, convert)
        return _like(original, convert)


_CAPTURED = frozenset((Lazy, Tracked, Guarded))


def _converted(
    original: Callable[..., Any], given: Any, args: tuple[Any, ...], options: dict[str, Any], program: bool
) -> Any:
    """A captured array as NumPy would have it: the plain class, or itself where the program keeps subclasses."""
    array = given.compute() if type(given) is Lazy else given
    memory.flush(array)
    result = original(array, *args, **options)
    if not program and type(result) in _CAPTURED:
        result = plain(result)
    if type(result) is np.ndarray:
        if result.base is None:
            return own(result)
        memory.expose(array)
    return result


class _Nditer(type):
    """A class that its instances are not of: they are NumPy's own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._original)  # type: ignore[attr-defined]

    @property
    def __text_signature__(cls) -> Any:
        return cls._original.__text_signature__  # type: ignore[attr-defined]

    @property
    def __signature__(cls) -> Any:
        return signature(cls._original)  # type: ignore[attr-defined]


def _iterators(original: Any) -> Any:
    """`np.nditer`, which cannot be a base class: its instances read and write memory where nothing sees it."""

    def make(_: Any, op: Any, *args: Any, **options: Any) -> Any:
        return original(_escaped(op), *args, **options)

    names = {name: method for name, method in vars(original).items() if not name.startswith("_")}
    names |= {"__new__": make, "_original": original, "__doc__": original.__doc__, "__module__": "numpy"}
    return _Nditer("nditer", (), names)


def with_plain_arrays(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose first argument is kept by native code: a plain array, whose memory others write."""

    @functools.wraps(original)
    def take(first: Any, *args: Any, **options: Any) -> Any:
        return original(_escaped(first), *args, **options)

    return _with_signature(original, take)


def _escaped(operands: Any) -> Any:
    if type(operands) in _CAPTURED:
        return escaping(operands.compute() if type(operands) is Lazy else operands)
    return type(operands)(map(_escaped, operands)) if type(operands) in (list, tuple) else operands


def _generators(original: Callable[..., Any]) -> Callable[..., Any]:
    class Same(type):
        """A pickle is that of the plain class, and equal to it is the class of what it was made of."""

        def __eq__(cls, other: object) -> bool:
            return other is np.random.Generator or other is cls

        def __hash__(cls) -> int:
            return hash(np.random.Generator)

    class Generator(np.random.Generator, metaclass=Same):
        """The generator of NumPy with the same stream; large draws are tracked."""

    for name in _DRAWS:
        if hasattr(np.random.Generator, name):
            setattr(Generator, name, _drawing(getattr(np.random.Generator, name)))

    @functools.wraps(original)
    def default_rng(*args: Any, **options: Any) -> Any:
        args = _escaped(args)
        made = original(*args, **{name: _escaped(value) for name, value in options.items()})
        if type(made) is not np.random.Generator or made is (args[0] if args else None):
            return made
        return Generator(made.bit_generator)

    return default_rng


def _shuffle(original: Any, generator: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """NumPy's warning about what is no sequence, at the program's line."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        original(generator, *args, **options)
    for each in heard:
        warnings.warn(each.message, each.category, stacklevel=3)


def _drawing(original: Any) -> Any:
    name = original.__name__

    @functools.wraps(original)
    def draw(self: Any, *args: Any, **options: Any) -> Any:
        out = options.get("out")
        args = tuple(strip(each) if isinstance(each, np.ndarray) else each for each in args)
        options = {key: strip(each) if isinstance(each, np.ndarray) else each for key, each in options.items()}
        if name == "shuffle" and args and not isinstance(args[0], np.ndarray):
            _shuffle(original, self, args, options)
            return None
        result = original(self, *args, **options)
        if out is not None:
            return out
        if type(result) is not np.ndarray or result.size < state.threshold:
            if result is not None:
                small = self.__dict__["_small"] = self.__dict__.get("_small", 0) + 1
                if small >= _SMALL_DRAWS:
                    self.__dict__[name] = original.__get__(self)
            return result
        return own(result) if is_program(sys._getframe(1)) else result

    return draw
