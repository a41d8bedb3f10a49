"""What the README and the reference say of each store is what its driver says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.cli.guarantees import page, table
from rota.stores import DRIVERS, open_store

ROOT = Path(__file__).parents[2]


def test_the_reference_of_stores_is_made_from_their_guarantees() -> None:
    written = (ROOT / "docs/reference/stores.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m rota.cli.guarantees > docs/reference/stores.md"


def test_the_readme_has_the_same_table() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert table() in readme, "put what python -m rota.cli.guarantees --table prints into README.md"


@pytest.mark.parametrize("scheme", DRIVERS)
def test_every_scheme_is_in_the_reference(scheme: str) -> None:
    written = (ROOT / "docs/reference/stores.md").read_text(encoding="utf-8")
    assert f"- `{DRIVERS[scheme].example}`" in written or scheme == "django"


def test_every_store_says_what_makes_its_claim_atomic_and_what_it_costs() -> None:
    for scheme, driver in DRIVERS.items():
        if scheme == "django":
            continue  # it is the driver of another scheme, whichever the alias says
        store = open_store(driver.example, namespace="shop")
        assert store.guarantees.primitive, scheme
        assert store.guarantees.trips, scheme
        assert store.guarantees.cannot, scheme
        store.close()
