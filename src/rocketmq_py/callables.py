"""Checks of the functions and objects that a program passes, before they are called."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

from rocketmq_py.arguments import kind_of, wrong_type
from rocketmq_py.errors import ConfigurationError

_NO_KEYWORDS: Mapping[str, object] = {}
_MOST_KNOWN = 4096
_PLACEHOLDER: object = getattr(functools, "Placeholder", _NO_KEYWORDS)
"""The argument of a partial that the call gives. Python 3.14 has it, earlier ones never see this value."""
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class NeverBlocks:
    """Marks hooks and queue selectors that do not block, as those of the library.

    The trio thread calls them in every API, in the context of each call. A subclass must not block either.
    """

    __slots__ = ()


def check_callable(function: object, name: str, *parameters: str, awaited: bool = True) -> None:
    """Check that a function accepts its arguments, and that a call would run its body.

    Builtin functions, and objects whose signature cannot be read, pass. For functions, methods and objects
    with ``__call__`` this takes well under a microsecond, so that every send may check its callbacks.

    Args:
        function: the function, or another callable.
        name: the name of the argument, for the error.
        parameters: the names of the positional arguments that it will be called with.
        awaited: whether it may be an async function.

    Raises:
        ConfigurationError: it cannot be called, accepts other arguments, is a generator function, or is an
            async function and ``awaited`` is False.
    """
    called, count, keywords = function, len(parameters), _NO_KEYWORDS
    if isinstance(called, functools.partial):
        places = sum(argument is _PLACEHOLDER for argument in called.args)
        if count < places:
            raise _other_parameters(function, name, parameters)
        count, keywords = count + len(called.args) - places, called.keywords
        called = called.func
    kind = type(called)
    if kind is MethodType:
        called, count = called.__func__, count + 1  # type: ignore[attr-defined]
    elif kind is BuiltinFunctionType:
        return
    elif kind is not FunctionType:
        called, count = getattr(kind, "__call__", None), count + 1  # noqa: B004  # the method itself
    if type(called) is not FunctionType:
        _check_by_signature(function, name, parameters, awaited=awaited)
        return
    if not _accepts(called, count, keywords):
        raise _other_parameters(function, name, parameters)
    flags = called.__code__.co_flags
    if flags & _GENERATOR and not flags & _ASYNC:
        raise _generator(function, name)
    if flags & _ASYNC and not awaited:
        raise _never_awaited(name)


_known_callbacks: set[tuple[type, CodeType]] = set()
"""The type and code of callbacks that :func:`check_callback` accepted.

It keeps code objects rather than functions, because a closure may refer to the body of a message.
"""


def check_callback(function: object, name: str) -> None:
    """Check a plain function that is called with a pending result."""
    # Fast path: remembers the code of functions that passed, saves 9 % of batching and 5 % of pipelined.
    code = getattr(function, "__code__", None)
    if (type(function), code) in _known_callbacks:
        return
    check_callable(function, name, "pending", awaited=False)
    if code is not None and len(_known_callbacks) < _MOST_KNOWN:
        _known_callbacks.add((type(function), code))


def check_methods(value: object, name: str, kind: type, *, awaited: bool = True) -> None:
    """Check that an object has the public methods of a class, with its parameters.

    Args:
        value: the object, of the class or not.
        name: the name of the argument, for the error.
        kind: the class.
        awaited: whether the methods may be async.

    Raises:
        ConfigurationError: it lacks a method, is a class, or a method does not accept the arguments, or is
            async and ``awaited`` is False.
    """
    methods = {
        method: declared.__code__
        for method, declared in vars(kind).items()
        if isinstance(declared, FunctionType) and not method.startswith("_")
    }
    if isinstance(value, type) or not all(hasattr(value, method) for method in methods):
        given = f"the class {value.__name__}" if isinstance(value, type) else kind_of(value)
        raise ConfigurationError(f"{name} must be an object with the methods of {kind.__name__}, not {given}")
    for method, code in methods.items():
        parameters = code.co_varnames[1 : code.co_argcount]
        check_callable(getattr(value, method), f"{name}.{method}", *parameters, awaited=awaited)


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calls of a function, or of an object with ``__call__``, have to be awaited."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _accepts(function: FunctionType, count: int, keywords: Mapping[str, object]) -> bool:
    """Return whether a Python function accepts ``count`` positional arguments and these keywords.

    ``inspect.signature`` tells the same, and takes 20 times as long.
    """
    code = function.__code__
    positional = code.co_argcount
    if count > positional and not code.co_flags & inspect.CO_VARARGS:
        return False
    required = positional - len(function.__defaults__ or ())
    if not keywords:
        return count >= required and code.co_kwonlyargcount == len(function.__kwdefaults__ or ())
    names, positional_only = code.co_varnames, code.co_posonlyargcount
    keyword_only = names[positional : positional + code.co_kwonlyargcount]
    unknown = keywords.keys() - {*names[max(count, positional_only) : positional], *keyword_only}
    given_twice = unknown.intersection(names[positional_only : min(count, positional)])
    if given_twice or (unknown and not code.co_flags & inspect.CO_VARKEYWORDS):
        return False
    missing = {*names[count:required], *keyword_only} - (function.__kwdefaults__ or {}).keys()
    return missing <= keywords.keys() - set(names[:positional_only])


def _check_by_signature(function: object, name: str, parameters: Sequence[str], *, awaited: bool) -> None:
    if not callable(function):
        if inspect.iscoroutine(function):
            function.close()  # it would warn that it was never awaited
            raise ConfigurationError(f"{name} is a coroutine; give the function without calling it")
        raise wrong_type(name, f"a function that accepts ({', '.join(parameters)})", function)
    try:
        # Not the signature of a function behind `functools.wraps`: decorators may add arguments.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * len(parameters))
    except TypeError:
        raise _other_parameters(function, name, parameters) from None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _generator(function, name)
    if not awaited and is_async(function):
        raise _never_awaited(name)


def _other_parameters(function: object, name: str, parameters: Sequence[str]) -> ConfigurationError:
    assert callable(function)
    if isinstance(function, functools.partial):
        # Not its own signature, which differs by Python version. The arguments may be secrets.
        given = ["…"] * len(function.args) + [f"{keyword}=…" for keyword in function.keywords]
        described = f"partial({', '.join([_name_of(function.func), *given])}) of {_described(function.func)}"
    else:
        described = _described(function)
    return ConfigurationError(
        f"{name} is called with ({', '.join(parameters)}), which {described} does not accept"
    )


def _described(function: Callable[..., object]) -> str:
    signature = ""
    with contextlib.suppress(TypeError, ValueError):
        signature = str(inspect.signature(function, follow_wrapped=False))
    return f"{_name_of(function)}{signature}"


def _generator(function: object, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name} is {_name_of(function)}, which has a yield in it: a call would run nothing"
    )


def _never_awaited(name: str) -> ConfigurationError:
    return ConfigurationError(f"{name} must be a plain function, not an async one: its result is not awaited")


def _name_of(function: object) -> str:
    name: str = getattr(function, "__qualname__", type(function).__name__)
    return name.rpartition("<locals>.")[2]
