from pathlib import Path

import pytest

from siltstone.errors import SiltstoneError, UsageError
from siltstone.ids import TopicPartition
from siltstone.spark.source.options import (
    EARLIEST,
    LATEST,
    format_offsets,
    parse_sink_options,
    parse_source_options,
    read_offsets,
)
from siltstone.table.request import View

BASE = {"path": "/logs", "subscribe": "a"}


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    batch = parse_source_options(BASE, is_streaming=False)
    stream = parse_source_options(BASE, is_streaming=True)

    assert (batch.start.offsets, batch.end.offsets) == (EARLIEST, LATEST)
    assert stream.start.offsets == LATEST
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert not batch.is_committed_only
    assert batch.min_partitions is None
    assert stream.max_trigger_delay_ms == 15 * 60_000
    assert batch.view is View.LOG


def test_names_are_the_same_in_any_case_and_kafkas_own_are_let_through() -> None:
    given = {"PATH": "/a, file:/b%20c", "SubscribePattern": "a.*", "kafka.session.timeout.ms": "1"}

    options = parse_source_options(given, is_streaming=False)

    assert options.paths == (Path("/a"), Path("/b c"))
    assert options.selection.pattern == "a.*"


def test_offsets_are_read_back_from_the_form_of_a_checkpoint() -> None:
    offsets = {TopicPartition("b", 0): 3, TopicPartition("a", 10): 1, TopicPartition("a", 2): 0}

    formatted = format_offsets(offsets)

    assert formatted == {"a": {"2": 0, "10": 1}, "b": {"0": 3}}
    assert read_offsets(formatted) == offsets


def test_every_view_but_the_log_is_committed() -> None:
    for view in ("latest", "changes"):
        assert parse_source_options({**BASE, "view": view}, is_streaming=False).is_committed_only


@pytest.mark.parametrize(
    ("given", "is_streaming", "message"),
    [
        ({"subscribe": "a"}, False, "path must name a log directory"),
        (
            {"subscribe": "a", "kafka.bootstrap.servers": "h:9092"},
            False,
            "kafka.bootstrap.servers is not supported: give path",
        ),
        ({"path": "s3://b/x", "subscribe": "a"}, False, "path must be a directory"),
        ({"path": "/l"}, False, "exactly one of assign, subscribe, subscribePattern"),
        ({**BASE, "assign": '{"a":[0]}'}, False, "got assign, subscribe"),
        ({"path": "/l", "assign": "[1]"}, False, "assign must look like"),
        ({"path": "/l", "subscribe": "a/b"}, False, "illegal topic name 'a/b'"),
        ({"path": "/l", "subscribePattern": "("}, False, "no regular expression"),
        ({**BASE, "startingOffset": "earliest"}, False, "did you mean startingOffsets?"),
        ({**BASE, "startingOffsets": "latest"}, False, "can't be latest for a batch query"),
        ({**BASE, "startingOffsets": '{"a":{"0":-1}}'}, False, "can't be latest"),
        ({**BASE, "endingOffsets": '{"a":{"0":-2}}'}, False, "can't be earliest"),
        ({**BASE, "startingOffsets": '{"a":{"0":-3}}'}, False, "-3 is no offset"),
        ({**BASE, "startingOffsets": '{"a":{"0":true}}'}, False, "startingOffsets must look like"),
        ({**BASE, "startingOffsets": "first"}, False, "startingOffsets must look like"),
        ({**BASE, "endingOffsets": "latest"}, True, "which has no end"),
        ({**BASE, "view": "latest"}, True, "view=latest cannot be streamed"),
        ({**BASE, "view": "latest", "startingOffsets": "earliest"}, False, "with view=latest"),
        ({**BASE, "asOfTimestamp": "5"}, False, "asOfTimestamp needs view=latest"),
        (
            {**BASE, "view": "changes", "isolationLevel": "read_uncommitted"},
            False,
            "view=changes is always read_committed",
        ),
        ({**BASE, "minPartitions": "0"}, False, "minPartitions must be a whole number from 1"),
        ({**BASE, "includeHeaders": "yes"}, False, "includeHeaders must be one of true, false"),
        ({**BASE, "maxTriggerDelay": "soon"}, True, "maxTriggerDelay must be a time like 15m"),
    ],
)
def test_what_makes_no_sense_is_refused(
    given: dict[str, str], is_streaming: bool, message: str
) -> None:
    with pytest.raises(SiltstoneError) as caught:
        parse_source_options(given, is_streaming=is_streaming)

    assert message in str(caught.value)


def test_a_sink_knows_other_options_than_a_source() -> None:
    options = parse_sink_options({"path": "/l", "topic": "a", "checkpointLocation": "/c"})

    assert (options.paths, options.topic) == ((Path("/l"),), "a")
    with pytest.raises(SiltstoneError, match="unknown setting subscribe"):
        parse_sink_options({**BASE})
    with pytest.raises(UsageError, match="illegal topic name"):
        parse_sink_options({"path": "/l", "topic": "a b"})
