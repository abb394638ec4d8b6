"""What a verification found: which invariant is broken, where, and how bad it is."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from siltstone.ids import TopicPartition

MOST_OF_A_KIND: Final = 20  # a damaged log may break one invariant a million times


class Severity(StrEnum):
    """A violation must never be; a warning is what a stock Kafka may leave behind."""

    VIOLATION = "violation"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be; places that make no sense for it are None."""

    invariant: str  # its number: "I9"
    severity: Severity
    partition: TopicPartition
    message: str
    file: str | None = None
    position: int | None = None  # in that file
    offset: int | None = None


class Findings:
    """Collects the findings about one partition, of each kind the first few."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._found: list[Finding] = []
        self._counts: Counter[tuple[str, Severity]] = Counter()

    def violation(
        self,
        invariant: str,
        message: str,
        *,
        file: str | None = None,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Note that an invariant is broken."""
        self.add(Severity.VIOLATION, invariant, message, file, position, offset)

    def warning(
        self,
        invariant: str,
        message: str,
        *,
        file: str | None = None,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Note what a stock Kafka may do, and is worth knowing."""
        self.add(Severity.WARNING, invariant, message, file, position, offset)

    def add(
        self,
        severity: Severity,
        invariant: str,
        message: str,
        file: str | None = None,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Note a finding."""
        self._counts[invariant, severity] += 1
        if self._counts[invariant, severity] <= MOST_OF_A_KIND:
            self._found.append(
                Finding(
                    invariant=invariant,
                    severity=severity,
                    partition=self._partition,
                    message=message,
                    file=file,
                    position=position,
                    offset=offset,
                )
            )

    def add_count(self, severity: Severity, invariant: str, count: int) -> None:
        """Note that there are so many more findings like the last, which nobody has written."""
        self._counts[invariant, severity] += count

    def finish(self) -> tuple[Finding, ...]:
        """Return the findings in the order of their invariants, and how many were left out."""
        for (invariant, severity), count in self._counts.items():
            written = sum(
                1 for f in self._found if (f.invariant, f.severity) == (invariant, severity)
            )
            if count > written:
                self._found.append(
                    Finding(
                        invariant=invariant,
                        severity=severity,
                        partition=self._partition,
                        message=f"and {count - written} more like these",
                    )
                )
        return tuple(sorted(self._found, key=lambda f: (int(f.invariant[1:]), f.severity)))
