"""`silt get`, `scan` and `count`, on logs that the other commands wrote."""

import base64
import json
from pathlib import Path

import pytest

from siltstone.table.decoding import encode_avro
from tests.support.silt_command import Silt

RECORDS = b"a:1\nb:2\na:3\nc:4\nb:\n"


@pytest.fixture
def orders(silt: Silt) -> Silt:
    assert silt("topics", "create", "orders", "--config", "cleanup.policy=compact").exit_code == 0
    assert silt("produce", "orders", "-K", ":", "-Z", stdin=RECORDS).exit_code == 0
    return silt


def test_get_prints_the_last_value_of_a_key(orders: Silt) -> None:
    found = orders("get", "orders", "a")

    assert (found.exit_code, found.text) == (0, "3\n")


def test_get_describes_the_record_as_json(orders: Silt) -> None:
    found = orders("get", "orders", "a", "--output", "json").json

    assert found.pop("timestamp") > 1_600_000_000_000
    assert found == {
        "topic": "orders",
        "partition": 0,
        "offset": 2,
        "timestamp_type": "create",
        "key": "a",
        "key_encoding": "utf8",
        "value": "3",
        "value_encoding": "utf8",
        "headers": [],
    }


def test_get_tells_a_deleted_key_from_one_that_was_never_seen(orders: Silt) -> None:
    deleted = orders("get", "orders", "b")
    unseen = orders("get", "orders", "x", "--output", "json")

    assert (deleted.exit_code, deleted.out) == (1, b"")
    assert deleted.err == "silt: error: key b was deleted at offset 4 of orders-0\n"
    assert unseen.exit_code == 1
    assert "silt: error: key x was never seen in orders-0" in unseen.err
    assert '"code":"key_not_live"' in unseen.err


@pytest.mark.parametrize(
    ("key_format", "key"), [("hex", "61"), ("hex", "0x61"), ("base64", "YQ=="), ("text", "a")]
)
def test_get_takes_the_key_in_other_formats(orders: Silt, key_format: str, key: str) -> None:
    assert orders("get", "orders", key, "--key-format", key_format).text == "3\n"


def test_a_key_that_is_not_of_its_schema_is_wrong_usage(silt: Silt, tmp_path: Path) -> None:
    silt("topics", "create", "t")
    (tmp_path / "key.avsc").write_text('{"type": "int"}')
    schema = ("--key-schema", tmp_path / "key.avsc", "--key-schema-id", "42")

    wrong = silt("get", "t", '"seven"', "--key-format", "avro-confluent", *schema)

    assert wrong.exit_code == 2
    assert wrong.err.startswith('silt: error: "seven" is no key in avro-confluent: ')


def test_get_finds_keys_that_are_json_or_avro(silt: Silt, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "key.avsc").write_text(json.dumps(schema))
    avro_key = encode_avro({"id": 7}, 42, schema)
    (tmp_path / "value").write_bytes(b'{"id":7}|json')
    silt("topics", "create", "t", "--config", "cleanup.policy=compact")
    silt("produce", "t", "-K", "|", stdin=b'{"id":7}|json\n' + avro_key + b"|avro\n")

    as_json = silt("get", "t", '{ "id": 7 }', "--key-format", "json")
    as_avro = silt(
        *("get", "t", '{"id": 7}', "--key-format", "avro-confluent"),
        *("--key-schema", tmp_path / "key.avsc", "--key-schema-id", "42"),
    )

    assert (as_json.text, as_avro.text) == ("json\n", "avro\n")


def test_get_refuses_a_key_that_is_none_in_its_format(orders: Silt) -> None:
    found = orders("get", "orders", "zz", "--key-format", "hex")

    assert found.exit_code == 2
    assert found.err.startswith("silt: error: zz is no key in hex: ")


def test_get_looks_where_the_partitioner_puts_the_key_or_in_all(silt: Silt) -> None:
    silt("topics", "create", "t", "--partitions", "4", "--config", "cleanup.policy=compact")
    silt("produce", "t", "-K", ":", stdin=b"k:right\n")
    where = silt("get", "t", "k", "--output", "json").json["partition"]
    other = (where + 1) % 4
    silt("produce", "t", "-K", ":", "-p", str(other), stdin=b"k:wrong\n")

    assert silt("get", "t", "k").text == "right\n"
    assert silt("get", "t", "k", "--partition", str(other)).text == "wrong\n"
    assert set(silt("get", "t", "k", "--all-partitions").lines) == {"right", "wrong"}
    assert silt("get", "t", "k", "--partition", "9").exit_code == 1


def test_scan_prints_the_last_value_of_each_key_and_its_bounds(orders: Silt) -> None:
    bounds, *records = orders("scan", "orders", "--output", "json").json_lines

    assert bounds["view"] == "latest"
    assert bounds["bounds"][0]["end_offset"] == 5
    assert bounds["bounds"][0]["consistent_from"] == 0
    assert [(r["offset"], r["key"], r["value"]) for r in records] == [(2, "a", "3"), (3, "c", "4")]


def test_scan_shows_other_views_and_less_of_them(orders: Silt) -> None:
    def rows(*options: str) -> list[list[str]]:
        lines = orders("scan", "orders", *options).lines
        return [[*line.split("\t")[1:2], *line.split("\t")[3:]] for line in lines[1:]]

    assert rows("--view", "changes", "--since", "3") == [["3", "c", "4"], ["4", "b", "null"]]
    assert rows("--as-of", "2") == [["0", "a", "1"], ["1", "b", "2"]]
    assert rows("--as-of", '{"0":1}') == [["0", "a", "1"]]
    assert len(rows("--view", "log")) == 5
    assert rows("--view", "log", "--limit", "1") == [["0", "a", "1"]]
    assert rows("--filter", "c") == [["3", "c", "4"]]
    assert rows("--include-tombstones", "--filter", "b") == [["4", "b", "null"]]
    assert rows("--as-of", "@1") == []


def test_scan_refuses_what_makes_no_sense(orders: Silt) -> None:
    late = orders("scan", "orders", "--as-of", "9")
    wrong = orders("scan", "orders", "--as-of", "soon")
    elsewhere = orders("scan", "orders", "--as-of", '{"7":1}')
    since = orders("scan", "orders", "--since", "1")

    assert (late.exit_code, wrong.exit_code, since.exit_code) == (1, 2, 2)
    assert "offset 9" in late.err
    assert "--as-of soon: write an offset" in wrong.err
    assert elsewhere.exit_code == 2
    assert "partition 7 is not read" in elsewhere.err


def test_count_is_exact(orders: Silt) -> None:
    found = orders("count", "orders", "--output", "json").json

    assert {name: found[name] for name in ("records", "live_keys", "tombstones", "keyless")} == {
        "records": 5,
        "live_keys": 2,
        "tombstones": 1,
        "keyless": 0,
    }
    assert found["partitions"][0]["end_offset"] == 5
    assert found["partitions"][0]["first_offset"] == 0
    assert orders("count", "orders").lines[-1].split() == ["all", "5", "2", "1", "0"]


def test_bytes_that_are_no_text_come_as_base64(silt: Silt) -> None:
    silt("topics", "create", "t", "--config", "cleanup.policy=compact")
    silt("produce", "t", "-K", ":", stdin=b"k:\xff\xfe\n")

    found = silt("get", "t", "k", "--output", "json").json

    assert found["value_encoding"] == "base64"
    assert base64.b64decode(found["value"]) == b"\xff\xfe"
    assert silt("get", "t", "k").text == "0xfffe\n"
