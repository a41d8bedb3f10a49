"""What `rota check` makes of the facts, rule by rule; and how servers sign in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rota import Schedule
from rota._core.leases import Lease
from rota._core.value import replace
from rota._engine import presence
from rota._engine.checking import Facts, Finding, Level, findings, is_local, survey
from rota._engine.events import Event, StoreConcern
from rota._engine.presence import KEPT, Me, Present, fingerprint, identity, present, sign_in
from rota._engine.server import Server
from rota.stores.base import Guarantees, Look, Shared
from rota.stores.memory import MemoryStore

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ME = Me("web-1", "11111111", "UTC", "abcdef00", 3, "1.0")

NETWORK = Guarantees(
    shared=Shared.NETWORK,
    durable=True,
    clock="the server",
    grain=timedelta(microseconds=1),
    fenced=True,
    lists_rows=True,
)


def here(name: str, number: int = 1, *, ago: timedelta = MINUTE, **changes: object) -> Present:
    me = replace(ME, name=name, id=f"{number:08d}", **changes)
    return Present(me, NOW - timedelta(hours=3), NOW - ago, NOW - ago)


MINE = Present(ME, NOW - timedelta(hours=3), NOW, NOW - MINUTE)


def facts(*others: Present, **changes: object) -> Facts:
    all_fine = Facts(
        me=ME,
        environment="production",
        namespace="shop/production",
        store="redis://cache.internal:6379/0",
        local=False,
        guarantees=NETWORK,
        now=NOW,
        round_trip=timedelta(milliseconds=1),
        offset=timedelta(milliseconds=2),
        concerns=(),
        servers=(MINE, *others),
        tasks=(),
    )
    return replace(all_fine, **changes)


def told(found: list[Finding], level: Level) -> list[str]:
    return [f"{each.about}: {each.words}" for each in found if each.level is level]


def the_only(level: Level, found: Facts) -> str:
    (words,) = told(findings(found), level)
    return words


def stated() -> Schedule:
    schedule = Schedule("shop")
    schedule.command("true").name("invoices").every(minutes=5).on_one_server()
    return schedule


def test_where_all_is_fine_nothing_else_is_said() -> None:
    found = findings(facts(here("web-2"), expected=2))
    assert {each.level for each in found} == {Level.FINE}
    assert told(found, Level.FINE) == [
        "store: answers in 1.0 ms",
        "servers: 2 are on this store: web-1, web-2",
        "clock: within 2.0 ms of the store's",
    ]


@pytest.mark.parametrize("shared", [Shared.HOST, Shared.PROCESS])
def test_one_server_stated_on_a_store_that_does_not_reach_further_is_an_error(shared: Shared) -> None:
    found = facts(guarantees=replace(NETWORK, shared=shared), tasks=stated().tasks)
    assert f"on_one_server() of invoices is promised on this {shared} only" in the_only(Level.ERROR, found)


def test_unstated_it_is_told_and_no_error() -> None:
    schedule = Schedule("shop")
    schedule.command("true").name("invoices").every(minutes=5)
    found = findings(facts(guarantees=replace(NETWORK, shared=Shared.HOST), tasks=schedule.tasks))
    assert told(found, Level.ERROR) == told(found, Level.WARNING) == []
    assert "holds for this host only" in told(found, Level.FINE)[0]


def test_fewer_servers_than_expected_are_an_error_with_the_likely_reason() -> None:
    elsewhere = the_only(Level.ERROR, facts(expected=3))
    assert "only 1 of 3 expected servers is on this store: web-1" in elsewhere
    assert "another store or environment than redis://cache.internal:6379/0, shop/production" in elsewhere
    local = the_only(Level.ERROR, facts(expected=3, local=True, store="redis://127.0.0.1:6379"))
    assert "your own local store: redis://127.0.0.1:6379 means another one on every host" in local


def test_a_server_that_has_fallen_silent_is_not_counted() -> None:
    found = findings(facts(here("web-2", ago=80 * MINUTE), expected=2))
    assert "only 1 of 2" in told(found, Level.ERROR)[0]
    assert told(found, Level.WARNING) == [
        "cron: web-2 last ticked 1 h 20 min ago: does cron fire there? (It is forgotten after 1 d.)"
    ]


def test_a_local_address_is_told_while_nobody_else_is_seen() -> None:
    assert "your own local store" in the_only(Level.WARNING, facts(local=True))
    assert told(findings(facts(here("web-2"), local=True)), Level.WARNING) == []


@pytest.mark.parametrize(
    ("offset", "words"),
    [(timedelta(seconds=65), "1 min 5 s behind"), (-timedelta(hours=1), "1 h ahead of")],
)
def test_a_clock_that_is_off_is_told(offset: timedelta, words: str) -> None:
    assert f"the clock of this host is {words} the store's" in the_only(Level.WARNING, facts(offset=offset))


def test_the_grain_of_the_stores_clock_is_allowed_for() -> None:
    coarse = replace(NETWORK, grain=timedelta(seconds=1))
    assert told(findings(facts(offset=timedelta(seconds=5.5), guarantees=coarse)), Level.WARNING) == []
    assert told(findings(facts(offset=timedelta(seconds=5.5))), Level.WARNING)


def test_what_the_store_is_concerned_about_is_a_warning() -> None:
    assert the_only(Level.WARNING, facts(concerns=["it evicts"])) == "store: it evicts"


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({"fingerprint": "00000000"}, "schedule"),
        ({"version": "2.0"}, "rota"),
        ({"timezone": "Europe/Berlin"}, "time zone"),
    ],
)
def test_servers_on_different_versions_are_told(changes: dict[str, object], about: str) -> None:
    words = the_only(Level.WARNING, facts(here("web-2", **changes), here("web-3", 2, **changes)))
    assert words.startswith(f"{about}: servers are on different versions: ")
    assert "web-1" in words
    assert "on web-2, web-3" in words
    silent = here("web-2", ago=80 * MINUTE, **changes)
    assert [w for w in told(findings(facts(silent)), Level.WARNING) if w.startswith(about)] == []


def test_two_servers_of_one_name_at_the_same_time_are_told() -> None:
    assert "2 servers call themselves web-1" in the_only(Level.WARNING, facts(here("web-1", 2)))
    before = Present(replace(ME, id="00000002"), NOW - timedelta(hours=9), NOW - timedelta(hours=4), None)
    words = told(findings(facts(before)), Level.WARNING)
    assert [each for each in words if "call themselves" in each] == []


def test_a_host_on_which_cron_has_never_ticked_is_told() -> None:
    found = facts(servers=(replace(MINE, ticked=None),))
    assert "rota run has not ticked on this host" in the_only(Level.WARNING, found)


def test_this_host_is_judged_by_its_ticks_and_not_by_being_checked() -> None:
    found = facts(servers=(replace(MINE, ticked=NOW - 80 * MINUTE),))
    assert "this server last ticked 1 h 20 min ago" in the_only(Level.WARNING, found)


def test_the_gravest_is_said_first() -> None:
    found = findings(facts(expected=3, concerns=["it evicts"], offset=timedelta(hours=1)))
    assert [each.level for each in found] == sorted(
        (each.level for each in found), key=[Level.ERROR, Level.WARNING, Level.FINE].index
    )


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("redis://localhost:6379/0", True),
        ("redis://user:pw@127.0.0.1/0", True),
        ("redis://[::1]/0", True),
        ("postgresql:///shop?host=/var/run/postgresql", True),
        ("postgresql://%2Fvar%2Frun/shop", True),
        ("mysql://root@db/shop?unix_socket=/run/mysql.sock", True),
        ("redis+unix:///run/redis.sock", True),
        ("sqlite:///rota.db", True),
        ("memory:", True),
        ("redis://cache.internal/0", False),
        ("postgresql://user@10.0.0.4/shop", False),
        ("redis.client.Redis", False),
    ],
)
def test_a_local_address_is_one_that_means_another_store_on_every_host(url: str, local: bool) -> None:
    assert is_local(url) is local


# -- signing in


def test_what_a_server_says_of_itself_is_read_back() -> None:
    request = sign_in(ME, NOW)
    lease = Lease(request.key, request.token, request.owner, NOW, NOW + KEPT, 1, 0, request.note)
    assert present([lease]) == [Present(ME, NOW, NOW, NOW)]
    odd = replace(ME, name="a/b: ü")
    again = sign_in(odd, None)
    assert present([replace(lease, key=again.key, note=again.note)]) == [Present(odd, NOW, NOW, None)]


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"version": 1}', "null", '{"ticked": "x"}'])
def test_what_is_no_sign_in_is_left_out(note: str) -> None:
    lease = Lease("server:web-1/1", "t", "o", NOW, NOW, 1, 0, note)
    assert present([lease, replace(lease, key="run:a")]) == []


def test_the_identity_stays_with_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_STATE_DIR", str(tmp_path / "a"))
    mine = identity()
    assert identity() == mine
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["server-id"]
    monkeypatch.setenv("ROTA_STATE_DIR", str(tmp_path / "b"))
    assert identity() != mine


def test_without_a_folder_the_boot_is_the_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROTA_STATE_DIR", str(tmp_path / "file" / "below"))
    assert identity() == identity() == presence._boot()


def test_the_fingerprint_is_that_of_names_times_and_policies_not_of_the_work() -> None:
    def schedule(command: str = "true", minutes: int = 5, name: str = "a") -> str:
        made = Schedule("shop")
        made.command(command).name(name).every(minutes=minutes)
        return fingerprint(made.tasks)

    assert schedule() == schedule(command="/srv/app/releases/121/run")
    assert len({schedule(), schedule(minutes=10), schedule(name="b")}) == 3


def test_a_tick_signs_in_and_a_check_keeps_its_instant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("ROTA_SERVER", "web-1")
    store = MemoryStore()
    schedule = Schedule("shop", store=store)
    with Server(schedule) as server:
        (never,) = survey(server).servers
        server.run()
        (ticked,) = present(store.look(Look({}, NOW)).leases)
    with Server(schedule) as server:
        (checked,) = survey(server).servers
    assert never.ticked is None
    assert ticked.me == checked.me == never.me
    assert ticked.ticked is not None
    assert checked.ticked == ticked.ticked
    assert never.since == checked.since
    assert checked.seen > ticked.seen


def test_what_a_store_is_concerned_about_is_told_by_the_tick_that_prunes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Worried(MemoryStore):
        def concerns(self) -> list[str]:
            return ["it evicts"]

    monkeypatch.setenv("ROTA_STATE_DIR", str(tmp_path))
    heard: list[Event] = []
    for _ in range(2):
        with Server(Schedule("shop", store=Worried()), heard.append) as server:
            server.run()
    assert heard == [StoreConcern("it evicts")]
