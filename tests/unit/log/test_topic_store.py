import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import CorruptCheckpointError, LogDirOfflineError, UnknownTopicError
from siltstone.ids import TopicId
from siltstone.log.filesystem import FileSystem
from siltstone.log.topic_store import FileTopicStore, SmallFiles, TopicMetadata, TopicStore

FIRST, SECOND = Path("first"), Path("second")
ORDERS = TopicMetadata(
    "orders", TopicId.parse("Tn8WAAMzQZSLxu4qy6tOJg"), 3, {"cleanup.policy": "compact"}
)
CLICKS = TopicMetadata("clicks", TopicId.parse("MkU3OEVBNTcwNTJENDM2Qg"), 1)

topics = st.builds(
    TopicMetadata,
    st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
    st.uuids().filter(lambda value: value.int != 0).map(TopicId),
    st.integers(1, 1000),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)


class MemoryFiles:
    """A disk that forgets nothing, with directories that can be told to fail."""

    def __init__(self) -> None:
        self.contents: dict[Path, bytes] = {}
        self.broken: set[Path] = set()

    def read_file(self, path: Path) -> bytes | None:
        self._check(path)
        return self.contents.get(path)

    def write_atomically(self, path: Path, data: bytes) -> None:
        self._check(path)
        self.contents[path] = data

    def generation(self, directory: Path) -> int:
        generation = json.loads(self.contents[directory / "silt-topics.json"])["generation"]
        assert isinstance(generation, int)
        return generation

    def _check(self, path: Path) -> None:
        if path.parent in self.broken:
            raise LogDirOfflineError(path, "cannot write: Input/output error")


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def open_store(files: SmallFiles, *directories: Path) -> TopicStore:
    return FileTopicStore(files, directories or (FIRST, SECOND))


def test_a_directory_without_the_file_has_no_topics(files: MemoryFiles) -> None:
    store = open_store(files)

    assert store.list() == ()
    assert store.find("orders") is None
    assert files.contents == {}


def test_what_is_put_is_there_when_the_store_is_opened_again(files: MemoryFiles) -> None:
    store = open_store(files)

    store.put(ORDERS)
    store.put(CLICKS)

    for seen in (store, open_store(files)):
        assert seen.get("orders") == ORDERS
        assert seen.list() == (CLICKS, ORDERS)


@given(st.lists(topics, max_size=3))
def test_any_topic_survives_a_round_trip(put: list[TopicMetadata]) -> None:
    files = MemoryFiles()
    store = open_store(files)

    for metadata in put:
        store.put(metadata)

    expected = {metadata.topic: metadata for metadata in put}
    assert {metadata.topic: metadata for metadata in open_store(files).list()} == expected


def test_a_topic_is_replaced_by_its_name(files: MemoryFiles) -> None:
    store = open_store(files)
    store.put(ORDERS)

    store.put(replace(ORDERS, partition_count=9))

    assert open_store(files).get("orders").partition_count == 9


def test_a_deleted_topic_stays_deleted(files: MemoryFiles) -> None:
    store = open_store(files)
    store.put(ORDERS)

    store.delete("orders")

    assert store.find("orders") is None
    assert open_store(files).list() == ()


def test_an_unknown_topic_is_named(files: MemoryFiles) -> None:
    store = open_store(files)

    with pytest.raises(UnknownTopicError, match="topic x does not exist"):
        store.get("x")
    with pytest.raises(UnknownTopicError, match="topic x does not exist"):
        store.delete("x")
    assert files.contents == {}


def test_the_file_is_the_same_in_every_directory_and_for_people_to_read(
    files: MemoryFiles,
) -> None:
    open_store(files).put(ORDERS)

    assert files.contents[FIRST / "silt-topics.json"].decode() == (
        "{\n"
        '  "version": 0,\n'
        '  "generation": 1,\n'
        '  "topics": [\n'
        "    {\n"
        '      "topic": "orders",\n'
        '      "topic_id": "Tn8WAAMzQZSLxu4qy6tOJg",\n'
        '      "partition_count": 3,\n'
        '      "config": {\n'
        '        "cleanup.policy": "compact"\n'
        "      }\n"
        "    }\n"
        "  ]\n"
        "}\n"
    )
    assert len(set(files.contents.values())) == 1


