"""A chain: the facts that a schedule states about one task, or about the tasks of a group."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import TYPE_CHECKING, Generic, NamedTuple, ParamSpec, TypeVar

from rota._core.errors import DefinitionError
from rota._core.fluent import words, work
from rota._core.fluent.timing import Timing
from rota._core.fluent.verbs import Verbs, place
from rota._core.task import (
    CatchUp,
    Crash,
    Filter,
    LeasePolicy,
    OutputPolicy,
    Overlap,
    Servers,
    Work,
)
from rota._core.triggers import Window
from rota._core.zones import zone as zone_named

if TYPE_CHECKING:
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


class Said(NamedTuple, Generic[T]):
    """A fact, the verb that stated it and the line where it stands."""

    value: T
    verb: str
    place: str


class Facts:
    """Everything stated so far. What is None was left to its default; the lists add up.

    Facts that a Task has as well carry its names.
    """

    __slots__ = (
        "catch_up",
        "crash",
        "days",
        "description",
        "environments",
        "filters",
        "former_name",
        "grace",
        "lease",
        "name",
        "output",
        "overlap",
        "servers",
        "starting",
        "time_limit",
        "timing",
        "until",
        "windows",
        "work",
        "zone",
    )

    def __init__(self) -> None:
        self.work: Said[Work] | None = None
        self.name: Said[str] | None = None
        self.description: Said[str] | None = None
        self.former_name: Said[str] | None = None
        self.timing: Said[Timing] | None = None
        self.zone: Said[str] | None = None
        self.days: Said[frozenset[int]] | None = None
        self.starting: Said[date] | None = None
        self.until: Said[date] | None = None
        self.windows: list[Said[Window]] = []
        self.filters: list[Said[Filter]] = []
        self.environments: Said[frozenset[str]] | None = None
        self.servers: Said[Servers] | None = None
        self.overlap: Said[Overlap] | None = None
        self.lease: Said[LeasePolicy] | None = None
        self.crash: Said[Crash] | None = None
        self.catch_up: Said[CatchUp] | None = None
        self.grace: Said[timedelta] | None = None
        self.time_limit: Said[timedelta] | None = None
        self.output: Said[OutputPolicy] | None = None

    def state(self, fact: str, said: Said[object]) -> None:
        """Add a fact; one that was stated already is refused, as the second would undo the first."""
        earlier = getattr(self, fact)
        if isinstance(earlier, list):
            earlier.append(said)
        elif earlier is None:
            setattr(self, fact, said)
        else:
            raise DefinitionError(
                f"{said.verb}() would undo {earlier.verb}() of {earlier.place}",
                allowed=f"{said.verb}() or {earlier.verb}(), once"
                if said.verb != earlier.verb
                else f"{said.verb}() once",
                hint=_BESIDES.get(fact),
            )

    def within(self, group: Facts) -> Facts:
        """These facts, and those of the group where these leave something unsaid."""
        merged = Facts()
        for name in Facts.__slots__:
            own, outer = getattr(self, name), getattr(group, name)
            setattr(merged, name, outer + own if isinstance(own, list) else own or outer)
        return merged

    @property
    def known_name(self) -> str | None:
        """The name of the task as far as it is known; for messages."""
        if self.name is not None:
            return self.name.value
        return work.name_of(self.work.value) if self.work is not None else None


_BESIDES = {
    "timing": "cron() takes several lines; times that differ otherwise need a second task",
    "work": "for several tasks with the same settings use group()",
    "days": "on_days() takes several days",
    "environments": "environments() takes several names",
}
"""What a person who states a fact twice may have wanted."""


class Chain(Verbs["Chain"]):
    """One task of a schedule while its sentence goes on.

    Call it with a function, as a decorator does, or give it one with `do`. It is a task of the
    schedule from its first word, so whatever is missing at the end is an error at load.
    """

    __slots__ = ("_book", "_facts", "_group", "_outer", "_place")

    def __init__(self, book: Book, place: str) -> None:
        self._book = book
        self._place = place
        self._facts = Facts()
        self._outer = tuple(book.open_groups)
        self._group: Group | None = None

    def __call__(self, function: F) -> F:
        """Make this function the work of the task, and return it as it is."""
        self._state("work", "the decorator", lambda: work.function(function, (), {}))
        return function

    def do(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Chain:
        """Make a call of this function with these arguments the work of the task."""
        return self._state("work", "do", lambda: work.function(function, args, kwargs))

    def name(self, name: str) -> Chain:
        """The identity of the task in the store and in every history. Needed for all but functions
        defined with `def`, whose own name is taken."""
        return self._state("name", "name", lambda: words.label(name, "name"))

    def formerly(self, name: str) -> Chain:
        """The first name of a task that was renamed; its rows and leases go on under it."""
        return self._state("former_name", "formerly", lambda: words.label(name, "formerly"))

    def describe(self, description: str) -> Chain:
        """One sentence for people; otherwise the first line of the function's docstring."""
        return self._state(
            "description", "describe", lambda: words.text(description, "describe", "a sentence")
        )

    def timezone(self, name: str) -> Chain:
        """The zone of all the times and days of this task, such as "Europe/Berlin"."""
        return self._state("zone", "timezone", lambda: _checked_zone(name))

    def group(self) -> Group:
        """A with-block whose tasks have all this as their default.

        What a task of the block states itself is put in place of the group's; conditions and hours
        add up. Groups may stand in groups.
        """
        here = place()
        for said in (self._facts.work, self._facts.name, self._facts.former_name, self._facts.description):
            if said is not None:
                raise DefinitionError(
                    f"{said.verb}() belongs to one task",
                    source=here,
                    allowed="group() on what several tasks share",
                )
        if self._group is not None:
            raise DefinitionError("group() was called already", source=here, allowed="one group() of a chain")
        self._group = Group(self._book, self._facts)
        return self._group

    def _state(self, fact: str, verb: str, value: Callable[[], object]) -> Chain:
        here = place()
        try:
            self._book.check_open()
            if self._group is not None:
                raise DefinitionError(
                    f"{verb}() comes too late: these are the settings of a group",
                    allowed=f"{verb}() before group()",
                )
            self._facts.state(fact, Said(value(), verb, here))
        except DefinitionError as error:
            raise error.located(task=self._facts.known_name, source=here) from error.__cause__
        return self


class Group:
    """The with-block of `Chain.group`. Tasks begun in it have the group's settings as their defaults."""

    __slots__ = ("_book", "_depth", "facts", "was_entered")

    def __init__(self, book: Book, facts: Facts) -> None:
        self._book = book
        self._depth = 0
        self.facts = facts
        self.was_entered = False

    def __enter__(self) -> None:
        self.was_entered = True
        self._depth = len(self._book.open_groups)
        self._book.open_groups.append(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._book.open_groups[self._depth :]


class Book:
    """What a schedule has written down: its chains in order, and the groups that are open now."""

    __slots__ = ("chains", "closed", "open_groups")

    def __init__(self) -> None:
        self.chains: list[Chain] = []
        self.open_groups: list[Group] = []
        self.closed = False

    def begin(self, place: str) -> Chain:
        chain = Chain(self, place)
        self.chains.append(chain)
        return chain

    def check_open(self) -> None:
        if self.closed:
            raise DefinitionError(
                "the schedule has been read already",
                allowed="definitions before its tasks are first asked for",
                hint="a task added now would be unknown to what is running",
            )


def _checked_zone(name: str) -> str:
    zone_named(name)
    return name
