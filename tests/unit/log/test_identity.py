import contextlib
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import CorruptCheckpointError
from siltstone.ids import TopicId
from siltstone.log.identity import (
    MetaProperties,
    format_clean_shutdown,
    format_meta_properties,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_partition_metadata,
)

PATH = Path("data", "meta.properties")

ids = st.uuids().filter(lambda value: value.int != 0)
meta_properties = st.builds(
    MetaProperties,
    version=st.just(1),
    cluster_id=st.text(st.characters(codec="utf-8"), max_size=30),
    node_id=st.integers(0, 2**31 - 1),
    directory_id=st.none() | ids,
) | st.builds(
    MetaProperties,
    version=st.just(0),
    cluster_id=st.none() | st.text("abcXYZ019_-", min_size=1),
    node_id=st.none() | st.integers(0, 2**31 - 1),
    directory_id=st.none() | ids,
)


def test_partition_metadata_is_43_bytes_without_a_last_line_end() -> None:
    topic_id = TopicId.parse("Tn8WAAMzQZSLxu4qy6tOJg")

    data = format_partition_metadata(topic_id)

    assert data == b"version: 0\ntopic_id: Tn8WAAMzQZSLxu4qy6tOJg"
    assert len(data) == 43


@given(ids)
def test_a_topic_id_survives_a_round_trip(value: uuid.UUID) -> None:
    topic_id = TopicId(value)

    assert parse_partition_metadata(PATH, format_partition_metadata(topic_id)) == topic_id


def test_partition_metadata_of_a_later_version_is_still_read() -> None:
    data = b"version: 12\r\ntopic_id:   Tn8WAAMzQZSLxu4qy6tOJg\nshape: round\n"

    assert str(parse_partition_metadata(PATH, data)) == "Tn8WAAMzQZSLxu4qy6tOJg"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "line 1 is malformed"),
        (b"version 0\ntopic_id: Tn8WAAMzQZSLxu4qy6tOJg", "line 1 is malformed"),
        (b"version: -1\ntopic_id: Tn8WAAMzQZSLxu4qy6tOJg", "line 1 is malformed"),
        (b"\xff\xfe", "line 1 is malformed"),
        (b"version: 0", "line 2 is malformed"),
        (b"version: 0\ntopic_id:", "line 2 is malformed"),
        (b"version: 0\ntopic_id: abc", "'abc' is not a topic id"),
        (
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
            "'AAAAAAAAAAAAAAAAAAAAAA' is not a topic id",
        ),
    ],
)
def test_partition_metadata_that_makes_no_sense_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        parse_partition_metadata(PATH, data)

    assert str(caught.value) == f"{PATH}: {reason}"


def test_meta_properties_of_kafka_are_read() -> None:
    data = (
        b"#\n#Sat Nov 15 12:00:00 UTC 2025\n"
        b"cluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=Tn8WAAMzQZSLxu4qy6tOJg\n"
        b"node.id=1\nversion=1\n"
    )

    assert parse_meta_properties(PATH, data) == MetaProperties(
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
        node_id=1,
        directory_id=TopicId.parse("Tn8WAAMzQZSLxu4qy6tOJg").value,
    )


def test_meta_properties_from_before_kraft_are_read() -> None:
    data = b"version=0\nbroker.id=7\ncluster.id=abc\n"

    assert parse_meta_properties(PATH, data) == MetaProperties(
        version=0, cluster_id="abc", node_id=7
    )
    assert parse_meta_properties(PATH, b"") == MetaProperties(
        version=0, cluster_id=None, node_id=None
    )


def test_meta_properties_follow_the_rules_of_java_properties() -> None:
    data = (
        b"! another comment\r\n\r\n   version : 1\r"
        b"node.id 3\n"
        b"cluster.id = a\\=b\\u0041\\\n    \\tc\\\\\n"
        b"# ignored=1\nother\n"
    )

    assert parse_meta_properties(PATH, data) == MetaProperties(cluster_id="a=bA\tc\\", node_id=3)


def test_meta_properties_are_written_in_a_fixed_order_without_a_date() -> None:
    properties = MetaProperties(
        cluster_id="a:b", node_id=1, directory_id=TopicId.parse("Tn8WAAMzQZSLxu4qy6tOJg").value
    )

    assert format_meta_properties(properties) == (
        b"version=1\ncluster.id=a\\:b\nnode.id=1\ndirectory.id=Tn8WAAMzQZSLxu4qy6tOJg\n"
    )


@given(meta_properties)
def test_meta_properties_survive_a_round_trip(properties: MetaProperties) -> None:
    assert parse_meta_properties(PATH, format_meta_properties(properties)) == properties


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"version=2\n", "expected version 0 or 1, found 2"),
        (b"version=one\n", "version is not a number: one"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\ncluster.id=a\nbroker.id=1\n", "node.id is missing"),
        (b"version=1\ncluster.id=a\nnode.id=x\n", "node.id is not a number: x"),
        (
            b"version=1\ncluster.id=a\nnode.id=99999999999\n",
            "node.id is not a number: 99999999999",
        ),
        (b"version=0\ndirectory.id=abc\n", "directory.id is not an id: abc"),
    ],
)
def test_meta_properties_that_make_no_sense_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        parse_meta_properties(PATH, data)

    assert str(caught.value) == f"{PATH}: {reason}"


@given(st.binary(max_size=80) | st.text("\\=:# \n\ru0version.d", max_size=40).map(str.encode))
def test_random_bytes_are_parsed_or_refused(data: bytes) -> None:
    for parse in (parse_meta_properties, parse_partition_metadata):
        with contextlib.suppress(CorruptCheckpointError):
            parse(PATH, data)


def test_a_clean_stop_is_marked_as_kafka_does() -> None:
    assert format_clean_shutdown(17) == b'{"version":0,"brokerEpoch":17}'
    assert format_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'
    assert parse_clean_shutdown(format_clean_shutdown(17)) == 17


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"version":0}',
        b'{"brokerEpoch":null}',
        b'{"brokerEpoch":true}',
        b'{"brokerEpoch":"7"}',
        b'{"brokerEpoch":9223372036854775808}',
        b"[" * 100_000,
    ],
)
def test_an_unreadable_mark_of_a_clean_stop_is_tolerated(data: bytes) -> None:
    assert parse_clean_shutdown(data) is None
