"""What becomes of a body: every kind of work, every way to end, and what is kept of its output."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from rota._core.errors import RotaError
from rota._core.runs import Outcome
from rota._core.task import Command, Filter, Function, Module, OutputPolicy
from rota._engine.executor import REPR_LIMIT
from rota._engine.output import LIMIT
from rota._engine.run import Run, current_run

from .bench import Bench, task_of


def test_a_function_that_returns_has_succeeded_and_its_value_is_kept(bench: Bench) -> None:
    result = bench.execute(lambda: {"sent": 3})
    assert result.outcome is Outcome.SUCCEEDED
    assert result.output == "{'sent': 3}\n"


def test_a_function_that_returns_nothing_adds_nothing_to_the_output(bench: Bench) -> None:
    assert bench.execute(lambda: None).output == ""


def test_arguments_reach_the_function(bench: Bench) -> None:
    result = bench.execute(Function(lambda a, b: a - b, (7,), {"b": 2}))
    assert result.output == "5\n"


def test_a_function_that_raises_has_failed_and_the_traceback_is_kept(bench: Bench) -> None:
    def send() -> None:
        raise ConnectionError("no route to the bank")

    result = bench.execute(send)
    assert result.outcome is Outcome.FAILED
    assert result.detail == "ConnectionError: no route to the bank"
    assert "in send" in result.output


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(0, Outcome.SUCCEEDED), (None, Outcome.SUCCEEDED), (3, Outcome.FAILED), ("no", Outcome.FAILED)],
)
def test_exit_in_a_function_ends_that_run_alone(bench: Bench, code: object, outcome: Outcome) -> None:
    assert bench.execute(lambda: sys.exit(code)).outcome is outcome


def test_exit_in_a_coroutine_ends_that_run_alone(bench: Bench) -> None:
    async def leave() -> None:
        sys.exit(3)

    assert bench.execute(leave).outcome is Outcome.FAILED
    assert bench.execute(fine).outcome is Outcome.SUCCEEDED


async def fine() -> str:
    await asyncio.sleep(0)
    return "fine"


def test_a_keyboard_interrupt_raised_by_a_function_is_its_failure(bench: Bench) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert bench.execute(interrupted).outcome is Outcome.FAILED


def test_a_value_whose_repr_raises_or_is_endless_does_no_harm(bench: Bench) -> None:
    class Rude:
        def __repr__(self) -> str:
            raise ValueError("no")

    assert bench.execute(Rude).outcome is Outcome.SUCCEEDED
    long = bench.execute(lambda: "x" * 100_000).output
    assert len(long) < REPR_LIMIT + 100


def test_coroutines_share_one_loop_in_another_thread(bench: Bench) -> None:
    loops: list[object] = []

    async def note() -> None:
        loops.append((asyncio.get_running_loop(), threading.current_thread().name))

    bench.execute(note)
    bench.execute(note)
    assert loops[0] == loops[1]
    assert loops[0][1] == "rota-loop"  # type: ignore[index]  # the list holds pairs


def test_bound_methods_partials_and_callable_objects_are_called(bench: Bench) -> None:
    class Mailer:
        def send(self) -> str:
            return "sent"

        def __call__(self) -> str:
            return "called"

    assert bench.execute(Mailer().send).output == "'sent'\n"
    assert bench.execute(Mailer()).output == "'called'\n"
    assert bench.execute(functools.partial(divmod, 7, 2)).output == "(3, 1)\n"


def test_the_run_reaches_a_parameter_that_is_annotated_with_it(bench: Bench) -> None:
    def work(run: Run) -> str:
        return f"{run.occurrence} {run.attempt} {run.fence > 0} {bool(run.lost)}"

    assert bench.execute(work).output == "'task@2026-03-29T01:00:00Z 1 True False'\n"


def test_current_run_is_found_in_functions_and_across_await(bench: Bench) -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return current_run().key

    assert bench.execute(lambda: current_run().key).output == "'task@2026-03-29T01:00:00Z'\n"
    assert bench.execute(work).output == "'task@2026-03-29T01:00:00Z'\n"
    with pytest.raises(RotaError, match="outside a run"):
        current_run()


def test_context_variables_reach_functions_and_coroutines_and_what_they_set_stays_inside(
    bench: Bench,
) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    async def work() -> str:
        tenant.set(tenant.get() + "!")
        return tenant.get()

    token = tenant.set("acme")
    assert bench.execute(lambda: tenant.get()).output == "'acme'\n"
    assert bench.execute(work).output == "'acme!'\n"
    assert tenant.get() == "acme"
    tenant.reset(token)


def test_what_is_printed_logged_and_written_to_standard_error_is_kept_in_order(bench: Bench) -> None:
    def work(run: Run) -> None:
        print("one")
        print("two", file=sys.stderr)
        run.logger.info("three")
        logging.getLogger("shop").warning("four")

    lines = bench.execute(work).output.splitlines()
    assert lines[:2] == ["one", "two"]
    assert "INFO rota.task.task: three" in lines[2]
    assert "WARNING shop: four" in lines[3]


LOGS_LATE = """
import sys
from datetime import UTC, datetime
from rota import Run
from rota._core.task import Function
from tests.engine.bench import Bench, task_of

