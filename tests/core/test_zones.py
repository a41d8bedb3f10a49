"""Zones: names, stretches of constant offset, and the daylight-saving rule in every zone there is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zlib import crc32
from zoneinfo import ZoneInfo, available_timezones

import pytest

from rota import DefinitionError
from rota._core import zones
from rota._core.triggers import Cron, Every, Trigger

MINUTE = timedelta(minutes=1)
BEGIN, END = datetime(2015, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)


@cache
def names() -> list[str]:
    return sorted(available_timezones() - {"localtime", "posixrules", "Factory"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", "did you mean Europe/Berlin"),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("Berlin", "did you mean Europe/Berlin?"),
        ("new york", "did you mean America/New_York?"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest_name(name: str, hint: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        zones.zone(name)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    "name", ["", "localtime", "right/Europe/Berlin", "../etc/passwd", "/etc/localtime", "a\0b"]
)
def test_a_name_that_depends_on_the_host_or_leaves_the_database_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="there is no time zone"):
        zones.zone(name)


def test_a_naive_instant_is_refused_with_the_reason() -> None:
    with pytest.raises(DefinitionError, match="without a time zone is not an instant"):
        zones.seconds(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_the_wall_of_an_instant_is_what_zoneinfo_shows() -> None:
    instant = datetime(2026, 10, 25, 1, 30, 0, 5, tzinfo=UTC)
    shown = zones.wall_of("Europe/Berlin", instant)
    assert shown == instant.astimezone(ZoneInfo("Europe/Berlin")).replace(tzinfo=None)


def changes(name: str, first: datetime, last: datetime) -> list[tuple[datetime, int, int]]:
    """(instant, offset before, offset after), from asking zoneinfo every five days and halving."""
    where, found = ZoneInfo(name), []

    def offset(at: datetime) -> int:
        shift = at.astimezone(where).utcoffset()
        assert shift is not None
        return shift.days * 86_400 + shift.seconds

    at, before = first, offset(first)
    while at < last:
        low, high = at, at + timedelta(days=5)
        after = offset(high)
        if after != before:
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) // timedelta(seconds=2) * timedelta(seconds=1)
                low, high = (middle, high) if offset(middle) == before else (low, middle)
            found.append((high, before, after))
        at, before = at + timedelta(days=5), after
    return found


@cache
def changes_of(name: str) -> list[tuple[datetime, int, int]]:
    return changes(name, BEGIN, END)


@cache
def all_changes() -> list[tuple[str, datetime, int, int]]:
    """One for each kind of change (time of day and both offsets) in 2015-2030, over all zones."""
    kinds: dict[tuple[object, int, int], tuple[str, datetime, int, int]] = {}
    for name in names():
        for at, old, new in changes_of(name):
            kinds.setdefault((at.time(), old, new), (name, at, old, new))
    return list(kinds.values())


@pytest.mark.parametrize(
    "name", ["Europe/Berlin", "Africa/Casablanca", "Australia/Lord_Howe", "America/Caracas", "Asia/Gaza"]
)
def test_stretches_change_exactly_where_zoneinfo_changes(name: str) -> None:
    begin = datetime(1960, 1, 1, tzinfo=UTC)
    first, last = zones.seconds(begin), zones.seconds(END)
    found = [
        (zones.instant_of(new.start), old.offset, new.offset)
        for old, new in pairwise(zones.stretches(name, first, last))
        if old.offset != new.offset
    ]
    assert found == [change for change in changes(name, begin, END) if change[0] < END]


# -- the rule, minute by minute, written without any of the code under test

Matches = Callable[[datetime], bool]

RULES: dict[str, tuple[bool, Matches]] = {
    "30 2 * * *": (True, lambda at: (at.hour, at.minute) == (2, 30)),
    "0 0 * * *": (True, lambda at: (at.hour, at.minute) == (0, 0)),
    "45 1 * * *": (True, lambda at: (at.hour, at.minute) == (1, 45)),
    "0-59/20 0-4 * * *": (True, lambda at: at.hour < 5 and at.minute % 20 == 0),
    "15 22-3 * * *": (True, lambda at: (at.hour >= 22 or at.hour < 4) and at.minute == 15),
    "*/10 * * * *": (False, lambda at: at.minute % 10 == 0),
    "0 */2 * * *": (False, lambda at: at.hour % 2 == 0 and at.minute == 0),
    "* 2 * * *": (False, lambda at: at.hour == 2),
    "30 * * * *": (False, lambda at: at.minute == 30),
}


def simulated(matches: Matches, fixed: bool, walls: list[tuple[datetime, datetime]]) -> Iterator[datetime]:
    """Rule V over (instant, wall) pairs, one a minute."""
    seen, before = set(), walls[0][1] - MINUTE
    for instant, wall in walls:
        jump = wall - before - MINUTE
        made_up = (
            fixed
            and timedelta(0) < jump <= timedelta(hours=3)
            and any(
                matches(before + MINUTE * n) and before + MINUTE * n not in seen
                for n in range(1, jump // MINUTE + 1)
            )
        )
        if made_up or (matches(wall) and not (fixed and wall in seen)):
            yield instant
        seen.add(wall)
        before = wall


def test_every_kind_of_change_in_every_zone_agrees_with_a_simulation_of_the_rule() -> None:
    assert len(all_changes()) > 60
    for name, at, old, new in all_changes():
        where, start = ZoneInfo(name), at - timedelta(hours=5)
        walls = []
        for n in range(10 * 60):
            instant = start + n * MINUTE
            walls.append((instant, instant.astimezone(where).replace(tzinfo=None)))
        for text, (fixed, matches) in RULES.items():
            trigger, end = Cron.parse(text, zone=name), walls[-1][0]
            expected = list(simulated(matches, fixed, walls))
            told = (name, text, at, old, new)
            assert list(trigger.between(start - timedelta(microseconds=1), end)) == expected, told
            assert list(backwards(trigger, start, end))[::-1] == expected, told


EVERYWHERE: dict[str, tuple[bool, Matches]] = {
    text: RULES[text] for text in ("30 2 * * *", "0 0 * * *", "*/10 * * * *", "0 */2 * * *", "30 * * * *")
} | {
    "0 1 * * *": (True, lambda at: (at.hour, at.minute) == (1, 0)),
    "15,45 1-3 * * *": (True, lambda at: 1 <= at.hour <= 3 and at.minute in (15, 45)),
    "0 0,2,3 1 * *": (True, lambda at: at.day == 1 and at.hour in (0, 2, 3) and at.minute == 0),
}
NIGHT = timedelta(hours=4)


@cache
def night_of(at: datetime, old: int, new: int) -> dict[str, list[datetime]]:
    """What the rule gives around a change; every zone that makes it at this instant has the same."""
    walls = []
    for n in range(-NIGHT // MINUTE, NIGHT // MINUTE + 1):
        offset = timedelta(seconds=new if n >= 0 else old)
        walls.append((at + n * MINUTE, (at + n * MINUTE + offset).replace(tzinfo=None)))
    return {text: list(simulated(matches, fixed, walls)) for text, (fixed, matches) in EVERYWHERE.items()}


def agrees_around(name: str, at: datetime, old: int, new: int) -> None:
    for text, expected in night_of(at, old, new).items():
        trigger, told = Cron.parse(text, zone=name), (name, text, at, old, new)
        assert list(trigger.between(at - NIGHT - timedelta(microseconds=1), at + NIGHT)) == expected, told
        assert list(backwards(trigger, at - NIGHT, at + NIGHT))[::-1] == expected, told


@pytest.mark.slow
def test_every_zone_agrees_with_the_simulation_at_a_gap_and_a_fold_of_its_own() -> None:
    places = 0
    for name in names():
        found = changes_of(name)
        for kind in ([each for each in found if (each[2] > each[1]) is forward] for forward in (True, False)):
            if kind:
                agrees_around(name, *kind[crc32(name.encode()) % len(kind)])
                places += 1
    assert places > 300


@pytest.mark.slow
def test_every_zone_agrees_with_the_simulation_at_each_of_its_changes_from_2015_to_2030() -> None:
    every = [(name, *change) for name in names() for change in changes_of(name)]
    assert len(every) > 5_000
    for name, at, old, new in every:
        agrees_around(name, at, old, new)


def backwards(trigger: Trigger, start: datetime, end: datetime) -> Iterator[datetime]:
    found = trigger.previous(end + timedelta(microseconds=1))
    while found is not None and found >= start:
        yield found
        found = trigger.previous(found)


@pytest.mark.parametrize(
    ("name", "text", "after", "found"),
    [
        # 1969: Kwajalein went from +11 to -12: 23 hours that come twice; a fixed time runs once
        (
            "Pacific/Kwajalein",
            "0 12 * * *",
            "1969-09-29T20:00+00:00",
            ["1969-09-30T01:00", "1969-10-02T00:00"],
        ),
        # 2011: Apia lost a day, and 3 h is the most that is made up
        ("Pacific/Apia", "30 0 30 12 *", "2011-12-01T00:00+00:00", ["2012-12-29T10:30"]),
    ],
)
def test_shifts_of_most_of_a_day_follow_the_same_rule(
    name: str, text: str, after: str, found: list[str]
) -> None:
    at: datetime | None = datetime.fromisoformat(after)
    got = []
    for _ in found:
        assert at is not None
        at = Cron.parse(text, zone=name).next(at)
        assert at is not None
        got.append(at.replace(tzinfo=None).isoformat(timespec="minutes"))
    assert got == found


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_the_ends_of_the_calendar_are_an_answer_and_not_an_error(name: str) -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    for trigger in (
        Cron.parse("0 0 29 2 *", zone=name),
        Every(timedelta(days=5), zone=name),
        Every(timedelta(seconds=7)),
    ):
        assert trigger.next(last) is None
        assert trigger.previous(first) is None
        assert trigger.next(first) is not None
        assert trigger.previous(last) is not None


def test_answers_do_not_depend_on_the_zone_of_the_host() -> None:
    code = (
        "from datetime import *; from rota._core.triggers import Cron\n"
        "at = datetime(2022, 10, 29, 12, tzinfo=UTC)\n"
        "for zone in 'UTC', 'Europe/Berlin':\n"
        "    print(*Cron.parse('0,1,30,59 1 * * *', zone=zone).between(at, at + timedelta(days=2)))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "TZ": host},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for host in ("UTC", "Europe/London")
    }
    assert len(answers) == 1
