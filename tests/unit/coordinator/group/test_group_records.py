"""The records of groups, against bytes that Kafka 4.3.1's own classes wrote."""

import uuid

import pytest

from siltstone.coordinator.group import consumer_records as consumer
from siltstone.coordinator.group.consumer_records import (
    ClassicInfo,
    CurrentValue,
    GroupEpoch,
    Key,
    Kind,
    MemberValue,
    TargetEpoch,
)
from siltstone.coordinator.group.members import ProtocolOffer
from siltstone.coordinator.group.records import (
    GroupValue,
    OffsetKey,
    OffsetValue,
    StoredMember,
    decode_group_key,
    decode_group_value,
    decode_offset_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from siltstone.errors import DecodeError

TOPIC_ID = uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
OFFSET = OffsetValue(1234567890123, -1, "meta", 1700000000000)
OFFSETS = {
    "00000000011f71fb04cb00046d6574610000018bcfe56800": OFFSET,
    "00010000011f71fb04cb00046d6574610000018bcfe568000000018bcfe58f0f": OFFSET._replace(
        expire_time_ms=1700000009999
    ),
    "00020000011f71fb04cb00046d6574610000018bcfe56800": OFFSET,
    "00030000011f71fb04cb0000000500046d6574610000018bcfe56800": OFFSET._replace(leader_epoch=5),
    "00040000011f71fb04cb00000005056d6574610000018bcfe56800"
    "0100100102030405060708090a0b0c0d0e0f10": OFFSET._replace(leader_epoch=5, topic_id=TOPIC_ID),
    "00040000000000000001ffffffff01000000000000000200": OffsetValue(1, -1, "", 2),
}
MEMBER = StoredMember("m-1", "i", "c", "/127.0.0.1", 9000, 6000, b"\1\2", b"\3")
GROUP = GroupValue("consumer", 3, "range", "m-1", 1700000000000, (MEMBER,))
OLD_MEMBER = MEMBER._replace(instance_id=None)
GROUPS = {
    "00000008636f6e73756d657200000003000572616e676500036d2d310000000100036d2d31000163000a2f313237"
    "2e302e302e31000017700000000201020000000103": GROUP._replace(
        state_since_ms=-1, members=(OLD_MEMBER._replace(rebalance_timeout_ms=6000),)
    ),
    "00010008636f6e73756d657200000003000572616e676500036d2d310000000100036d2d31000163000a2f313237"
    "2e302e302e3100002328000017700000000201020000000103": GROUP._replace(
        state_since_ms=-1, members=(OLD_MEMBER,)
    ),
    "00020008636f6e73756d657200000003000572616e676500036d2d310000018bcfe568000000000100036d2d3100"
    "0163000a2f3132372e302e302e3100002328000017700000000201020000000103": GROUP._replace(
        members=(OLD_MEMBER,)
    ),
    "00030008636f6e73756d657200000003000572616e676500036d2d310000018bcfe568000000000100036d2d3100"
    "0169000163000a2f3132372e302e302e3100002328000017700000000201020000000103": GROUP,
    "000409636f6e73756d6572000000030672616e6765046d2d310000018bcfe5680002046d2d31026902630b2f3132"
    "372e302e302e31000023280000177003010202030000": GROUP,
    "00030008636f6e73756d657200000004ffffffff000000000000000500000000": GroupValue(
        "consumer", 4, None, None, 5, ()
    ),
}
KEYS = {
    "0003000167": Key(Kind.GROUP, "g"),
    "000500016700016d": Key(Kind.MEMBER, "g", "m"),
    "0006000167": Key(Kind.TARGET, "g"),
    "000700016700016d": Key(Kind.TARGET_MEMBER, "g", "m"),
    "000800016700016d": Key(Kind.CURRENT_MEMBER, "g", "m"),
    "00100001670003782e2a": Key(Kind.REGEX, "g", "x.*"),
}
MEMBERS = {
    "00000269000263032f68030261026204782e2a0000753008756e69666f726d01000100": MemberValue(
        "i", None, "c", "/h", ("a", "b"), "x.*", 30000, "uniform"
    ),
    "000001010263032f680202610100007530010100120100001770020672616e6765040102030000": MemberValue(
        "",
        "",
        "c",
        "/h",
        ("a",),
        "",
        30000,
        "",
        ClassicInfo(6000, (ProtocolOffer("range", b"\1\2\3"),)),
    ),
}
EPOCHS = {
    GroupEpoch(9): "00000000000900",
    GroupEpoch(9, 77): "000000000009010008000000000000004d",
}
TARGET_EPOCHS = {
    TargetEpoch(9): "00000000000900",
    TargetEpoch(9, 1700000000000): "0000000000090100080000018bcfe56800",
}


@pytest.mark.parametrize(("data", "value"), OFFSETS.items())
def test_an_offset_of_any_version_is_read(data: str, value: OffsetValue) -> None:
    assert decode_offset_value(bytes.fromhex(data)) == value


@pytest.mark.parametrize("data", [d for d in OFFSETS if d[:4] in ("0001", "0004")])
def test_an_offset_is_written_as_kafka_does(data: str) -> None:
    assert encode_offset_value(OFFSETS[data]).hex() == data


@pytest.mark.parametrize(("data", "value"), GROUPS.items())
def test_a_classic_group_of_any_version_is_read(data: str, value: GroupValue) -> None:
    assert decode_group_value(bytes.fromhex(data)) == value


@pytest.mark.parametrize("data", [d for d in GROUPS if d[:4] == "0003"])
def test_a_classic_group_is_written_as_kafka_does(data: str) -> None:
    assert encode_group_value(GROUPS[data]).hex() == data


def test_keys_are_kafkas() -> None:
    offset, data = OffsetKey("größe", "topic", 7), "000100076772c3b6c39f650005746f70696300000007"

    assert encode_offset_key(offset).hex() == data
    assert decode_offset_key(bytes.fromhex(data)) == offset
    assert encode_group_key("g").hex() == "0002000167"
    assert decode_group_key(bytes.fromhex("0002000167")) == "g"
    for text, key in KEYS.items():
        assert consumer.encode_key(key).hex() == text
        assert consumer.decode_key(bytes.fromhex(text)) == key


@pytest.mark.parametrize(("data", "value"), MEMBERS.items())
def test_what_a_member_tells_is_kafkas(data: str, value: MemberValue) -> None:
    assert consumer.encode_member(value).hex() == data
    assert consumer.decode_member(bytes.fromhex(data)) == value


def test_epochs_assignments_and_patterns_are_kafkas() -> None:
    target = frozenset({(TOPIC_ID, 0), (TOPIC_ID, 2)})
    target_data = "0000020102030405060708090a0b0c0d0e0f100300000000000000020000"
    current = CurrentValue(4, 3, 1, {(TOPIC_ID, 0): 4}, {(TOPIC_ID, 1): 3})
    current_data = (
        "0000000000040000000301020102030405060708090a0b0c0d0e0f1002000000000100050200000004"
        "020102030405060708090a0b0c0d0e0f100200000001010005020000000300"
    )
    without_epochs = (
        "0000000000040000000301020102030405060708090a0b0c0d0e0f1002000000000002"
        "0102030405060708090a0b0c0d0e0f1002000000010000"
    )
    regex_data = "00000303783103783200000000000000030000018bcfe5680000"

    for epoch, epoch_data in EPOCHS.items():
        assert consumer.encode_group(epoch).hex() == epoch_data
        assert consumer.decode_group(bytes.fromhex(epoch_data)) == epoch
    for target_epoch, epoch_data in TARGET_EPOCHS.items():
        assert consumer.encode_target_epoch(target_epoch).hex() == epoch_data
        assert consumer.decode_target_epoch(bytes.fromhex(epoch_data)) == target_epoch
    assert consumer.encode_target(target).hex() == target_data
    assert consumer.decode_target(bytes.fromhex(target_data)) == target
    assert consumer.encode_current(current).hex() == current_data
    assert consumer.decode_current(bytes.fromhex(current_data)) == current
    assert consumer.decode_current(bytes.fromhex(without_epochs)) == current._replace(
        pending_revocation={(TOPIC_ID, 1): 4}
    )
    assert consumer.encode_regex(["x2", "x1"], 3, 1700000000000).hex() == regex_data
    assert consumer.decode_regex(bytes.fromhex(regex_data)) == {"x1", "x2"}


@pytest.mark.parametrize("data", ["", "0009", "000400", "0003ffffffffffff"])
def test_what_makes_no_sense_is_refused(data: str) -> None:
    with pytest.raises(DecodeError):
        decode_offset_value(bytes.fromhex(data))
    with pytest.raises(DecodeError):
        decode_group_value(bytes.fromhex(data))
