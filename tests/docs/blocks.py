"""Find the code blocks of a Markdown page, and run them one after another as its reader would.

A comment directly before a block says how it is meant; several may stand together:

    <!-- not run: why -->       shown only
    <!-- file: schedule.py -->  written to that file for later blocks; Python files are run once
    <!-- output -->             what the Python block before it prints
    <!-- exit: 1 -->            the status with which the last command of a console block ends

`text` blocks are figures and need no comment. All blocks of a page share one folder, one Python
namespace and one shell: what one of them defines, exports or writes, the next ones see.
"""

from __future__ import annotations

import doctest
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Self

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.front_matter import front_matter_plugin
from mdit_py_plugins.myst_blocks import myst_block_plugin

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds that one command of a page may take."""

MARK = re.compile(r"(not run|file|output|exit)(?:\s*:\s*(.*))?", re.DOTALL)
CODE_DIRECTIVES = {"code", "code-block", "code-cell", "sourcecode", "doctest", "testcode", "prompt"}


class Kind(Enum):
    """How a block is treated."""

    NOT_RUN = auto()
    FIGURE = auto()
    FILE = auto()
    OUTPUT = auto()
    PYTHON = auto()
    DOCTEST = auto()
    CONSOLE = auto()
    SCRIPT = auto()
    UNEXPLAINED = auto()


@dataclass(frozen=True, slots=True)
class Block:
    """One code block: where it stands, what it says, and the comments directly before it."""

    page: Path
    line: int
    language: str
    text: str
    marks: Mapping[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        page = self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page
        return f"{page}:{self.line}"

    @property
    def kind(self) -> Kind:
        if "not run" in self.marks:
            return Kind.NOT_RUN if self.marks["not run"] else Kind.UNEXPLAINED
        if "file" in self.marks:
            return Kind.FILE if self.marks["file"] else Kind.UNEXPLAINED
        match self.language:
            case "text":
                return Kind.OUTPUT if "output" in self.marks else Kind.FIGURE
            case "python" | "pycon":
                return Kind.DOCTEST if self.text.lstrip().startswith(">>>") else Kind.PYTHON
            case "console":
                return Kind.CONSOLE
            case "sh" | "bash":
                return Kind.SCRIPT
            case _:
                return Kind.UNEXPLAINED


# -- finding


def pages() -> list[Path]:
    """Every page whose blocks must run."""
    docs = (path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
    return [ROOT / "README.md", *sorted(docs)]


def blocks_of(page: Path) -> list[Block]:
    """All code blocks of a page, also those inside admonitions and other directives."""
    return list(_walk(page, page.read_text(encoding="utf-8"), first_line=1))


def _walk(page: Path, text: str, *, first_line: int) -> Iterator[Block]:
    marks: dict[str, str] = {}
    for token in _parser().parse(text):
        line = first_line + (token.map[0] if token.map else 0)
        if token.type in ("html_block", "myst_line_comment"):
            marks |= _marks(token)
            continue
        if token.type in ("fence", "colon_fence", "code_block"):
            language = token.info.strip().split(" ")[0]
            directive = re.match(r"\{([\w-]+)\}", language)
            if directive and directive[1] not in CODE_DIRECTIVES:
                yield from _walk(page, token.content, first_line=line + 1)
            else:
                yield Block(page, line, language, token.content, marks)
        marks = {}


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark")
    return parser.use(front_matter_plugin).use(colon_fence_plugin).use(myst_block_plugin)


def _marks(comment: Token) -> dict[str, str]:
    texts = (
        re.findall(r"<!--\s*(.*?)\s*-->", comment.content, re.DOTALL)
        if comment.type == "html_block"
        else comment.content.splitlines()
    )
    found = (MARK.fullmatch(text.strip()) for text in texts)
    return {mark[1]: (mark[2] or "").strip() for mark in found if mark}


# -- comparing

LOOSE = [
    (re.compile(r"(?<!\d)\d{4}-\d\d-\d\dT?"), "<date> "),
    (re.compile(r"(?<!\d)\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?\b"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? ?(us|ms|s|min|h)\b"), "<duration>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"\bpid \d+"), "pid <n>"),
]


def is_alike(shown: str, printed: str) -> bool:
    """Whether what was printed is what the page shows.

    White space, dates, times, durations, process ids and long hexadecimal names may differ; `...`
    stands for anything.
    """
    parts = [re.escape(part) for part in _loosened(shown).split("...")]
    return re.fullmatch(".*".join(parts), _loosened(printed), re.DOTALL) is not None


def _loosened(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    text = "\n".join(line for line in lines if line)
    for pattern, name in LOOSE:
        text = pattern.sub(name, text)
    return text


# -- running


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block, and the output that the page shows for it, if any."""

    line: str
    shown: str
    is_interrupted: bool = False


def commands_of(text: str) -> list[Command]:
    """The commands after `$ ` (continued by a backslash or `> `); a last `^C` means Ctrl-C."""
    commands: list[Command] = []
    for chunk in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = chunk.splitlines()
        end = 1
        while end < len(lines) and (lines[end - 1].endswith("\\") or lines[end].startswith("> ")):
            lines[end] = lines[end].removeprefix("> ")
            end += 1
        shown = lines[end:]
        is_interrupted = bool(shown) and shown[-1].strip() == "^C"
        if is_interrupted:
            shown.pop()
        commands.append(Command("\n".join(lines[:end]), "\n".join(shown), is_interrupted))
    return commands


