"""Real partition logs of a real Kafka, driven operation by operation in one Java process.

    with harness.start_log_ops() as ops:
        log = ops.open(tmp_path / "t-0", config={"segment.bytes": 1000}, now_ms=0)
        log.append(batch)
        assert log.state.log_end_offset == 1

The clock stands still unless it is moved; background work (flush after a roll, removal of deleted
files, producer expiry) runs in the same thread as soon as the clock says so. Looking at the state
does not disturb the log: an index that Kafka has not opened stays unopened.
"""

import itertools
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from tests.kafka.jvm import JavaProcess
from tests.kafka.states import (
    AbortedTransaction,
    Appended,
    BatchState,
    Fetched,
    Found,
    LogState,
    NewRecord,
    PartitionFiles,
    TopicSetting,
    decode,
    encode,
    parse_aborted,
    parse_batch,
    parse_fetched,
    parse_log_state,
    parse_partition_files,
)

Origin = Literal["CLIENT", "COORDINATOR", "REPLICATION", "RAFT_LEADER"]
Isolation = Literal["LOG_END", "HIGH_WATERMARK", "TXN_COMMITTED"]
Config = Mapping[str, str | int | float | bool]


class KafkaRefusedError(Exception):
    """Kafka threw an exception; `code` is what a client would see."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error)
        self.exception: str = error["exception"]
        self.message: str = error["message"]
        self.code: int = error["code"]
        self.code_name: str = error["code_name"]
        self.record_errors: tuple[tuple[int, str], ...] = tuple(
            (index, message) for index, message in error.get("record_errors", ())
        )

    def __str__(self) -> str:
        return f"{self.exception} ({self.code_name}): {self.message} {list(self.record_errors)}"


class LogOps:
    """The Java process, and what it can do without a log."""

    def __init__(self, command: Sequence[str]) -> None:
        self._names = (f"log-{number}" for number in itertools.count())
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = JavaProcess(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; logs still open are abandoned as a crash would leave them."""
        self._process.kill()
        self._stderr.close()

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one command and give the whole answer, whether Kafka was willing or not."""
        stdin, stdout = self._process.popen.stdin, self._process.popen.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise RuntimeError(f"the harness ended at {op}:\n{self._stderr_tail()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def result(self, op: str, **fields: Any) -> Any:
        """Send one command and give its result, or raise what Kafka threw."""
        answer = self.call(op, **fields)
        if not answer["ok"]:
            raise KafkaRefusedError(answer["error"])
        return answer["result"]

    def open(
        self,
        directory: Path,
        *,
        config: Config | None = None,
        now_ms: int = 0,
        clean: bool = True,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        topic_id: str | None = None,
        auto_high_watermark: bool = False,
        transaction_verification: bool = False,
        producer_id_expiration_ms: int = 86_400_000,
        wants_state: bool = True,
    ) -> "DrivenLog":
        """Open or create the log of a partition directory, which is named `topic-partition`.

        A `segment.bytes` below Kafka's public minimum of 1 MiB is passed on as the internal setting
        that Kafka's own tests use. With `auto_high_watermark` every append moves the high watermark
        to the log end, as it is with a single replica. To look at the state of a large log takes
        long: do without.
        """
        log = DrivenLog(self, next(self._names), directory)
        log.call(
            "open",
            dir=str(directory),
            config=dict(config or {}),
            now_ms=now_ms,
            clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            topic_id=topic_id,
            auto_high_watermark=auto_high_watermark,
            transaction_verification=transaction_verification,
            producer_id_expiration_ms=producer_id_expiration_ms,
            state=wants_state,
        )
        return log

    def build_batch(
        self,
        records: Sequence[NewRecord],
        *,
        codec: str = "none",
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        log_append_time_ms: int | None = None,
    ) -> bytes:
        """Let Kafka's own builder make a batch; LogAppendTime if a time is given."""
        result = self.result(
            "build_batch",
            records=[record.to_json() for record in records],
            codec=codec,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
            timestamp_type="CreateTime" if log_append_time_ms is None else "LogAppendTime",
            log_append_time_ms=log_append_time_ms,
        )
        return _bytes(result["batch"])

    def build_marker(
        self,
        kind: Literal["ABORT", "COMMIT"],
        *,
        producer_id: int,
        producer_epoch: int,
        timestamp_ms: int,
        coordinator_epoch: int = 0,
        base_offset: int = 0,
        leader_epoch: int = -1,
    ) -> bytes:
        """Let Kafka's own classes make the control batch that ends a transaction."""
        result = self.result(
            "build_batch",
            marker=kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=timestamp_ms,
            coordinator_epoch=coordinator_epoch,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
        )
        return _bytes(result["batch"])

    def describe_batches(self, data: bytes, *, records: bool = True) -> tuple[BatchState, ...]:
        """Let Kafka's own reader take batches apart."""
        nodes = self.result("describe_batches", batches=encode(data), records=records)
        return tuple(parse_batch(node) for node in nodes)

    def partition_files(self, directory: Path, *, records: bool = False) -> PartitionFiles:
        """Describe a partition directory that no one has open; it is copied first, not touched."""
        node = self.result("log_state", dir=str(directory), records=records)
        return parse_partition_files(node)

    def topic_settings(self) -> dict[str, TopicSetting]:
        """Give the topic settings that this Kafka knows."""
        return {node["name"]: TopicSetting(**node) for node in self.result("topic_settings")}

    def _stderr_tail(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-4000:]


