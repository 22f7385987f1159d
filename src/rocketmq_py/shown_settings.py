"""Settings in signatures, docstrings and pages.

A class of settings declares each setting once. Its field has the name, the type, the default and the bounds,
and the entry in ``Args`` of its docstring the meaning, with Java's name in brackets. Everything else that
lists settings is derived from there: at runtime the signatures and docstrings of the classes and functions
that take them as keywords, and by ``make apis`` the types of the keywords and the page of settings.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterator
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

import attrs

from rocketmq_py.arguments import seconds, seconds_or_none

Target = TypeVar("Target", bound=Callable[..., Any])

_FACTORY: Any = attrs.Factory  # a class at runtime
# In docstrings without the indentation of their class, which Python 3.13 and newer leave out.
_ENTRY = re.compile(r"^ {4}(\w+): .*\n(?:^ {5,}.*\n)*", re.MULTILINE)
_OPTIONS = re.compile(r"^ {4}\*\*options: .*\n(?:^ {5,}.*\n)*", re.MULTILINE)


@attrs.frozen
class Setting:
    """A setting.

    Attributes:
        name: its name.
        type: the type of the keyword.
        default: the default as in source code. None if the setting is required.
        value: the default.
        unit: the unit of a number. Empty if it has none.
        entry: its entry in ``Args`` of the docstring, with its indentation.
    """

    name: str
    type: str
    default: str | None
    value: object
    unit: str
    entry: str

    @property
    def meaning(self) -> str:
        """The text of its entry, in one line."""
        return " ".join(self.entry.split()).partition(": ")[2]


@lru_cache
def settings_of(kind: type[attrs.AttrsInstance]) -> tuple[Setting, ...]:
    """Return the settings of a class: those that it declares, then those that it inherits."""
    entries: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for entry in _ENTRY.finditer(f"{inspect.cleandoc(base.__doc__ or '')}\n"):
            entries[entry[1]] = entry[0]
    # With python -OO there are no docstrings.
    fields = sorted(attrs.fields(kind), key=lambda field: field.inherited)
    return tuple([_setting(field, entries.get(field.name, "")) for field in fields])


def _setting(field: attrs.Attribute[Any], entry: str) -> Setting:
    value: Any = field.default
    if isinstance(value, _FACTORY):
        value = None if value.takes_self else value.factory()
    converter: Any = field.converter
    annotation = str(field.type)
    if inspect.isfunction(converter):
        annotation = next(iter(converter.__annotations__.values()))
    is_duration = converter is seconds or converter is seconds_or_none
    return Setting(
        name=field.name,
        type=annotation,
        default=None if value is attrs.NOTHING else source_of(value),
        value=value,
        unit="seconds" if is_duration else field.metadata.get("unit", ""),
        entry=entry,
    )


def advice_for(name: str, known: Collection[str]) -> str:
    """Return the advice of the error for an unknown setting: the nearest name, if there is one."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "the docstring lists the settings"


def source_of(value: object) -> str:
    """Return a default as source code."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if inspect.isfunction(value):
        return value.__name__
    if not attrs.has(type(value)):
        return repr(value)
    names = [name for name in vars(type(value)) if getattr(type(value), name) == value]
    return f"{type(value).__name__}.{names[0]}" if names else f"{type(value).__name__}()"


class _Source:
    """A default in a signature whose repr is not source code."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _shown_default(setting: Setting) -> object:
    assert setting.default is not None
    return setting.value if setting.default == repr(setting.value) else _Source(setting.default)


class _Shown:
    """A descriptor that computes the ``__signature__`` or the ``__doc__`` of a class when it is read."""

    def __init__(self, owner: type[Any], compute: Callable[[], Any]) -> None:
        self._owner = owner
        self._compute = compute

    def __get__(self, _: object, kind: type[Any]) -> Any:
        if kind is not self._owner:  # a subclass may have other arguments
            raise AttributeError
        return self._compute()


def takes_settings(*kinds: type[attrs.AttrsInstance]) -> Callable[[Target], Target]:
    """Show each setting in the signature and docstring of a class or function that takes ``**options``.

    Those of a class are computed when they are read. Those of a function are computed at once, because
    descriptors have no effect on its attributes.
    """

    def decorate(target: Target) -> Target:
        shown: Any = target
        text = inspect.cleandoc(shown.__doc__ or "")
        if inspect.isclass(target):
            function = shown.__init__
            shown.__signature__ = _Shown(target, lambda: _signature_of_class(function, kinds))
            shown.__doc__ = _Shown(target, lambda: _docstring(text, function, kinds))
        else:
            shown.__doc__ = _docstring(text, shown, kinds)
            shown.__signature__ = _signature(shown, kinds)
        return target

    return decorate


def _shown(function: Callable[..., Any], kinds: tuple[type[attrs.AttrsInstance], ...]) -> Iterator[Setting]:
    named = inspect.signature(function).parameters
    for kind in kinds:
        yield from [setting for setting in settings_of(kind) if setting.name not in named]


def _signature_of_class(
    initializer: Callable[..., Any], kinds: tuple[type[attrs.AttrsInstance], ...]
) -> inspect.Signature:
    signature = _signature(initializer, kinds)
    _, *parameters = signature.parameters.values()
    return signature.replace(parameters=parameters, return_annotation=signature.empty)


def _signature(
    function: Callable[..., Any], kinds: tuple[type[attrs.AttrsInstance], ...]
) -> inspect.Signature:
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:  # a name that only type checkers import
        signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if one.default is None else _shown_default(one),
            annotation=one.type,
        )
        for one in _shown(function, kinds)
    ]
    returned = signature.return_annotation
    if isinstance(returned, TypeVar):  # it says less than the docstring
        returned = signature.empty
    return signature.replace(parameters=[*own, *options], return_annotation=returned)


def _docstring(text: str, function: Callable[..., Any], kinds: tuple[type[attrs.AttrsInstance], ...]) -> str:
    entries = "".join(
        [
            one.entry if one.default is None else f"{one.entry}        Default: {one.default}.\n"
            for one in _shown(function, kinds)
        ]
    )
    return _OPTIONS.sub(lambda options: f"{entries}{options[0]}", f"{text}\n")