def test_the_highest_generation_wins_in_any_order_of_directories(files: MemoryFiles) -> None:
    open_store(files).put(ORDERS)
    open_store(files, SECOND).put(CLICKS)

    for directories in ((FIRST, SECOND), (SECOND, FIRST)):
        assert open_store(files, *directories).list() == (CLICKS, ORDERS)


def test_the_next_write_brings_a_directory_that_fell_behind_up_to_date(
    files: MemoryFiles,
) -> None:
    open_store(files).put(ORDERS)
    open_store(files, SECOND).put(CLICKS)

    open_store(files).delete("orders")

    assert files.generation(FIRST) == files.generation(SECOND) == 3
    assert open_store(files, FIRST).list() == (CLICKS,)


def test_a_directory_that_fails_does_not_stop_the_others(files: MemoryFiles) -> None:
    store = open_store(files)
    store.put(ORDERS)
    files.broken.add(FIRST)

    store.put(CLICKS)

    assert store.list() == (CLICKS, ORDERS)
    assert open_store(files).list() == (CLICKS, ORDERS)


def test_a_directory_that_failed_once_is_left_alone_until_the_store_is_opened_anew(
    files: MemoryFiles,
) -> None:
    store = open_store(files)
    store.put(ORDERS)
    files.broken.add(FIRST)
    store.put(CLICKS)
    files.broken.clear()

    store.delete("orders")

    assert files.generation(FIRST) == 1
    assert files.generation(SECOND) == 3


def test_a_write_fails_when_no_directory_is_left_and_changes_nothing(files: MemoryFiles) -> None:
    store = open_store(files)
    store.put(ORDERS)
    files.broken.update((FIRST, SECOND))

    with pytest.raises(LogDirOfflineError, match="Input/output error"):
        store.put(CLICKS)

    assert store.list() == (ORDERS,)
    with pytest.raises(LogDirOfflineError):
        open_store(files)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"version": 0,\n "topics" []}', "line 2 column 11: Expecting ':' delimiter"),
        ("", "line 1 column 1: Expecting value"),
        ('{"version": 1}', "expected version 0, found 1"),
        ('{"generation": 1, "topics": []}', "version is missing"),
        ('{"version": 0, "topics": []}', "generation is missing"),
        (
            '{"version": 0, "generation": "1", "topics": []}',
            "makes no sense: '1' is not a number from 1",
        ),
        ('{"version": 0, "generation": 1, "topics": [{"topic": "a"}]}', "config is missing"),
        (
            '{"version": 0, "generation": 1, "topics": '
            '[{"topic": "a", "topic_id": "b", "partition_count": 1, "config": {}}]}',
            "makes no sense: 'b' is not a topic id",
        ),
        (
            '{"version": 0, "generation": 1, "topics": '
            '[{"topic": "a", "topic_id": "b", "partition_count": 1, "config": {"x": 1}}]}',
            "makes no sense: config of a is {'x': 1}",
        ),
        (
            '{"version": 0, "generation": 1, "topics": [{"topic": "a", "topic_id": '
            '"Tn8WAAMzQZSLxu4qy6tOJg", "partition_count": true, "config": {}}]}',
            "makes no sense: True is not a number from 1",
        ),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_its_place(
    files: MemoryFiles, text: str, reason: str
) -> None:
    path = SECOND / "silt-topics.json"
    files.contents[path] = text.encode()

    with pytest.raises(CorruptCheckpointError) as caught:
        open_store(files)

    assert str(caught.value) == f"{path}: {reason}"


@pytest.mark.parametrize("data", [b"[]", b"null", b"\xff\xfe\xfd", b"[" * 100_000, b"9" * 5000])
def test_a_file_of_another_shape_is_refused(files: MemoryFiles, data: bytes) -> None:
    files.contents[FIRST / "silt-topics.json"] = data

    with pytest.raises(CorruptCheckpointError):
        open_store(files)


def test_the_real_disk_will_do(tmp_path: Path) -> None:
    store = open_store(FileSystem(), tmp_path)

    store.put(ORDERS)

    assert open_store(FileSystem(), tmp_path).get("orders") == ORDERS
    assert [path.name for path in tmp_path.iterdir()] == ["silt-topics.json"]