class Reader:
    """Somebody who follows one page in an empty folder, as a context manager.

    Python runs in this process, in a module of its own; so the current folder and `sys.path` are
    changed until the end. Whatever a page leaves running is ended then.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "page"
        self._state = folder / "state"
        self._printed = ""
        self._module = ModuleType("page")
        self._cwd = str(self.folder)
        self._groups: list[int] = []
        binaries = str(Path(sys.executable).parent)
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")} | {
            "COLUMNS": "100",
            "HOME": str(self.folder),
            "NO_COLOR": "1",
            "PATH": os.pathsep.join((binaries, os.environ.get("PATH", os.defpath))),
            "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "error",
        }

    def __enter__(self) -> Self:
        self.folder.mkdir()
        self._outside = Path.cwd(), list(sys.path)
        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder))
        sys.modules["page"] = self._module
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.chdir(self._outside[0])
        sys.path[:] = self._outside[1]
        for name, module in list(sys.modules.items()):
            if module is self._module or str(getattr(module, "__file__", "")).startswith(f"{self.folder}/"):
                del sys.modules[name]
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def follow(self, blocks: Sequence[Block]) -> None:
        """Do what each block says; AssertionError where the page and the truth differ."""
        for block in blocks:
            try:
                self._do(block)
            except Exception as error:
                error.add_note(f"in the block at {block.where}")
                raise

    def _do(self, block: Block) -> None:
        match block.kind:
            case Kind.FILE:
                self._write(block)
            case Kind.PYTHON:
                self._execute(block)
            case Kind.DOCTEST:
                self._doctest(block)
            case Kind.OUTPUT:
                assert is_alike(block.text, self._printed), _difference("python", block.text, self._printed)
            case Kind.CONSOLE:
                self._console(block)
            case Kind.SCRIPT:
                status, printed = self._shell(f"set -e\n{block.text}")
                assert status == 0, f"ended with {status}:\n{printed}"
            case _:
                pass

    def _write(self, block: Block) -> None:
        path = Path(self._cwd, block.marks["file"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        if path.suffix == ".py":
            status, printed = self._shell(f"python -c 'import runpy; runpy.run_path(\"{path.name}\")'")
            assert status == 0, printed

    def _execute(self, block: Block) -> None:
        # The line numbers of the page, so that a traceback points into it.
        source = "\n" * block.line + block.text
        code = compile(source, str(block.page), "exec", dont_inherit=True)
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(code, self._module.__dict__)
        self._printed = printed.getvalue()

    def _doctest(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(
            block.text, self._module.__dict__, block.where, str(block.page), block.line
        )
        test.globs = self._module.__dict__
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        report = io.StringIO()
        runner.run(test, out=report.write, clear_globs=False)
        assert runner.failures == 0, report.getvalue()

    def _console(self, block: Block) -> None:
        commands = commands_of(block.text)
        assert commands, "a console block without a `$ ` shows nothing that can be run"
        for command in commands:
            status, printed = self._shell(
                command.line, until=command.shown if command.is_interrupted else None
            )
            expected = int(block.marks.get("exit", "0")) if command is commands[-1] else 0
            if not command.is_interrupted:
                assert status == expected, f"$ {command.line}\nended with {status}:\n{printed}"
            if command.shown:
                assert is_alike(command.shown, printed), _difference(command.line, command.shown, printed)

    def _shell(self, script: str, *, until: str | None = None) -> tuple[int, str]:
        """Run a script where the last one ended, and answer its status and all that it printed.

        With `until` it is interrupted once it has printed that. Its output goes to a file, since a
        process that it leaves behind would keep a pipe open.
        """
        keep = f'pwd > "{self._state}.cwd"; env -0 > "{self._state}.env"'
        output = self._state.with_suffix(".out")
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["sh", "-c", f"trap '{keep}' EXIT\n{script}"],
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._groups.append(process.pid)
        if until is not None:
            end = time.monotonic() + PATIENCE
            while (
                process.poll() is None and time.monotonic() < end and not is_alike(until, output.read_text())
            ):
                time.sleep(0.05)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise AssertionError(
                f"still running after {PATIENCE:.0f} s: {script}\n{output.read_text()}"
            ) from None
        self._remember()
        return status, output.read_text(errors="replace")

    def _remember(self) -> None:
        """Take over the folder and the environment in which the last script ended."""
        folder, env = self._state.with_suffix(".cwd"), self._state.with_suffix(".env")
        if folder.exists() and env.exists():
            self._cwd = folder.read_text().removesuffix("\n")
            entries = env.read_text(errors="surrogateescape").split("\0")
            self._env = dict(entry.split("=", 1) for entry in entries if "=" in entry)
            folder.unlink()
            env.unlink()


def _difference(command: str, shown: str, printed: str) -> str:
    return f"$ {command}\n-- the page shows\n{shown}\n-- it printed\n{printed}"