def first_of_all():
    import logging
    logging.getLogger("shop").warning("one")

def by_its_run(run: Run):
    run.logger.info("two")

assert "logging" not in sys.modules
bench = Bench()
for work in (first_of_all, by_its_run):
    print(repr(bench.execute(work).output))
"""


def test_a_log_that_is_imported_only_inside_a_run_is_kept_as_well() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGS_LATE],
        cwd=Path(__file__).parents[2],
        text=True,
        capture_output=True,
        check=True,
    )
    first, second = done.stdout.splitlines()
    assert "one" in first
    assert "INFO rota.task.task: two" in second


def test_the_output_of_two_runs_that_go_on_at_once_does_not_mix(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    both = threading.Barrier(3)
    results = {}

    def work(word: str) -> None:
        print(word)
        both.wait(10)
        print(word)

    def carry(word: str) -> None:
        results[word] = bench.execute(Function(work, (word,)))

    threads = [threading.Thread(target=carry, args=(word,)) for word in ("a", "b")]
    for thread in threads:
        thread.start()
    both.wait(10)
    for thread in threads:
        thread.join(10)
    print("mine")
    assert {word: result.output for word, result in results.items()} == {"a": "a\na\n", "b": "b\nb\n"}
    assert capsys.readouterr().out == "mine\n"


def test_long_output_keeps_its_beginning_and_its_end_and_says_what_was_cut(bench: Bench) -> None:
    result = bench.execute("echo first; seq 1 200000; echo last")
    assert result.output.startswith("first\n1\n")
    assert result.output.endswith("199999\n200000\nlast\n")
    assert "characters cut" in result.output
    assert len(result.output) < LIMIT + 100


def test_output_goes_to_a_file_as_well_and_a_second_run_is_appended(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    policy = OutputPolicy(str(path))
    bench.execute("echo ünïcode", output=policy)
    bench.execute(lambda: print("\udcff again"), output=policy)
    assert path.read_text(encoding="utf-8") == "ünïcode\n\\udcff again\n"


def test_a_file_that_cannot_be_written_fails_the_run_and_says_which(bench: Bench, tmp_path: Path) -> None:
    result = bench.execute("echo", output=OutputPolicy(str(tmp_path / "no" / "out.log")))
    assert result.outcome is Outcome.FAILED
    assert "out.log" in result.detail


def test_output_is_passed_through_to_our_standard_output(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.execute("echo hello", output=OutputPolicy(echo=True))
    assert capsys.readouterr().out == "hello\n"


def test_a_command_succeeds_by_its_exit_code_and_its_streams_are_kept(bench: Bench) -> None:
    result = bench.execute("echo one; echo two >&2; echo three; echo four")
    assert result.outcome is Outcome.SUCCEEDED
    assert result.output == "one\ntwo\nthree\nfour\n"


def test_a_command_fails_by_its_exit_code(bench: Bench) -> None:
    result = bench.execute("exit 3")
    assert (result.outcome, result.detail) == (Outcome.FAILED, "exit code 3")


def test_a_command_that_is_killed_says_by_which_signal(bench: Bench) -> None:
    assert bench.execute("kill -9 $$").detail == "killed by SIGKILL"


def test_no_shell_sees_a_list_of_arguments(bench: Bench) -> None:
    assert bench.execute(Command(("echo", "$HOME; *", "a  b"))).output == "$HOME; * a  b\n"


def test_a_program_that_is_not_there_is_a_failure_with_its_name(bench: Bench) -> None:
    result = bench.execute(Command(("no-such-program-anywhere",)))
    assert result.outcome is Outcome.FAILED
    assert "no-such-program-anywhere" in result.detail


def test_a_module_is_run_by_this_interpreter(bench: Bench) -> None:
    result = bench.execute(Module("this", ()))
    assert result.outcome is Outcome.SUCCEEDED
    assert "Namespaces are one honking great idea" in result.output


def test_a_command_knows_its_occurrence_attempt_and_fence(bench: Bench) -> None:
    result = bench.execute('echo "$ROTA_TASK $ROTA_OCCURRENCE $ROTA_ATTEMPT $ROTA_FENCE"')
    assert result.output == "task task@2026-03-29T01:00:00Z 1 1\n"


def test_a_command_has_its_folder_and_its_variables(bench: Bench, tmp_path: Path) -> None:
    result = bench.execute(Command("pwd; echo $SHOP", str(tmp_path), {"SHOP": "acme"}))
    assert result.output == f"{tmp_path}\nacme\n"


def test_bytes_that_are_not_utf8_are_replaced_and_do_no_harm(bench: Bench) -> None:
    result = bench.execute(r"printf 'gr\303\274\303\237e \360\237\232\200 \377 end'")
    assert result.outcome is Outcome.SUCCEEDED
    assert result.output == "grüße 🚀 � end"


def test_a_character_cut_in_two_by_the_pipe_is_whole_again(bench: Bench) -> None:
    result = bench.execute(r"printf '\303'; sleep 0.2; printf '\274'")
    assert result.output == "ü"


def test_a_command_over_its_time_limit_is_ended_with_its_whole_group(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    result = bench.execute(f"sleep 60 & echo $! > {path}; wait", time_limit=timedelta(seconds=0.3))
    assert result.outcome is Outcome.TIMED_OUT
    assert ended(int(path.read_text()))


def test_a_command_that_ignores_term_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota._engine.executor.STOP_TIME", 0.3)
    result = bench.execute("trap '' TERM; while :; do sleep 0.05; done", time_limit=timedelta(seconds=0.3))
    assert result.outcome is Outcome.TIMED_OUT


def test_a_coroutine_over_its_time_limit_is_cancelled(bench: Bench) -> None:
    cancelled = threading.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    assert bench.execute(slow, time_limit=timedelta(seconds=0.2)).outcome is Outcome.TIMED_OUT
    assert cancelled.is_set()


def test_a_function_over_its_time_limit_is_told(bench: Bench) -> None:
    def slow(run: Run) -> str:
        return "told" if run.lost.wait(30) else "not told"

    result = bench.execute(slow, time_limit=timedelta(seconds=0.2))
    assert result.outcome is Outcome.TIMED_OUT
    assert "told" in result.output


def test_a_run_whose_trust_ends_is_told_and_its_command_is_stopped(bench: Bench) -> None:
    began = time.monotonic()
    run = bench.run_of(task_of("sleep 60"), seconds_of_trust=0.3)
    assert bench.executor.execute(run).outcome is Outcome.LOST
    assert time.monotonic() - began < 30
    told = bench.run_of(task_of(lambda: current_run().lost.wait(30)), seconds_of_trust=0.3)
    assert bench.executor.execute(told).output == "True\n"


def test_a_run_that_is_told_to_stop_is_cancelled_and_says_by_what(bench: Bench) -> None:
    run = bench.run_of(task_of("sleep 60"))
    threading.Timer(0.2, run.stop, args=("SIGTERM",)).start()
    result = bench.executor.execute(run)
    assert (result.outcome, result.detail) == (Outcome.CANCELLED, "stopped by SIGTERM")


def test_a_grandchild_that_keeps_the_output_open_does_not_hold_the_run(bench: Bench) -> None:
    began = time.monotonic()
    result = bench.execute("echo out; sleep 30 & echo $!")
    os.kill(int(result.output.split()[1]), signal.SIGKILL)
    assert result.outcome is Outcome.SUCCEEDED
    assert time.monotonic() - began < 15


def test_the_first_filter_that_forbids_is_named(bench: Bench) -> None:
    async def closed() -> bool:
        return False

    def judge(*filters: Filter) -> object:
        return bench.executor.judge(task_of("echo", filters=filters))

    assert judge(Filter("when", True, True), Filter("skip", lambda: 0, False)) is None
    verdict = judge(Filter("when", closed, True), Filter("when", False, True))
    assert isinstance(verdict, Filter)
    assert verdict.label.startswith("when(")
    assert isinstance(judge(Filter("when", lambda: 1 / 0, True)), ZeroDivisionError)


def test_a_filter_that_calls_exit_breaks_its_own_task_only(bench: Bench) -> None:
    verdict = bench.executor.judge(task_of("echo", filters=(Filter("when", lambda: sys.exit(1), True),)))
    assert isinstance(verdict, RuntimeError)


def test_a_filter_that_hangs_is_left_behind(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    task = task_of("echo", filters=(Filter("when", hangs.wait, True),))
    monkeypatch.setattr(type(task), "patience", timedelta(seconds=0.2))
    verdict = bench.executor.judge(task)
    hangs.set()
    assert isinstance(verdict, TimeoutError)


def ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that its new parent has yet to reap; waited for briefly."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False
