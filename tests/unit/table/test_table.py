"""`siltstone.open(path).table(topic)`, beside the process that writes and compacts."""

from typing import Any

import pyarrow as pa
import pytest

import siltstone
from siltstone.errors import KeyNotLiveError, MalformedDataError, UnknownTopicError
from siltstone.ids import TopicPartition
from siltstone.records.partitioner import java_partition
from siltstone.table import decoding
from tests.support.orders import EXPECTED, Owner, open_table


def test_a_key_is_looked_up_by_bytes_or_text(owner: Owner) -> None:
    table = open_table(owner)

    assert table.get(b"key-1") == table.get("key-1") == b'{"n":21}'
    assert table["key-1"] == b'{"n":21}'
    assert table.get("key-3", b"none") == b"none"
    assert "key-1" in table
    assert "key-3" not in table
    assert table.get_many(["key-1", "key-3", b"unseen"]) == {"key-1": b'{"n":21}'}
    with pytest.raises(KeyNotLiveError, match="key key-3 was deleted at offset"):
        table["key-3"]


def test_a_found_record_tells_where_it_is(owner: Owner) -> None:
    found = open_table(owner).find("key-3")

    assert found is not None
    assert found.is_tombstone
    assert found.partition == java_partition(b"key-3", 3)
    assert found.headers == (("h", b"x"),)


def test_all_of_a_table_is_a_dict(owner: Owner) -> None:
    table = open_table(owner)
    restored: dict[bytes, bytes] = {}

    result = table.restore_into(restored)

    assert restored == EXPECTED == dict(table.items())
    assert result.key_count == 9
    assert result.end_offsets == {
        number: owner.manager.get_log(TopicPartition("orders", number)).log_end_offset
        for number in range(3)
    }


def test_a_store_that_takes_one_key_at_a_time_is_restored_too(owner: Owner) -> None:
    class Store:
        def __init__(self) -> None:
            self.content: dict[Any, Any] = {}

        def put(self, key: Any, value: Any) -> None:
            self.content[key] = value

    store = Store()

    open_table(owner).restore_into(store)

    assert store.content == EXPECTED


def test_a_table_is_an_arrow_stream_with_its_bounds(owner: Owner) -> None:
    table = open_table(owner)

    read = table.to_arrow().read_all()

    assert isinstance(read, pa.Table)
    assert dict(zip(read["key"].to_pylist(), read["value"].to_pylist(), strict=True)) == EXPECTED
    assert set(read["topic"].to_pylist()) == {"orders"}
    assert b'"consistent_from": 0' in read.schema.metadata[b"siltstone.bounds"]
    assert len(table.bounds()) == 3


def test_values_are_decoded(owner: Owner) -> None:
    table = open_table(owner, decode_key=decoding.decode_text, decode_value=decoding.decode_json)

    assert table.get("key-1") == {"n": 21}
    assert dict(table.items())["key-1"] == {"n": 21}


def test_following_gives_the_state_and_then_every_change(owner: Owner) -> None:
    table = open_table(owner)
    changes = table.follow()
    state = {}
    for _ in range(9):
        change = next(changes)
        state[change.key] = change.value
    assert state == EXPECTED

    owner.put(b"key-1", b"new")
    owner.clean()
    owner.put(b"key-1", None)
    owner.put(b"key-1", b"newest")
    seen = [next(changes).value for _ in range(2)]

    # The pass has discarded what was superseded: b"new" may be gone, the rest is not.
    seen += [] if seen[-1] == b"newest" else [next(changes).value]
    assert seen[-2:] == [None, b"newest"]


def test_following_goes_on_where_a_restore_has_ended(owner: Owner) -> None:
    table = open_table(owner)
    restored: dict[bytes, bytes] = {}
    ends = table.restore_into(restored).end_offsets
    owner.put(b"key-5", None)
    owner.put(b"key-3", b"back")

    changes = list(table.follow(ends, waits=False))

    assert {(change.key, change.value) for change in changes} == {
        (b"key-5", None),
        (b"key-3", b"back"),
    }


def test_a_lookup_sees_what_was_appended_before_it_whatever_a_pass_does(owner: Owner) -> None:
    table = open_table(owner)
    for number in range(40):
        owner.put(b"key-1", b"%d" % number)
        if number % 10 == 5:
            owner.clean()
        assert table.get("key-1") == b"%d" % number
    owner.put(b"key-1", None)
    assert table.get("key-1") is None


def test_an_unknown_topic_is_refused(owner: Owner) -> None:
    with pytest.raises(UnknownTopicError):
        siltstone.open(owner.path).table("nothing")
    assert siltstone.open(owner.path).topics() == ["orders"]


def test_framed_values_are_taken_apart() -> None:
    schema = {"type": "record", "name": "V", "fields": [{"name": "n", "type": "int"}]}
    framed = decoding.encode_avro({"n": 5}, 7, schema)

    assert framed[:5] == b"\0\0\0\0\x07"
    assert decoding.avro_decoder({7: schema}.__getitem__)(framed) == {"n": 5}
    assert decoding.decode_framed_json(decoding.make_frame(1, b'{"n":5}')) == {"n": 5}
    with pytest.raises(MalformedDataError, match="no frame of a schema registry"):
        decoding.split_frame(b"plain")
