"""Every crash makes recovery talk; thousands of them say nothing new."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    logger = logging.getLogger("siltstone")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
