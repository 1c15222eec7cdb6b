"""Typed registries of classes by name, which other packages can extend.

A class is registered by the decorator ``@encoders.register("gau")``, or from another package by an entry point in the
registry's group. An entry point is imported when its name is looked up, all of a group when the names are listed.

>>> from pe_lightning.registry import find_registry
>>> "gau" in find_registry("encoders")
True
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points, packages_distributions
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from pe_lightning.errors import InputError, did_you_mean

T = TypeVar("T")
C = TypeVar("C", bound=type)

Scalar: TypeAlias = bool | int | float | str | None
Value: TypeAlias = Scalar | list[Scalar | list[Scalar]]
Description: TypeAlias = dict[str, Value | dict[str, Value]]
"""An object in a configuration: ``{name: gau, sigma: 0.004}``, or ``{class_path: ..., init_args: {...}}``.

Values are plain: a parser instantiates any class that is named where ``Any`` is allowed."""

if TYPE_CHECKING:
    Described: TypeAlias = T | str | Description
else:

    class Described:
        """``Described[Encoder]``: an encoder, its registered name or its description.

        A parser of configurations sees name and description alone, which the registry resolves when the object that takes
        them is constructed.
        """

        def __class_getitem__(cls, base: type) -> Any:
            return str | Description


REGISTRIES = {
    "encoders": "pe_lightning.encoders.base.registry",
    "models": "pe_lightning.training.base.models",
    "activations": "pe_lightning.networks.activations.activations",
    "datamodules": "pe_lightning.training.datamodule.datamodules",
    "estimators": "pe_lightning.estimators.base.estimators",
    "sources": "pe_lightning.signals.sources.base.sources",
    "samplings": "pe_lightning.signals.sampling.samplings",
    "metrics": "pe_lightning.evaluation.metrics.metrics",
    "baselines": "pe_lightning.evaluation.baselines.baselines",
    "callbacks": "pe_lightning.training.callbacks.base.callbacks",
    "media": "pe_lightning.results.signal_files.media",
}
"""Import paths of all registries; the entry-point group of the registry ``NAME`` is ``pe_lightning.NAME``."""


HINTS = "pe_lightning.hints"
"""Entry-point group of :class:`~pe_lightning.hints.Hints` of other packages."""


def load_entry_points(group: str, what: str, name: str | None = None, kind: type = object) -> Iterator[Any]:
    """What entry points of a group name, sorted by their names, or those of one name.

    Warns:
        PluginWarning: For each one that cannot be imported or is not of this ``kind``, which is left out: a package stops
            only its own users.
    """
    points = entry_points(group=group) if name is None else entry_points(group=group, name=name)
    for point in sorted(points, key=lambda point: point.name):
        try:
            loaded = point.load()
            if not isinstance(loaded, kind):
                raise TypeError(f"it is no {kind.__name__}")
        except Exception as error:  # importing a plugin can raise anything
            text = f"the {what} {point.value!r} cannot be imported: {type(error).__name__}: {error}"
            warnings.warn(text, PluginWarning, stacklevel=2)
        else:
            yield loaded


class PluginWarning(UserWarning):
    """A plugin cannot be used; the message names plugin, distribution and error."""


class Registry(Generic[T]):
    """Maps names to subclasses of one base class.

    Args:
        kind: Singular noun for error messages, such as ``"encoder"``.
        base: Base class of every registered class.
        group: Entry-point group through which other packages register classes; ``None``: none.
        modules: Modules of this package that register classes, imported before the first look-up.
        removed: For names that are not registered any more, in lower case, what to type.
    """

    def __init__(
        self,
        kind: str,
        base: type[T],
        group: str | None = None,
        modules: Sequence[str] = (),
        removed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._removed = removed
        self.kind = kind
        self.base = base
        self.group = group
        self.modules = tuple(modules)
        self._classes: dict[str, type[T]] = {}
        self._broken: dict[str, str] = {}
        self._points: dict[str, list[EntryPoint]] | None = None

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator that registers the class under ``name``."""

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
                f"{self.kind} name {name!r} is taken by {path_of(taken)}; register {path_of(checked)} under another name"
            )

    def _checked(self, cls: object) -> type[T]:
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            raise InputError(f"{cls!r} cannot be used as {self.kind}: it is not a subclass of {path_of(self.base)}")
        if missing := sorted(getattr(cls, "__abstractmethods__", ())):
            raise InputError(f"{path_of(cls)} cannot be used as {self.kind}: it does not define {', '.join(missing)}")
        return cls

    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        """Entry points by name that are not imported yet."""
        if self._points is None:
            self._points = {}  # set before the imports, since a module may look up names itself
            try:
                for module in self.modules:
                    importlib.import_module(module)
                for point in () if self.group is None else entry_points(group=self.group):
                    self._points.setdefault(point.name, []).append(point)
            except BaseException:
                self._points = None  # the next call raises the same error
                raise
        return self._points

    def load_plugins(self, name: str | None = None) -> None:
        """Imports the plugins with this name or class name, or all, with a :class:`PluginWarning` for each broken one."""
        waiting = self._entry_points()
        named = [key for key, points in waiting.items() if name in (None, key, *(point.attr for point in points))]
        for key in sorted(named):
            for point in waiting.pop(key, []):  # before the import, since a plugin may look up names itself
                try:
                    loaded = point.load()
                    if not isinstance(loaded, ModuleType):
                        self._add(key, loaded)
                    elif key not in self._classes:
                        raise InputError(f"importing {point.value!r} registered no {self.kind} {key!r}")
                except Exception as error:  # importing a plugin can raise anything, and stops only its users
                    source = "(unknown)" if point.dist is None else f"{point.dist.name} {point.dist.version}"
                    reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
                    self._broken[key] = (
                        f"the {self.kind} plugin {key!r} of the distribution {source}, {point.value!r}, cannot be used: "
                        f"{reason}"
                    )
        for key in self._broken.keys() & named if name is None else ():  # after the imports: a warning may be an error
            warnings.warn(self._broken[key], PluginWarning, stacklevel=2)

    def names(self) -> list[str]:
        """All registered names, also of plugins, sorted."""
        self.load_plugins()
        return sorted(self._classes)

    def broken(self) -> dict[str, str]:
        """Messages about the plugins that could not be imported, by name."""
        self.load_plugins()
        return dict(self._broken)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        self.load_plugins(str(name))
        return name in self._classes or name in self.names()

    def name_of(self, cls: type) -> str:
        """The registered name of a class, or its import path if it is not registered."""
        for name, points in list(self._entry_points().items()):
            if any(point.module.partition(".")[0] == cls.__module__.partition(".")[0] for point in points):
                self.load_plugins(name)
        return next((name for name, known in self._classes.items() if known is cls), path_of(cls))

    def get(self, name: str) -> type[T]:
        """The class for a registered name, the ``__name__`` of a registered class, or an import path."""
        self.load_plugins(name)
        if name in self._classes:
            return self._classes[name]
        if name in self._broken:
            raise InputError(self._broken[name])
        if cls := next((cls for cls in self._classes.values() if cls.__name__ == name), None):
            return cls
        reason = ""
        if "." in str(name):
            try:
                return self._checked(import_class(str(name)))
            except (ImportError, AttributeError, TypeError) as error:
                reason = f": {error}."
        if sentence := self.removed(str(name)):
            raise InputError(sentence)
        known = self.names()
        aliases = {cls.__name__: registered for registered, cls in self._classes.items()}
        reason = reason or did_you_mean(str(name), known, aliases) or "."
        raise InputError(f"unknown {self.kind} {name!r}{reason} Registered: {', '.join(known)}")

    def removed(self, name: str) -> str | None:
        """What to type for a name or an import path that is not registered any more; packages have theirs in their hints."""
        keys = name.lower(), *name.rpartition(".")[::2]
        given = [self._removed, *(getattr(hints, "removed", {}) for hints in load_entry_points(HINTS, "hints"))]
        return next((sentences[key] for sentences in given for key in keys if key in sentences), None)

    def create(self, name: str, /, **kwargs: Any) -> T:
        """An instance of the class called ``name``."""
        cls = self.get(name)
        kwargs = self.arguments(cls, kwargs)
        for key, parameter in self.parameters(cls).items():
            variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if key not in kwargs and parameter.default is parameter.empty and not variadic:
                raise InputError(f"{self.kind} {name!r} needs a value for {key!r}")
        return cls(**kwargs)

    def resolve(self, given: T | str | Mapping[str, Any], default: str | None = None) -> T:
        """An instance, unchanged, or from ``"grid"``, ``{"name": "grid", "stride": 2}`` or a mapping with a ``class_path``.

        ``default`` is the name of the class of a mapping without a name.
        """
        if isinstance(given, self.base):
            return given
        name, arguments = self.read(given, default)
        return self.create(name, **arguments)

    def read(self, given: Any, default: str | None = None) -> tuple[str, dict[str, Any]]:
        """Name and arguments of a description as in :meth:`resolve`."""
        if isinstance(given, str):
            return given, {}
        arguments: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
        name = arguments.pop("class_path", None) or arguments.pop("name", None)
        name = default if name is None and arguments else name
        if not isinstance(name, str):
            example = next(iter(self._classes), "NAME")
            raise InputError(
                f"{self.kind}: give a name such as {example!r}, a mapping with a 'name' such as {{name: {example}}}, or an "
                f"object of the class {self.base.__name__}; got {given!r}"
            )
        # arguments beside init_args were given later, by an option such as --model.encoder.sigma
        return name, {**(arguments.pop("init_args", None) or {}), **arguments}

    def arguments(self, cls: type[T], given: Mapping[str, Any]) -> dict[str, Any]:
        """``given`` after a check of its keys against the constructor of ``cls``."""
        allowed = self.parameters(cls)
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in allowed.values()):
            return dict(given)  # **kwargs: only the class itself can check the names
        for key in given:
            if key not in allowed:
                takes = f"It takes: {', '.join(allowed)}" if allowed else "It takes no arguments"
                self.load_plugins()
                owners = [name for name, other in self._classes.items() if key in self.parameters(other)]
                other = f"; {self.kind} {owners[0]!r} has it: name that first." if len(owners) == 1 else "."
                near = did_you_mean(key, allowed) or other
                raise InputError(f"{self.kind} {self.name_of(cls)!r} has no argument {key!r}{near} {takes}")
        return dict(given)

    def parameters(self, cls: type[T]) -> dict[str, inspect.Parameter]:
        """The constructor's parameters, in order."""
        if cls.__init__ is object.__init__:
            return {}
        # signature(cls) could return the signature of a base's __new__(*args, **kwargs)
        return dict(list(inspect.signature(cls.__init__).parameters.items())[1:])


