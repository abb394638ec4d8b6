import zlib
from pathlib import Path

import pytest

from siltstone.records.partitioner import java_partition
from tests.support.silt_command import Silt


@pytest.fixture(autouse=True)
def _topics(silt: Silt) -> None:
    silt("topics", "create", "orders", "--partitions", "3")
    silt("topics", "create", "customers", "--config", "cleanup.policy=compact")


def test_lines_become_records_and_a_summary_says_where_they_went(silt: Silt) -> None:
    produced = silt("produce", "customers", "-K:", "-Z", stdin=b"a:1\nb:2\n\na:\n")

    assert (produced.exit_code, produced.out) == (0, b"")
    assert produced.err == ("3 records (87 B) appended to customers: partition 0 offsets 0 to 2\n")
    consumed = silt("consume", "customers", "-e", "-J").json_lines
    assert [(line["key"], line["payload"]) for line in consumed] == [
        ("a", "1"),
        ("b", "2"),
        ("a", None),
    ]


def test_the_summary_as_json(silt: Silt) -> None:
    silt("produce", "orders", "-p", "2", stdin=b"zero\n")

    produced = silt("produce", "orders", "-p", "2", "--output", "json", stdin=b"one\ntwo\n")

    assert produced.err == ""
    assert produced.json == {
        "topic": "orders",
        "record_count": 2,
        "size_bytes": 81,
        "partitions": [
            {
                "partition": 2,
                "first_offset": 1,
                "last_offset": 2,
                "record_count": 2,
                "size_bytes": 81,
            }
        ],
    }


def test_keys_land_where_javas_client_puts_them(silt: Silt) -> None:
    keys = [b"key-%d" % number for number in range(50)]

    silt("produce", "orders", "-K", "|", stdin=b"".join(key + b"|v\n" for key in keys))

    found = {
        line["key"]: line["partition"] for line in silt("consume", "orders", "-e", "-J").json_lines
    }
    assert found == {key.decode(): java_partition(key, 3) for key in keys}


def test_another_partitioner_can_be_chosen(silt: Silt) -> None:
    silt("produce", "orders", "-K:", "--partitioner", "consistent", stdin=b"a:1\nb:1\nc:1\nd:1\n")

    found = dict(map(str.split, silt("consume", "orders", "-e", "-f", r"%k %p\n").lines))
    assert found == {key: str(zlib.crc32(key.encode()) % 3) for key in "abcd"}


def test_records_without_a_key_stay_together_and_then_move_on(silt: Silt) -> None:
    produced = silt("produce", "orders", "--output", "json", stdin=b"x\n" * 3000)

    assert [part["record_count"] for part in produced.json["partitions"]] == [1000] * 3


def test_headers_codec_and_fixed_key_apply_to_every_record(silt: Silt, log_dir: Path) -> None:
    silt(
        *("produce", "customers", "-k", "fixed", "-H", "a=1", "-H", "b", "-z", "zstd"),
        stdin=b"one\ntwo\n",
    )

    lines = silt("consume", "customers", "-e", "-f", r"%k %s %h\n").lines
    assert lines == ["fixed one a=1,b=NULL", "fixed two a=1,b=NULL"]
    assert "compresscodec: zstd" in silt("dump", "customers").text


def test_files_are_records_or_with_l_lines(silt: Silt, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"one\ntwo\n")
    second.write_bytes(b"three")

    silt("produce", "orders", "-p", "0", first, second)
    silt("produce", "orders", "-p", "1", "-l", first, second)

    assert silt("consume", "orders", "-p", "0", "-e", "-f", "%s;").out == b"one\ntwo\n;three;"
    assert silt("consume", "orders", "-p", "1", "-e", "-f", "%s;").out == b"one;two;three;"


def test_other_delimiters_and_any_bytes(silt: Silt) -> None:
    silt("produce", "orders", "-p", "0", "-D", r"\x00", "-K", r"\t", stdin=b"k\t\xff\n\0l\tv\0")

    assert silt("consume", "orders", "-e", "-f", "%k=%s;").out == b"k=\xff\n;l=v;"


def test_no_more_than_the_count_is_produced(silt: Silt) -> None:
    silt("produce", "orders", "-p", "0", "-c", "2", stdin=b"1\n2\n3\n")

    assert silt("consume", "orders", "-e").lines == ["1", "2"]


def test_batches_respect_a_small_limit_of_the_topic(silt: Silt) -> None:
    silt("topics", "create", "small", "--config", "max.message.bytes=200")

    produced = silt("produce", "small", stdin=b"0123456789\n" * 50)

    assert produced.exit_code == 0
    assert len(silt("consume", "small", "-e").lines) == 50


def test_a_record_over_the_limit_is_refused_and_what_went_before_is_told(silt: Silt) -> None:
    silt("topics", "create", "small", "--config", "max.message.bytes=200")

    produced = silt("produce", "small", stdin=b"fits\n" + b"x" * 300 + b"\n")

    assert produced.exit_code == 1
    assert produced.err.splitlines() == [
        "1 record (72 B) appended to small: partition 0 offsets 0 to 0",
        "silt: error: small-0: a batch of 370 bytes is over max.message.bytes (200)",
    ]


def test_a_compacted_topic_takes_no_record_without_a_key(silt: Silt) -> None:
    produced = silt("produce", "customers", "-K:", stdin=b"a:1\nno key\n")

    assert produced.exit_code == 1
    assert produced.err == (
        "silt: error: record 2 has no key: topic customers is compacted, use -K or -k\n"
    )


def test_nothing_in_nothing_out(silt: Silt) -> None:
    assert silt("produce", "orders").err == "0 records (0 B) appended to orders\n"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["nope"], 1, "topic nope does not exist"),
        (["orders", "-p", "9"], 1, "topic orders has no partition 9"),
        (["or ders"], 2, "illegal topic name 'or ders'"),
        (["orders", "-z", "brotli"], 2, "-z: unknown codec brotli: use one of none, gzip"),
        (["orders", "--partitioner", "murmur"], 2, "unknown partitioner murmur: did you mean mur"),
        (["orders", "-K", ""], 2, "-K needs a delimiter of one character or more"),
        (["orders", "-H", "=v"], 2, "-H =v has no name"),
        (["orders", "no-such-file"], 1, "cannot read no-such-file: No such file or directory"),
        (["orders", "--config", "segment.byts=1"], 2, "unknown setting segment.byts: did you mean"),
        (["orders", "--log-dir", "nowhere"], 1, "nowhere does not exist"),
    ],
)
def test_what_cannot_be_produced_is_refused(
    silt: Silt, arguments: list[str], exit_code: int, message: str
) -> None:
    produced = silt("produce", *arguments, stdin=b"v\n")

    assert produced.exit_code == exit_code
    assert produced.err.startswith(f"silt: error: {message}")


def test_a_key_needs_all_partitions_to_be_there(silt: Silt, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    silt("topics", "create", "t", "--partitions", "4", "--log-dir", one, "--log-dir", two)

    produced = silt("produce", "t", "--log-dir", one, stdin=b"v\n")

    assert produced.exit_code == 1
    assert "only 2 of the 4 partitions of topic t are here" in produced.err
