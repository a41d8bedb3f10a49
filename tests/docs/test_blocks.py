"""The tool that runs the pages would notice a page that lies."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import Block, Kind, Reader, blocks_of, is_alike

Follow = Callable[[str], None]


@pytest.fixture
def blocks(tmp_path: Path) -> Callable[[str], list[Block]]:
    def parse(text: str) -> list[Block]:
        page = tmp_path / "page.md"
        page.write_text(textwrap.dedent(text), encoding="utf-8")
        return blocks_of(page)

    return parse


@pytest.fixture
def follow(blocks: Callable[[str], list[Block]], tmp_path: Path) -> Follow:
    def run(text: str) -> None:
        folder = tmp_path / "reader"
        folder.mkdir()
        with Reader(folder) as reader:
            reader.follow(blocks(text))

    return run


@pytest.mark.parametrize(
    "text",
    [
        "```\nx\n```",
        "words\n\n    indented\n",
        "```yaml\na: 1\n```",
        "<!-- not run: -->\n```python\n1/0\n```",
        "<!-- not run: too far away -->\n\nwords\n\n```toml\na = 1\n```",
        "```{code-block} python\n1/0\n```",
    ],
)
def test_a_block_without_a_reason_is_unexplained(blocks: Callable[[str], list[Block]], text: str) -> None:
    assert [block.kind for block in blocks(text)] == [Kind.UNEXPLAINED]


@pytest.mark.parametrize(
    "text",
    [
        "<!-- not run: needs a cluster -->\n```sh\nkubectl apply\n```",
        "<!-- not run: needs\na cluster -->\n\n```sh\nkubectl apply\n```",
        "% not run: needs a cluster\n\n```sh\nkubectl apply\n```",
        "- item\n\n  <!-- not run: needs a cluster -->\n  ```sh\n  kubectl apply\n  ```",
    ],
)
def test_a_block_with_a_reason_is_not_run(blocks: Callable[[str], list[Block]], text: str) -> None:
    assert [block.kind for block in blocks(text)] == [Kind.NOT_RUN]


def test_blocks_inside_directives_are_found_with_their_lines(
    blocks: Callable[[str], list[Block]],
) -> None:
    text = "# Page\n\n````{note}\n```python\n1\n```\n````\n\n:::{tip}\n```sh\ntrue\n```\n:::\n"
    assert [(block.line, block.language) for block in blocks(text)] == [(4, "python"), (10, "sh")]


def test_blocks_share_a_namespace_a_shell_and_a_folder(follow: Follow) -> None:
    follow(
        """\
        <!-- file: greet.py -->
        ```python
        WORD = "hello"
        ```

        ```python
        import greet

        print(greet.WORD, "world")
        ```

        <!-- output -->
        ```text
        hello world
        ```

        ```pycon
        >>> greet.WORD
        'hello'
        ```

        ```sh
        export WHO=me
        mkdir inner && cd inner
        ```

        ```console
        $ echo "$WHO is in $(basename "$PWD")"
        me is in inner
        $ echo one \\
        >   two
        one two
        ```

        <!-- exit: 3 -->
        ```console
        $ exit 3
        ```
        """
    )


def test_a_command_is_interrupted_where_the_page_says_so(follow: Follow) -> None:
    follow("```console\n$ echo ready; sleep 50\nready\n^C\n```\n")


def test_what_a_page_leaves_running_is_ended(follow: Follow, tmp_path: Path) -> None:
    follow("```sh\nsleep 50 &\necho $! > ../pid\n```\n")
    pid = int((tmp_path / "reader" / "pid").read_text())
    end = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    """Whether the process exists and is more than an entry that nobody has collected yet (Linux only)."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert 1 == 2\n```",
        "```python\nprint(1)\n```\n<!-- output -->\n```text\n2\n```",
        "```pycon\n>>> 1 + 1\n3\n```",
        "```console\n$ echo here\nthere\n```",
        "```console\n$ false\n```",
        "```sh\nfalse\ntrue\n```",
        "```console\nno prompt\n```",
        "<!-- exit: 1 -->\n```console\n$ true\n```",
        "<!-- file: broken.py -->\n```python\nimport nothing_of_that_name\n```",
    ],
)
def test_a_page_that_lies_is_caught(follow: Follow, text: str) -> None:
    with pytest.raises(AssertionError) as caught:
        follow(text)
    assert "page.md:" in caught.value.__notes__[0]


def test_a_reader_leaves_no_trace(follow: Follow) -> None:
    before = Path.cwd()
    follow("```python\nimport os\n\nos.mkdir('x')\nos.chdir('x')\n```\n")
    assert Path.cwd() == before
    assert "ROTA_STORE" not in os.environ


@pytest.mark.parametrize(
    ("shown", "printed", "alike"),
    [
        ("backup  ran in 1.2 s", "backup ran in 13 ms", True),
        ("due 2026-03-29T01:00:00Z", "due 2027-12-01T17:30:00Z", True),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("token 0123456789ab", "token ffffffff0123", True),
        ("3 tasks", "4 tasks", False),
        ("a", "a\nb", False),
    ],
)
def test_outputs_are_compared_loosely(shown: str, printed: str, alike: bool) -> None:
    assert is_alike(shown, printed) is alike