def import_class(path: str) -> Any:
    """The class at an import path that a configuration or a checkpoint holds."""
    module, _, attribute = path.rpartition(".")
    with asked_modules():
        return getattr(importlib.import_module(module), attribute)


@contextmanager
def asked_modules() -> Iterator[None]:
    """Refuses modules that lie in the working directory alone, unless ``PYTHONPATH`` names it or they are imported already.

    A checkpoint or a configuration is no reason to run the files beside it.

    Raises:
        ModuleNotFoundError: If such a module is imported.
    """
    gate = _Gate()
    sys.meta_path.insert(0, gate)
    try:
        yield
    finally:
        sys.meta_path.remove(gate)


class _Gate(MetaPathFinder):
    def __init__(self) -> None:
        self._folder = Path.cwd().resolve()  # a parser works in the folder of the file that it reads
        self._asked = {Path(path).resolve() for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Finds nothing, and refuses modules that nobody asked for."""
        folders = {self._folder, Path.cwd().resolve()}
        if path is not None or not PathFinder.find_spec(fullname, [str(folder) for folder in folders]):
            return
        others = [path for path in sys.path if (folder := Path(path).resolve()) not in folders or folder in self._asked]
        if not PathFinder.find_spec(fullname, others) and fullname not in packages_distributions():
            raise ModuleNotFoundError(
                f"{fullname!r} is in this folder, whose modules are not imported unasked: type PYTHONPATH=. before the "
                f"command, or import {fullname} first",
                name=fullname,
            )


def path_of(cls: type) -> str:
    """The import path of a class: ``package.Name`` if its package has it in ``__all__``."""
    top = cls.__module__.partition(".")[0]
    package = sys.modules.get(top)
    if cls.__name__ in getattr(package, "__all__", ()) and getattr(package, cls.__name__, None) is cls:
        return f"{top}.{cls.__name__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def find_registry(name: str) -> Registry[Any]:
    """A registry by its name in :data:`REGISTRIES`, imported on demand."""
    module, _, attribute = REGISTRIES[name].rpartition(".")
    registry: Registry[Any] = getattr(importlib.import_module(module), attribute)
    return registry
