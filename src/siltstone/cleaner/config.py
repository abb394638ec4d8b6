"""Settings of the cleaner itself: Kafka's names for what concerns all logs together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from siltstone.settings import DOUBLE, Bound, check_settings, parse_settings, setting

UNLIMITED_RATE: Final = 1.7976931348623157e308  # Kafka's default: the largest double


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """Settings of the log cleaner."""

    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        UNLIMITED_RATE,
        Bound("over 0", lambda rate: rate > 0),
        doc="All tasks of the cleaner together read and write at most this many bytes per second, "
        "on average.",
    )

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def parse(cls, overrides: Mapping[str, str]) -> "CleanerConfig":
        """Put what users write on top of the defaults."""
        return parse_settings(cls(), overrides)

    @property
    def io_bytes_per_second(self) -> float | None:
        """The rate for all tasks together; None if there is no limit."""
        rate = self.log_cleaner_io_max_bytes_per_second
        return None if rate >= UNLIMITED_RATE else rate
