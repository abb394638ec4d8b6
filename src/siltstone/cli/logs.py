"""How commands get at logs: reading ones without a lock, writing ones with it."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from siltstone.broker.command_frames import DEFAULTS_VARIABLE
from siltstone.cli.log_dirs import check_log_dirs, resolve_log_dirs
from siltstone.cli.options import parse_config
from siltstone.cli.relay import check_exclusive
from siltstone.errors import UsageError
from siltstone.ids import TopicPartition, is_legal_topic
from siltstone.log.log_reader import LogReader

if TYPE_CHECKING:
    from siltstone.cli.remote_topics import RemoteTopics
    from siltstone.log.log_manager import LogManager


def open_reader(log_dirs: Sequence[Path] | None, config: Sequence[str] | None = None) -> LogReader:
    """Open log directories that another process may own; nothing in them is changed."""
    overrides = parse_config(config)
    paths = resolve_log_dirs(log_dirs)
    check_log_dirs(paths)
    # A broker that runs this command tells what its topics have by default.
    defaults = json.loads(os.environ.get(DEFAULTS_VARIABLE, "{}"))
    return LogReader(paths, overrides=overrides, defaults=defaults)


def open_manager(
    log_dirs: Sequence[Path] | None,
    config: Mapping[str, str] | None = None,
    *,
    create: bool = False,
) -> "LogManager":
    """Own log directories until the end of a `with` block; make them if `create`."""
    # Here, for readers are in a hurry, and do without.
    from siltstone.log.log_manager import LogManager  # noqa: PLC0415

    paths = resolve_log_dirs(log_dirs)
    if not create:
        check_log_dirs(paths)
    return LogManager(paths, overrides=config)


def open_remote(address: str, config: Sequence[str] | None = None) -> "RemoteTopics":
    """Reach a broker until the end of a `with` block."""
    # Here, for the messages of Kafka's protocol take a while to load.
    from siltstone.cli.remote_topics import RemoteTopics  # noqa: PLC0415

    check_exclusive()
    return RemoteTopics(address, parse_config(config))


def open_owner(
    address: str | None,
    log_dirs: Sequence[Path] | None,
    config: Sequence[str] | None = None,
    *,
    create: bool = False,
) -> "LogManager | RemoteTopics":
    """Reach a broker, or own log directories, until the end of a `with` block."""
    if address is not None:
        return open_remote(address, config)
    return open_manager(log_dirs, parse_config(config), create=create)


def select_partitions(
    logs: "LogReader | LogManager | RemoteTopics", topic: str, partition: int | None
) -> list[TopicPartition]:
    """Return one partition of a topic, or all; raise UnknownTopicError if it is not there."""
    check_topic(topic)
    if partition is None:
        return [TopicPartition(topic, number) for number in logs.partitions(topic)]
    chosen = TopicPartition(topic, partition)
    logs.get_log(chosen)
    return [chosen]


def check_topic(topic: str) -> None:
    """Refuse a name that no topic can have."""
    if not is_legal_topic(topic):
        raise UsageError(
            f"illegal topic name {topic!r}: 1 to 249 of letters, digits, dot, dash, underscore"
        )
