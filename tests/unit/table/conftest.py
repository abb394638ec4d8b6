"""A topic with an owner, for all that reads it as a table."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.orders import Owner, make_orders


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    """An owner at work."""
    owner = make_orders(tmp_path / "data")
    yield owner
    owner.manager.close()
