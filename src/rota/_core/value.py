"""Frozen values: what `@dataclass(frozen=True, slots=True)` gives, without the cost at start-up.

A tick that finds nothing to do is most of what `rota run` ever does, so the time to import the
schedule counts. Importing dataclasses takes as long as starting Python, and each class that it makes
takes another 0.8 ms; this decorator takes 0.03 ms a class (docs/decisions). Type checkers treat it as a
dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, dataclass_transform

T = TypeVar("T")
_DERIVED: Final = object()

NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
"""An empty mapping that nobody can fill, for defaults."""


def derived(*, init: Literal[False] = False) -> Any:
    """A field that `__post_init__` works out from the others, and that counts in no comparison."""
    return _DERIVED


@dataclass_transform(frozen_default=True, field_specifiers=(derived,))
def value(cls: type[T]) -> type[T]:
    """A class whose annotations are its fields: frozen, slotted, compared and hashed by what it holds.

    A default must be immutable, since all values share it. `__post_init__` is called where there is one.
    """
    slots = tuple(cls.__dict__.get("__annotations__", ()))  # noqa: RUF063  # inspect costs what this saves
    space = {key: item for key, item in cls.__dict__.items() if key not in ("__dict__", "__weakref__")}
    names = tuple(name for name in slots if space.get(name) is not _DERIVED)
    for name in set(slots) - set(names):
        del space[name]
    defaults = {name: space.pop(name) for name in names if name in space}
    checks = "__post_init__" in space
    contents: Callable[[object], object] = attrgetter(*names) if names else lambda self: ()

    setters: list[Callable[[object, object], None]] = []

    def __init__(self: Any, *args: object, **given: object) -> None:
        count = len(args)
        if count > len(names):
            raise TypeError(f"{cls.__name__} has {len(names)} fields, {count} were given")
        for put, item in zip(setters, args, strict=False):
            put(self, item)
        for place in range(count, len(names)):
            name = names[place]
            if name in given:
                setters[place](self, given.pop(name))
            elif name in defaults:
                setters[place](self, defaults[name])
            else:
                raise TypeError(f"{cls.__name__} needs {name}")
        if given:
            raise TypeError(f"{cls.__name__} takes no {', '.join(given)} here; it has {', '.join(names)}")
        if checks:
            self.__post_init__()

    def __eq__(self: object, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return contents(self) == contents(other)

    def __hash__(self: object) -> int:
        return hash(contents(self))

    def __repr__(self: object) -> str:
        return f"{cls.__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def __setattr__(self: object, name: str, item: object) -> None:
        raise AttributeError(f"{cls.__name__} is frozen: {name} cannot be set")

    def __delattr__(self: object, name: str) -> None:
        raise AttributeError(f"{cls.__name__} is frozen: {name} cannot be deleted")

    def __reduce__(self: object) -> tuple[object, ...]:
        return type(self), tuple(getattr(self, name) for name in names)

    made = (__init__, __eq__, __hash__, __repr__, __setattr__, __delattr__, __reduce__)
    space |= {each.__name__: each for each in made if each.__name__ not in space}
    space |= {"__slots__": slots, "__match_args__": names}
    again: Any = type(cls)
    made_again: type[T] = again(cls.__name__, cls.__bases__, space)
    setters += [getattr(made_again, name).__set__ for name in names]
    return made_again


def replace(self: T, **changes: object) -> T:
    """The same value with some fields changed."""
    names: tuple[str, ...] = self.__match_args__  # type: ignore[attr-defined]  # every value has it
    return type(self)(**({name: getattr(self, name) for name in names} | changes))