class DrivenLog:
    """One log. `state` is what it looked like after the last operation, refused or not."""

    def __init__(self, ops: LogOps, name: str, directory: Path) -> None:
        self.directory = directory
        self.last_state: LogState | None = None
        self._ops = ops
        self.name = name

    @property
    def state(self) -> LogState:
        if self.last_state is None:
            raise RuntimeError("the log is closed")
        return self.last_state

    def call(self, op: str, **fields: Any) -> Any:
        """Run any operation of DrivenLog.java."""
        answer = self._ops.call(op, log=self.name, **fields)
        state = answer.get("state")
        self.last_state = None if state is None else parse_log_state(state)
        if not answer["ok"]:
            raise KafkaRefusedError(answer["error"])
        return answer["result"]

    def append(
        self,
        batches: bytes,
        *,
        leader_epoch: int = 0,
        origin: Origin = "CLIENT",
        transaction_version: int = 0,
        verify: Mapping[str, Any] | None = None,
    ) -> Appended:
        """Append as the leader, or as a follower with the origin REPLICATION.

        `verify` (producer_id, sequence, epoch, supports_epoch_bump) starts the verification that a
        broker does before the first batch of a transaction.
        """
        result = self.call(
            "append",
            batches=encode(batches),
            leader_epoch=leader_epoch,
            origin=origin,
            transaction_version=transaction_version,
            verify=verify,
        )
        return Appended(**result)

    def read(
        self,
        offset: int,
        *,
        max_bytes: int = 2**31 - 1,
        isolation: Isolation = "LOG_END",
        min_one_message: bool = True,
    ) -> Fetched:
        result = self.call(
            "read",
            offset=offset,
            max_bytes=max_bytes,
            isolation=isolation,
            min_one_message=min_one_message,
        )
        return parse_fetched(result)

    def lookup(self, timestamp_ms: int) -> Found | None:
        """Find by timestamp; -1 latest, -2 earliest, -3 largest timestamp, as in ListOffsets."""
        result = self.call("lookup", timestamp_ms=timestamp_ms)
        return None if result is None else Found(**result)

    def aborted_transactions(self, start: int, upper: int) -> tuple[AbortedTransaction, ...]:
        # "from" is a word of Python's.
        return parse_aborted(self.call("aborted_transactions", **{"from": start, "upper": upper}))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Give (epoch, end offset) as OffsetsForLeaderEpoch does."""
        result = self.call("end_offset_for_epoch", epoch=epoch)
        return None if result is None else (result["epoch"], result["end_offset"])

    def roll(self) -> int:
        base_offset: int = self.call("roll")["base_offset"]
        return base_offset

    def flush(self, *, force_active: bool = False) -> None:
        self.call("flush", force_active=force_active)

    def truncate_to(self, offset: int) -> bool:
        truncated: bool = self.call("truncate_to", offset=offset)["truncated"]
        return truncated

    def truncate_fully_and_start_at(
        self, offset: int, *, log_start_offset: int | None = None
    ) -> None:
        self.call("truncate_fully_and_start_at", offset=offset, log_start_offset=log_start_offset)

    def delete_old_segments(self) -> int:
        deleted: int = self.call("delete_old_segments")["deleted"]
        return deleted

    def update_high_watermark(self, offset: int) -> int:
        high_watermark: int = self.call("update_high_watermark", offset=offset)["high_watermark"]
        return high_watermark

    def increment_log_start_offset(
        self, offset: int, *, reason: str = "ClientRecordDeletion"
    ) -> bool:
        result = self.call("increment_log_start_offset", offset=offset, reason=reason)
        incremented: bool = result["incremented"]
        return incremented

    def assign_epoch(self, epoch: int, offset: int) -> None:
        self.call("assign_epoch", epoch=epoch, offset=offset)

    def remove_expired_producers(self) -> None:
        self.call("remove_expired_producers")

    def take_snapshot(self) -> None:
        self.call("take_snapshot")

    def update_config(self, config: Config) -> None:
        self.call("update_config", config=dict(config))

    def advance(self, ms: int) -> None:
        """Move the clock and run the background work that has become due."""
        self.call("advance", ms=ms)

    def set_time(self, now_ms: int) -> None:
        self.call("set_time", now_ms=now_ms)

    def pause_background(self, paused: bool = True) -> None:
        """Hold back background work, so that a crash can fall before it; False lets it run."""
        self.call("pause_background", paused=paused)

    def close(self) -> None:
        """Flush and close in an orderly way, as at a clean shutdown."""
        self.call("close")

    def crash(self) -> None:
        """Let go of the files as they are, as `kill -9` does."""
        self.call("crash")

    def reopen(
        self,
        *,
        clean: bool,
        recovery_point: int | None = None,
        log_start_offset: int | None = None,
        config: Config | None = None,
    ) -> None:
        """Load the log again; the checkpoints are what they were at the end if not given."""
        self.call(
            "reopen",
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            config=dict(config or {}),
        )

    def forget(self) -> None:
        """Drop the log from the process, which otherwise holds its metrics and maps."""
        self.call("forget")


def _bytes(text: str) -> bytes:
    data = decode(text)
    assert data is not None
    return data
