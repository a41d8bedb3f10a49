"""Nothing is documented that is not executed: README.md and every page under docs/."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Kind, Reader, blocks_of, pages

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    unexplained = [
        f"{block.where} ({block.language or 'no language'})"
        for block in blocks_of(page)
        if block.kind is Kind.UNEXPLAINED
    ]
    assert unexplained == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        reader.follow(blocks_of(page))
