"""Names for classes: a typed registry that other packages can add to.

A class joins a registry by decorator, ``@encoders.register("gau")``, or from another package by an entry point in the
registry's group. Entry points are imported when a name is first looked up, so that importing this package stays cheap
and a broken plugin stops only those who ask for it.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar

from pe_lightning.errors import InputError, did_you_mean

__all__ = ["PluginWarning", "Registry"]

T = TypeVar("T")
C = TypeVar("C", bound=type)


class PluginWarning(UserWarning):
    """A plugin could not be imported; the message names it, its distribution and the original error."""


class Registry(Generic[T]):
    """Maps names to subclasses of one base class.

    Args:
        kind: What is registered, in the singular, for messages: ``"encoder"``.
        base: Every registered class is a subclass of it.
        group: Entry-point group through which other packages register classes. ``None``: closed.

    Example:
        >>> shapes: Registry[object] = Registry("shape", object)
        >>> @shapes.register("round")
        ... class Round: ...
        >>> shapes.names()
        ['round']
    """

    def __init__(self, kind: str, base: type[T], group: str | None = None) -> None:
        self.kind = kind
        self.base = base
        self.group = group
        self._classes: dict[str, type[T]] = {}
        self._broken: dict[str, str] = {}
        self._plugins_loaded = group is None

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator that registers the class under ``name``.

        Raises:
            InputError: If the name is taken by another class, is not a plain word, or the class has the wrong base or
                abstract methods.
        """

        def decorate(cls: C) -> C:
            self._add(name, cls)
            return cls

        return decorate

    def _add(self, name: str, cls: object) -> None:
        if not name.isidentifier():
            raise InputError(f"{self.kind} name {name!r} is not a plain word; use letters, digits and underscores")
        checked = self._checked(cls)
        taken = self._classes.setdefault(name, checked)
        if taken is not checked:
            raise InputError(
                f"{self.kind} name {name!r} is taken by {_path(taken)}; register {_path(checked)} under another name"
            )

    def _checked(self, cls: object) -> type[T]:
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            raise InputError(f"{cls!r} cannot be used as {self.kind}: it is not a subclass of {_path(self.base)}")
        if missing := sorted(getattr(cls, "__abstractmethods__", ())):
            raise InputError(f"{_path(cls)} cannot be used as {self.kind}: it does not define {', '.join(missing)}")
        return cls

    def load_plugins(self) -> None:
        """Imports the entry points of the group, once.

        Raises:
            InputError: If a plugin claims a name that is taken, or registers a class of the wrong base.

        Warns:
            PluginWarning: If a plugin cannot be imported. Asking for it by name is then an error.
        """
        if self._plugins_loaded or self.group is None:
            return
        self._plugins_loaded = True  # before the imports: a plugin may itself ask for names
        try:
            for point in sorted(entry_points(group=self.group), key=lambda p: (p.name, p.value)):
                self._load_plugin(point)
        except BaseException:
            self._plugins_loaded = False  # the next call raises the same error
            raise
        for message in self._broken.values():  # after the loop: a warning may be an error, others must be loaded still
            warnings.warn(message, PluginWarning, stacklevel=2)

    def _load_plugin(self, point: EntryPoint) -> None:
        distribution = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "(unknown)"
        try:
            loaded = point.load()
            if not isinstance(loaded, ModuleType):
                self._add(point.name, loaded)
            elif point.name not in self._classes:
                raise InputError(f"importing {point.value!r} registered no {self.kind} {point.name!r}")
        except InputError as error:
            raise InputError(f"{error} (entry point {point.name!r} of the distribution {distribution})") from error
        except Exception as error:  # whatever a plugin raises on import must not stop those who do not use it
            self._broken[point.name] = (
                f"the {self.kind} plugin {point.name!r} of the distribution {distribution} failed to "
                f"import {point.value!r}: {type(error).__name__}: {error}"
            )

    def names(self) -> list[str]:
        """The registered names, sorted, plugins included."""
        self.load_plugins()
        return sorted(self._classes)

    def broken(self) -> dict[str, str]:
        """Plugins that failed to import: name -> what went wrong."""
        self.load_plugins()
        return dict(self._broken)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def name_of(self, cls: type) -> str:
        """The name of a registered class, or its full path if it has none."""
        self.load_plugins()
        return next((name for name, known in self._classes.items() if known is cls), _path(cls))

    def get(self, name: str) -> type[T]:
        """The class called ``name``: a registered name, a registered class's own name, or a full class path.

        Raises:
            InputError: If there is none; the message holds the nearest names and all of them.
        """
        known = self.names()
        if name in self._classes:
            return self._classes[name]
        if name in self._broken:
            raise InputError(self._broken[name])
        by_class_name = {cls.__name__: cls for cls in self._classes.values()}
        if name in by_class_name:
            return by_class_name[name]
        # of words that differ in case only the last is offered: the name to type, not the class's
        reason = did_you_mean(str(name), [*by_class_name, *known]) or "."
        module, _, attribute = str(name).rpartition(".")
        if module:
            try:
                return self._checked(getattr(importlib.import_module(module), attribute))
            except (ImportError, AttributeError, TypeError) as error:
                reason = f": {error}."
        raise InputError(f"unknown {self.kind} {name!r}{reason} Registered: {', '.join(known)}")

    def create(self, name: str, /, **kwargs: Any) -> T:
        """An instance of the class called ``name``.

        Raises:
            InputError: If the name or an argument is unknown, an argument without default is missing, or the class
                refuses a value.
        """
        cls = self.get(name)
        kwargs = self.arguments(cls, kwargs)
        for key, parameter in self.parameters(cls).items():
            variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if key not in kwargs and parameter.default is parameter.empty and not variadic:
                raise InputError(f"{self.kind} {name!r} needs a value for {key!r}")
        return cls(**kwargs)

    def resolve(self, given: T | str | Mapping[str, Any]) -> T:
        """The instance that a name or a description stands for; an instance is returned as it is.

        Accepts ``"grid"``, ``{"name": "grid", "stride": 2}`` and ``{"class_path": ..., "init_args": {...}}``.

        Raises:
            InputError: If it is none of these, or what :meth:`create` raises.
        """
        if isinstance(given, self.base):
            return given
        if isinstance(given, str):
            return self.create(given)
        arguments: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
        name = arguments.pop("name", None) or arguments.pop("class_path", None)
        if not isinstance(name, str):
            example = next(iter(self._classes), "NAME")
            raise InputError(
                f"{self.kind}: give a name such as {example!r}, a mapping with a 'name' such as {{name: {example}}}, or an "
                f"object of the class {self.base.__name__}; got {given!r}"
            )
        arguments.update(arguments.pop("init_args", None) or {})
        return self.create(name, **arguments)

    def arguments(self, cls: type[T], given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the constructor of ``cls`` that ``given`` stands for.

        Raises:
            InputError: If ``cls`` does not take an argument of that name.
        """
        allowed = self.parameters(cls)
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in allowed.values()):
            return dict(given)  # a plugin's **kwargs: only the class itself can tell
        for key in given:
            if key not in allowed:
                takes = f"It takes: {', '.join(allowed)}" if allowed else "It takes no arguments"
                raise InputError(
                    f"{self.kind} {self.name_of(cls)!r} has no argument {key!r}{did_you_mean(key, allowed) or '.'} {takes}"
                )
        return dict(given)

    def parameters(self, cls: type[T]) -> dict[str, inspect.Parameter]:
        """The constructor's parameters, in order."""
        if cls.__init__ is object.__init__:
            return {}
        # of __init__, not of the class: where a base defines __new__(*args, **kwargs), that one can be found first
        return dict(list(inspect.signature(cls.__init__).parameters.items())[1:])


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
