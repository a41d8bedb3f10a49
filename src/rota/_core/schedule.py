"""A schedule: all tasks of one application, written as code and frozen when it is first read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ParamSpec

from rota._core.errors import DefinitionError
from rota._core.fluent import work
from rota._core.fluent.chain import Book, Chain, Said
from rota._core.fluent.freeze import freeze
from rota._core.fluent.verbs import Verbs, place
from rota._core.task import Task, Work
from rota._core.zones import zone as zone_named

P = ParamSpec("P")


class Schedule(Verbs[Chain]):
    """All tasks of one application. Every server holds the same schedule and evaluates it alone.

    `name` stands in every key of the store, so it tells applications apart that share one. `timezone`
    is the zone of every task that names none. `store` is a URL or an open store; None leaves the
    choice to ROTA_STORE, and without that to SQLite on this host.

    A task begins with the time (`schedule.daily(at="02:00")`, above a function or with `.do(fn)`) or
    with the work (`schedule.command("...")`). The schedule is read when `tasks` is first asked for:
    then everything is checked, and nothing can be added any more.
    """

    __slots__ = ("_book", "_by_name", "_tasks", "_warnings", "name", "store", "timezone")

    def __init__(self, name: str, *, timezone: str = "UTC", store: object = None) -> None:
        here = place()
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise DefinitionError(
                "this cannot name a schedule",
                argument="name",
                found=name,
                allowed="printable characters, at least one",
                source=here,
            )
        try:
            zone_named(timezone)
        except DefinitionError as error:
            raise error.located(task=None, source=here) from error.__cause__
        self.name = name
        self.timezone = timezone
        self.store = store
        self._book = Book()
        self._tasks: tuple[Task, ...] | None = None
        self._warnings: tuple[str, ...] = ()
        self._by_name: dict[str, Task] = {}

    # -- work

    def call(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Chain:
        """A task that calls this function, or awaits this coroutine function, with these arguments."""
        return self._work("call", lambda: work.function(function, args, kwargs))

    def command(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Chain:
        """A task that runs a program: a text goes to /bin/sh, a list to no shell at all.

        `env` is added to the environment of this process.
        """
        return self._work("command", lambda: work.command(command, cwd, env))

    def module(self, name: str, *args: str) -> Chain:
        """A task that runs `python -m name args` with this interpreter."""
        return self._work("module", lambda: work.module(name, args))

    # -- reading

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in the order of their definition. The first reading checks the schedule and
        closes it; a DefinitionError lists every problem that it has."""
        if self._tasks is None:
            tasks, self._warnings = freeze(self.name, self.timezone, self._book.chains)
            self._by_name = {task.name: task for task in tasks}
            self._tasks = tasks
            self._book.closed = True
        return self._tasks

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed and probably not meant, each with its task and line: "*/45", day 31."""
        _ = self.tasks
        return self._warnings

    def __getitem__(self, name: str) -> Task:
        _ = self.tasks
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        _ = self.tasks
        return name in self._by_name

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __bool__(self) -> bool:
        """True, with or without tasks: to ask whether there is a schedule must not close it."""
        return True

    def __repr__(self) -> str:
        return f"Schedule({self.name!r}, timezone={self.timezone!r})"

    def _work(self, verb: str, value: Callable[[], Work]) -> Chain:
        return self._state("work", verb, value)

    def _state(self, fact: str, verb: str, value: Callable[[], object]) -> Chain:
        here = place()
        try:
            self._book.check_open()
            said = Said(value(), verb, here)
        except DefinitionError as error:
            raise error.located(task=None, source=here) from error.__cause__
        chain = self._book.begin(here)
        chain._facts.state(fact, said)
        return chain
