from pathlib import Path

import pytest

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.origin import AppendOrigin
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.support.clock import START_MS, ManualClock
from tests.support.silt_command import Silt


@pytest.fixture
def ten_records(silt: Silt, log_dir: Path) -> None:
    """Ten records in batches of two, one second apart."""
    with LogManager([log_dir], clock=ManualClock(START_MS + 60_000)) as manager:
        manager.create_topic("orders", 1)
        log = manager.get_log(TopicPartition("orders", 0))
        for number in range(0, 10, 2):
            log.append(
                build_batch(
                    Record(i, START_MS + (number + i) * 1000, b"k%d" % (number + i), b"v")
                    for i in range(2)
                )
            )


@pytest.mark.usefixtures("ten_records")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "0 1 2 3 4 5 6 7 8 9"),
        (["-o", "beginning"], "0 1 2 3 4 5 6 7 8 9"),
        (["-o", "end"], ""),
        (["-o", "7"], "7 8 9"),
        (["-o", "-3"], "7 8 9"),
        (["-o-3"], "7 8 9"),
        (["-o", "-100"], "0 1 2 3 4 5 6 7 8 9"),
        (["-o", f"s@{START_MS + 6500}"], "7 8 9"),
        (["-o", f"s@{START_MS + 7000}"], "7 8 9"),
        (["-o", f"s@{START_MS + 60_000}"], ""),
        (["-o", f"e@{START_MS + 3000}"], "0 1 2"),
        (["-o", f"s@{START_MS + 2000}", "-o", f"e@{START_MS + 5000}"], "2 3 4"),
        (["-c", "3"], "0 1 2"),
        (["-o", "5", "-c", "2"], "5 6"),
    ],
)
def test_where_to_begin_and_to_end(silt: Silt, options: list[str], expected: str) -> None:
    consumed = silt("consume", "orders", "-e", "-f", "%o ", *options)

    assert (consumed.exit_code, consumed.err) == (0, "")
    assert consumed.text.strip() == expected


@pytest.mark.usefixtures("ten_records")
@pytest.mark.parametrize("options", [["-c", "10"], ["-o", f"e@{START_MS + 3000}"]])
def test_a_consumer_that_has_all_it_wanted_does_not_wait_for_more(
    silt: Silt, options: list[str]
) -> None:
    assert silt("consume", "orders", *options).exit_code == 0


@pytest.mark.usefixtures("ten_records")
def test_an_offset_that_is_not_there_is_replaced_by_the_nearest(silt: Silt) -> None:
    consumed = silt("consume", "orders", "-e", "-o", "17")

    assert (consumed.exit_code, consumed.out) == (0, b"")
    assert consumed.err == "orders-0 has no offset 17: starting at 10\n"


def test_values_are_printed_for_people_unless_a_format_is_given(silt: Silt) -> None:
    silt("topics", "create", "t", "--config", "cleanup.policy=compact")
    silt("produce", "t", "-K:", "-Z", "-H", "h=1", stdin=b"a:text\nb:\xff\xfe\nc:\n")
    silt("produce", "t", "-K:", stdin=b"d:\n")

    assert silt("consume", "t", "-e").text == "text\n0xfffe\nnull\n\n"
    assert silt("consume", "t", "-e", "-K", " = ").lines == [
        "a = text",
        "b = 0xfffe",
        "c = null",
        "d = ",
    ]
    assert silt("consume", "t", "-e", "-D", "%;").text == "text%;0xfffe%;null%;%;"
    assert silt("consume", "t", "-e", "-f", "%k=%s;").out == b"a=text;b=\xff\xfe;c=;d=;"
    assert silt("consume", "t", "-e", "-Z", "-f", "%s;").out == b"text;\xff\xfe;NULL;;"


def test_json_lines_are_in_the_shape_of_kcat(silt: Silt) -> None:
    silt("topics", "create", "t", "--partitions", "2")
    silt("produce", "t", "-p", "1", "-K:", "-H", "h=1", stdin=b"a:\xff\n")

    consumed = silt("consume", "t", "-e", "-J")

    (line,) = consumed.json_lines
    assert line.pop("ts") > 0
    assert line == {
        "topic": "t",
        "partition": 1,
        "offset": 0,
        "tstype": "create",
        "broker": -1,
        "headers": ["h", "1"],
        "key": "a",
        "key_encoding": "utf8",
        "payload": "/w==",
        "value_encoding": "base64",
    }
    assert silt("consume", "t", "-e", "--output", "json").out == consumed.out


