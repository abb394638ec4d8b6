import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.filenames import DirState, PartitionDir, SegmentFile

DIRECTORY = Path("orders-3")
TOKEN = uuid.UUID("0123456789abcdef0123456789abcdef")

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(
    lambda name: name not in (".", "..")
)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))
segment_files = st.builds(
    SegmentFile,
    st.integers(0, 2**63 - 1),
    st.sampled_from([".log", ".index", ".timeindex", ".txnindex", ".snapshot"]),
    st.sampled_from(["", ".cleaned", ".swap", ".deleted"]),
)


def test_segment_files_are_named_after_the_base_offset_in_twenty_digits() -> None:
    assert filenames.log_path(DIRECTORY, 42000) == DIRECTORY / "00000000000000042000.log"
    assert filenames.offset_index_path(DIRECTORY, 7) == DIRECTORY / "00000000000000000007.index"
    assert filenames.time_index_path(DIRECTORY, 7) == DIRECTORY / "00000000000000000007.timeindex"
    assert (
        filenames.transaction_index_path(DIRECTORY, 7)
        == DIRECTORY / "00000000000000000007.txnindex"
    )
    assert (
        filenames.snapshot_path(DIRECTORY, 2**63 - 1) == DIRECTORY / "09223372036854775807.snapshot"
    )


def test_a_suffix_follows_the_ordinary_extension() -> None:
    path = filenames.log_path(DIRECTORY, 0, filenames.CLEANED)

    assert path.name == "00000000000000000000.log.cleaned"
    assert filenames.parse_segment_file(path.name) == SegmentFile(0, ".log", ".cleaned")


@given(segment_files)
def test_a_segment_file_is_parsed_as_it_was_named(file: SegmentFile) -> None:
    assert filenames.parse_segment_file(file.name) == file


@pytest.mark.parametrize(
    "name",
    [
        "leader-epoch-checkpoint",
        "partition.metadata",
        "0.log",
        "00000000000000000000",
        "00000000000000000000.logs",
        "00000000000000000000.log\n",
        "00000000000000000000.keys",
        "00000000000000000000.log.swap.deleted",
        "0000000000000000000x.log",
        "-0000000000000000001.log",
        "\u0660" * 20 + ".log",
        "09223372036854775808.log",
        "silt-manifest.json",
    ],
)
def test_other_names_are_not_segment_files(name: str) -> None:
    assert filenames.parse_segment_file(name) is None


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000012.keys", 12),
        ("00000000000000000012.log.swap", 12),
        ("12.log", 12),
        ("09223372036854775808.log", None),
        ("00000000000000000012", None),
        ("silt-00000000000000000012.json", None),
    ],
)
def test_an_offset_prefix_is_found_whatever_the_extension(name: str, offset: int | None) -> None:
    assert filenames.find_offset_prefix(name) == offset


def test_the_metadata_logs_deleted_snapshots_are_left_to_kafka() -> None:
    assert filenames.is_deleted_file("00000000000000000000.log.deleted")
    assert filenames.is_deleted_file("anything.deleted")
    assert not filenames.is_deleted_file("00000000000000000005-0000000001.checkpoint.deleted")
    assert not filenames.is_deleted_file("00000000000000000000.log")


def test_the_partition_follows_the_last_dash() -> None:
    parsed = filenames.parse_partition_dir("a-b.c-7-12")

    assert parsed == PartitionDir(TopicPartition("a-b.c-7", 12), DirState.LIVE)


@given(partitions)
def test_a_partition_directory_is_parsed_as_it_was_named(partition: TopicPartition) -> None:
    name = filenames.partition_dir_name(partition)

    assert filenames.parse_partition_dir(name) == PartitionDir(partition, DirState.LIVE)


@given(partitions, st.uuids())
def test_a_directory_on_its_way_out_fits_the_file_system(
    partition: TopicPartition, token: uuid.UUID
) -> None:
    for state, name in (
        (DirState.DELETE, filenames.delete_dir_name(partition, token)),
        (DirState.STRAY, filenames.stray_dir_name(partition, token)),
    ):
        parsed = filenames.parse_partition_dir(name)

        assert len(name) <= 255
        assert parsed.state is state
        assert parsed.partition.partition == partition.partition
        assert partition.topic.startswith(parsed.partition.topic)
        assert len(name) == 255 or parsed.partition.topic == partition.topic


@given(partitions, st.uuids())
def test_a_future_directory_keeps_its_whole_topic(
    partition: TopicPartition, token: uuid.UUID
) -> None:
    name = filenames.future_dir_name(partition, token)

    assert filenames.parse_partition_dir(name) == PartitionDir(partition, DirState.FUTURE)


def test_a_directory_suffix_is_kafkas() -> None:
    partition = TopicPartition("orders", 3)

    name = filenames.delete_dir_name(partition, TOKEN)

    assert name == "orders-3.0123456789abcdef0123456789abcdef-delete"


def test_two_deletions_of_one_partition_get_different_names() -> None:
    partition = TopicPartition("orders", 3)

    assert filenames.delete_dir_name(partition) != filenames.delete_dir_name(partition)


@pytest.mark.parametrize(
    "name",
    [
        "foo",
        "foo-",
        "-3",
        "",
        "foo-bar",
        "foo-3x",
        "foo-\u0663",
        "foo-2147483648",
        "foo-delete",
        "foo-3-delete",
        "foo.abc-delete",
        "foo-bar.abc-stray",
        "my topic-0",
        "..-0",
        "lost+found",
        "foo-3\n",
    ],
)
def test_other_names_are_not_partition_directories(name: str) -> None:
    with pytest.raises(ValueError, match="is not a partition directory") as caught:
        filenames.parse_partition_dir(name)

    assert str(caught.value) == f"{name} is not a partition directory"


def test_a_topic_may_look_like_a_suffix() -> None:
    parsed = filenames.parse_partition_dir("x-delete-0")

    assert parsed == PartitionDir(TopicPartition("x-delete", 0), DirState.LIVE)


def test_directories_of_other_parts_of_kafka_are_told_apart() -> None:
    assert filenames.is_foreign_dir("__cluster_metadata-0")
    assert filenames.is_foreign_dir("remote-log-index-cache")
    assert not filenames.is_foreign_dir("orders-0")
    assert not filenames.is_foreign_dir("foo")


def test_our_own_names_are_ones_that_kafka_leaves_alone() -> None:
    assert filenames.TOPICS.startswith("silt-")
    assert filenames.find_offset_prefix(filenames.TOPICS) is None


def test_a_temporary_file_stands_beside_its_target() -> None:
    path = Path("data", "meta.properties")

    assert filenames.temporary_path(path) == Path("data", "meta.properties.tmp")