def test_all_partitions_are_read_unless_one_is_chosen(silt: Silt) -> None:
    silt("topics", "create", "t", "--partitions", "2")
    silt("produce", "t", "-p", "0", stdin=b"zero\n")
    silt("produce", "t", "-p", "1", stdin=b"one\n")

    assert silt("consume", "t", "-e").lines == ["zero", "one"]
    assert silt("consume", "t", "-e", "-p", "1").lines == ["one"]


@pytest.fixture
def transactions(silt: Silt, log_dir: Path) -> None:
    """Offsets 0: plain, 1: aborted, 2: marker, 3: committed, 4: marker, 5: open, 6: plain."""
    with LogManager([log_dir], clock=ManualClock()) as manager:
        manager.create_topic("t", 1)
        log = manager.get_log(TopicPartition("t", 0))
        log.append(build_batch([Record(0, START_MS, b"k", b"plain")]))
        for sequence, (value, end) in enumerate(
            [
                (b"aborted", ControlType.ABORT),
                (b"committed", ControlType.COMMIT),
                (b"open", None),
            ]
        ):
            log.append(
                build_batch(
                    [Record(0, START_MS, b"k", value)],
                    producer_id=7,
                    producer_epoch=0,
                    base_sequence=sequence,
                    is_transactional=True,
                )
            )
            if end is not None:
                log.append(
                    build_marker(
                        end,
                        offset=0,
                        timestamp_ms=START_MS,
                        producer_id=7,
                        producer_epoch=0,
                        coordinator_epoch=0,
                    ),
                    origin=AppendOrigin.COORDINATOR,
                )
        log.append(build_batch([Record(0, START_MS, b"k", b"after")]))


@pytest.mark.usefixtures("transactions")
def test_only_what_was_committed_is_seen_unless_asked_for_more(silt: Silt) -> None:
    consume = ["consume", "t", "-e", "-f", "%o:%s "]

    assert silt(*consume).text == "0:plain 3:committed "
    assert silt(*consume, "--isolation-level", "read_committed").text == "0:plain 3:committed "
    assert silt(*consume, "--isolation-level", "read_uncommitted").text == (
        "0:plain 1:aborted 3:committed 5:open 6:after "
    )
    assert silt(*consume, "-o", "-2").text == "3:committed "  # back from the last stable offset


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["nope"], 1, "topic nope does not exist"),
        (["t", "-p", "9"], 1, "topic t has no partition 9"),
        (["../t"], 2, "illegal topic name '../t'"),
        (["t", "-o", "stored"], 2, "-o stored: use beginning, end, N, -N, s@ms or e@ms"),
        (["t", "-f", "%x"], 2, "-f: unknown token %x: use %s"),
        (["t", "-J", "-f", "%s"], 2, "-J and -f exclude each other"),
        (["t", "-c", "0"], 2, "invalid value for '-c'"),
        (["t", "--isolation-level", "dirty"], 2, "invalid value for '--isolation-level': 'dirty'"),
        (["t", "--log-dir", "nowhere"], 1, "nowhere does not exist"),
        (["t", "--config", "x=1"], 2, "unknown setting x"),
    ],
)
def test_what_cannot_be_consumed_is_refused(
    silt: Silt, arguments: list[str], exit_code: int, message: str
) -> None:
    silt("topics", "create", "t")

    consumed = silt("consume", "-e", *arguments)

    assert consumed.exit_code == exit_code
    assert consumed.err.startswith(f"silt: error: {message}")


@pytest.mark.usefixtures("ten_records")
def test_a_damaged_batch_is_named_and_what_stands_before_is_printed(
    silt: Silt, log_dir: Path
) -> None:
    path = log_dir / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    position = len(data) // 5 * 2  # the third of five batches of the same size
    data[position + 70] ^= 1
    path.write_bytes(data)

    consumed = silt("consume", "orders", "-e", "-f", "%o ")

    assert (consumed.exit_code, consumed.text) == (1, "0 1 2 3 ")
    assert consumed.err.startswith(
        f"silt: error: orders-0/00000000000000000000.log is corrupt at position {position}: "
        "header says CRC 0x"
    )


@pytest.mark.usefixtures("ten_records")
def test_reading_changes_nothing(silt: Silt, log_dir: Path) -> None:
    def look() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in log_dir.rglob("*")
        }

    before = look()
    for command in (
        ["consume", "orders", "-e"],
        ["topics", "list"],
        ["topics", "describe"],
        ["offsets"],
        ["dump", "orders"],
    ):
        assert silt(*command).exit_code == 0

    assert look() == before
