"""`silt dump`. The lines were compared with those of Kafka 4.3.1's own tool: they are the same."""

import shutil
from pathlib import Path

import pytest

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.origin import AppendOrigin
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.support.clock import START_MS, ManualClock
from tests.support.silt_command import Silt

LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"
TXN_INDEX = "00000000000000000000.txnindex"
SNAPSHOT = "00000000000000000006.snapshot"

# A batch after a pass (facts A5): the record at 0 is gone, the horizon is set.
CLEANED_BATCH = bytes.fromhex(
    "00000000000000000000004b0000000002d5d6371a004000000002000001748c94dfe800000174876e8005"
    "ffffffffffffffffffffffffffff000000021600c5ffb25202046b3201001a00c9ffb25204046b31047632"
    "00"
)
EMPTY_BATCH = bytes.fromhex(
    "000000000000000300000031000000000269d700f9001000000000ffffffffffffffff00000174876e8007"
    "000000000000000700030000000000000000"
)


@pytest.fixture
def partition_dir(log_dir: Path) -> Path:
    """Offsets 0 and 1: lz4, 2: aborted, 3: its marker, 4: of an open transaction; 5: plain."""
    with LogManager([log_dir], clock=ManualClock()) as manager:
        manager.create_topic("t", 1, {"index.interval.bytes": "70"})
        log = manager.get_log(TopicPartition("t", 0))
        records = [
            Record(0, START_MS + 5, b"a", b"1", (("h", b"x"), ("i", None))),
            Record(1, START_MS, b"\xff", None),
        ]
        log.append(build_batch(records, codec=Codec.LZ4))
        for sequence in (0, 1):
            log.append(
                build_batch(
                    [Record(0, START_MS + 6 + sequence, b"t", b"\xfe")],
                    producer_id=7,
                    producer_epoch=3,
                    base_sequence=sequence,
                    is_transactional=True,
                )
            )
            if not sequence:
                log.append(
                    build_marker(
                        ControlType.ABORT,
                        offset=0,
                        timestamp_ms=START_MS + 6,
                        producer_id=7,
                        producer_epoch=3,
                        coordinator_epoch=5,
                    ),
                    origin=AppendOrigin.COORDINATOR,
                )
        log.append(build_batch([Record(0, START_MS + 8, None, b"")]))
    return log_dir / "t-0"


def batch_line(base: int, count: int, position: int, size: int, rest: str) -> str:
    return (
        f"baseOffset: {base} lastOffset: {base + count - 1} count: {count} {rest} "
        f"position: {position} CreateTime: {{}} size: {size} magic: 2"
    )


def test_batches_are_shown_in_the_words_of_kafka(silt: Silt, partition_dir: Path) -> None:
    path = partition_dir / LOG

    dumped = silt("dump", "--files", path)

    head = [line.split(" compresscodec: ")[0] for line in dumped.lines]
    plain = (
        "baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 0 isTransactional: false isControl: false "
        "deleteHorizonMs: OptionalLong.empty"
    )
    transactional = (
        "baseSequence: {0} lastSequence: {0} producerId: 7 producerEpoch: 3 "
        "partitionLeaderEpoch: 0 isTransactional: true isControl: {1} "
        "deleteHorizonMs: OptionalLong.empty"
    )
    sizes = [int(line.split(" size: ")[1].split()[0]) for line in dumped.lines[2:]]
    positions = [sum(sizes[:number]) for number in range(5)]
    assert sum(sizes) == path.stat().st_size
    assert head == [
        f"Dumping {path}",
        "Log starting offset: 0",
        batch_line(0, 2, positions[0], sizes[0], plain).format(START_MS + 5),
        batch_line(2, 1, positions[1], sizes[1], transactional.format(0, "false")).format(
            START_MS + 6
        ),
        batch_line(3, 1, positions[2], sizes[2], transactional.format(-1, "true")).format(
            START_MS + 6
        ),
        batch_line(4, 1, positions[3], sizes[3], transactional.format(1, "false")).format(
            START_MS + 7
        ),
        batch_line(5, 1, positions[4], sizes[4], plain).format(START_MS + 8),
    ]
    assert dumped.lines[2].split(" compresscodec: ")[1].startswith("lz4 crc: ")
    assert all(line.endswith(" isvalid: true") for line in dumped.lines[2:])


def test_records_are_shown_with_and_without_their_data(silt: Silt, partition_dir: Path) -> None:
    path = partition_dir / LOG

    def records(*options: str) -> list[str]:
        lines = silt("dump", "--files", path, *options).lines
        return [line for line in lines if line.startswith("|")]

    assert records("--deep-iteration") == [
        f"| offset: 0 CreateTime: {START_MS + 5} keySize: 1 valueSize: 1 sequence: -1 "
        "headerKeys: [h,i]",
        f"| offset: 1 CreateTime: {START_MS} keySize: 1 valueSize: -1 sequence: -1 headerKeys: []",
        f"| offset: 2 CreateTime: {START_MS + 6} keySize: 1 valueSize: 1 sequence: 0 "
        "headerKeys: []",
        f"| offset: 3 CreateTime: {START_MS + 6} keySize: 4 valueSize: 6 sequence: -1 "
        "headerKeys: [] endTxnMarker: ABORT coordinatorEpoch: 5",
        f"| offset: 4 CreateTime: {START_MS + 7} keySize: 1 valueSize: 1 sequence: 1 "
        "headerKeys: []",
        f"| offset: 5 CreateTime: {START_MS + 8} keySize: -1 valueSize: 0 sequence: -1 "
        "headerKeys: []",
    ]
    assert records("--print-data-log")[:3] == [
        f"| offset: 0 CreateTime: {START_MS + 5} keySize: 1 valueSize: 1 sequence: -1 "
        "headerKeys: [h,i] key: a payload: 1",
        f"| offset: 1 CreateTime: {START_MS} keySize: 1 valueSize: -1 sequence: -1 headerKeys: [] "
        "key: 0xff",
        f"| offset: 2 CreateTime: {START_MS + 6} keySize: 1 valueSize: 1 sequence: 0 "
        "headerKeys: [] key: t payload: 0xfe",
    ]
    assert records("--print-data-log", "--skip-record-metadata") == [
        "| key: a payload: 1",
        "| key: 0xff",
        "| key: t payload: 0xfe",
        "| key: t payload: 0xfe",
        "| payload: ",
    ]


def test_batches_and_records_as_json(silt: Silt, partition_dir: Path) -> None:
    path = partition_dir / LOG

    lines = silt("dump", "--files", path, "--print-data-log", "--output", "json").json_lines

    assert {line["file"] for line in lines} == {str(path)}
    assert lines[0] == {"file": str(path), "type": "log", "base_offset": 0}
    batch = lines[1]
    assert batch.pop("crc") > 0
    assert batch == {
        "file": str(path),
        "type": "batch",
        "base_offset": 0,
        "last_offset": 1,
        "record_count": 2,
        "base_sequence": -1,
        "last_sequence": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "leader_epoch": 0,
        "is_transactional": False,
        "is_control": False,
        "delete_horizon_ms": None,
        "position": 0,
        "timestamp_type": "CreateTime",
        "base_timestamp_ms": START_MS + 5,
        "max_timestamp_ms": START_MS + 5,
        "size_bytes": batch["size_bytes"],
        "magic": 2,
        "codec": "lz4",
        "is_valid": True,
    }
    assert lines[2] == {
        "file": str(path),
        "type": "record",
        "offset": 0,
        "timestamp_type": "CreateTime",
        "timestamp_ms": START_MS + 5,
        "key_bytes": 1,
        "value_bytes": 1,
        "sequence": -1,
        "header_keys": ["h", "i"],
        "key": "a",
        "key_encoding": "utf8",
        "value": "1",
        "value_encoding": "utf8",
        "headers": [
            {"key": "h", "value": "x", "value_encoding": "utf8"},
            {"key": "i", "value": None, "value_encoding": None},
        ],
    }
    assert (lines[3]["key"], lines[3]["key_encoding"], lines[3]["value"]) == (
        "/w==",
        "base64",
        None,
    )
    marker = next(line for line in lines if line.get("control_type"))
    assert (marker["control_type"], marker["coordinator_epoch"]) == ("ABORT", 5)


def test_indexes_snapshots_and_checkpoints(silt: Silt, partition_dir: Path) -> None:
    files = [INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT, "leader-epoch-checkpoint"]

    dumped = silt("dump", "--files", ",".join(str(partition_dir / name) for name in files))

    positions = [
        line["position"]
        for line in silt("dump", "--files", partition_dir / LOG, "--output", "json").json_lines[1:]
    ]
    assert dumped.lines == [
        f"Dumping {partition_dir / INDEX}",
        f"offset: 2 position: {positions[1]}",
        f"offset: 4 position: {positions[3]}",
        f"Dumping {partition_dir / TIME_INDEX}",
        f"timestamp: {START_MS + 6} offset: 2",
        f"timestamp: {START_MS + 7} offset: 4",
        f"timestamp: {START_MS + 8} offset: 5",
        f"Dumping {partition_dir / TXN_INDEX}",
        "version: 0 producerId: 7 firstOffset: 2 lastOffset: 3 lastStableOffset: 4",
        f"Dumping {partition_dir / SNAPSHOT}",
        "producerId: 7 producerEpoch: 3 coordinatorEpoch: 5 currentTxnFirstOffset: OptionalLong[4] "
        f"lastTimestamp: {START_MS + 7} firstSequence: 1 lastSequence: 1 lastOffset: 4 "
        f"offsetDelta: 0 timestamp: {START_MS + 7}",
        f"Dumping {partition_dir / 'leader-epoch-checkpoint'}",
        "epoch: 0 startOffset: 0",
    ]
    assert dumped.err == ""


def test_a_topic_is_dumped_whole(silt: Silt, partition_dir: Path) -> None:
    by_topic = silt("dump", "t")
    by_directory = silt("dump", partition_dir)

    assert [line for line in by_topic.lines if line.startswith("Dumping")] == [
        f"Dumping {partition_dir / name}"
        for name in (
            "leader-epoch-checkpoint",
            "partition.metadata",
            LOG,
            INDEX,
            TIME_INDEX,
            TXN_INDEX,
            SNAPSHOT,
        )
    ]
    assert by_directory.out == by_topic.out


def test_checkpoints_of_a_log_directory(silt: Silt, partition_dir: Path) -> None:
    path = partition_dir.parent / "recovery-point-offset-checkpoint"

    assert silt("dump", path).lines == [f"Dumping {path}", "topic: t partition: 0 offset: 6"]


def test_a_cleaned_batch_shows_its_horizon_and_gaps_are_told(silt: Silt, tmp_path: Path) -> None:
    path = tmp_path / LOG
    late = build_batch([Record(9, 0, b"k", b"v")], leader_epoch=0)
    path.write_bytes(CLEANED_BATCH + EMPTY_BATCH + late)

    dumped = silt("dump", "--files", path, "--deep-iteration")
    document = silt("dump", path, "--deep-iteration", "--output", "json").json_lines[-1]

    assert " deleteHorizonMs: OptionalLong[1600086401000] " in dumped.lines[2]
    assert "lastOffset: 3 count: 0 " in dumped.lines[5]
    assert dumped.err == f"Non-consecutive offsets in {path}\n  2 is followed by 9\n"
    assert document == {
        "type": "finding",
        "finding": "offset_gap",
        "file": str(path),
        "count": 1,
        "pairs": [{"offset": 2, "next_offset": 9}],
    }


def test_a_wrong_checksum_is_shown_and_the_dump_goes_on(silt: Silt, partition_dir: Path) -> None:
    path = partition_dir / LOG
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)

    dumped = silt("dump", "--files", path)

    assert dumped.exit_code == 0
    assert [line.split()[-1] for line in dumped.lines[2:]] == ["false"] + ["true"] * 4


@pytest.mark.parametrize(
    ("tail", "last_line"),
    [
        (CLEANED_BATCH[:5], f"Found 5 invalid bytes at the end of {LOG}"),
        (CLEANED_BATCH[:80], f"Found 80 invalid bytes at the end of {LOG}"),
        (bytes(3_000_000), f"Found 3000000 zero bytes at the end of {LOG}"),
    ],
)
def test_a_tail_that_is_no_batch_is_told(
    silt: Silt, tmp_path: Path, tail: bytes, last_line: str
) -> None:
    path = tmp_path / LOG
    path.write_bytes(CLEANED_BATCH + tail)

    dumped = silt("dump", "--files", path)

    assert dumped.exit_code == 0
    assert dumped.lines[-1] == last_line


def test_garbage_in_the_middle_is_an_error_that_says_where(silt: Silt, tmp_path: Path) -> None:
    path = tmp_path / LOG
    path.write_bytes(CLEANED_BATCH + bytes(100) + CLEANED_BATCH)

    dumped = silt("dump", "--files", path)

    assert dumped.exit_code == 1
    assert len(dumped.lines) == 3
    assert dumped.err == (
        f"silt: error: {tmp_path.name}/{LOG} is corrupt at position {len(CLEANED_BATCH)}: "
        "batch length 0 is too small\n"
    )


def test_no_more_than_the_first_bytes_are_read_if_asked_for(silt: Silt, tmp_path: Path) -> None:
    path = tmp_path / LOG
    path.write_bytes(CLEANED_BATCH + EMPTY_BATCH + bytes(50))

    dumped = silt("dump", "--files", path, "--max-bytes", str(len(CLEANED_BATCH) + 10))

    assert len(dumped.lines) == 3


def test_a_batch_larger_than_a_chunk_of_the_file_is_shown(silt: Silt, tmp_path: Path) -> None:
    path = tmp_path / LOG
    big = build_batch([Record(0, 0, b"k", bytes(2_500_000))])
    path.write_bytes(big + build_batch([Record(1, 0, b"k", b"v")]))

    lines = silt("dump", "--files", path).lines

    assert f" size: {len(big)} " in lines[2]
    assert lines[3].startswith("baseOffset: 1 ")


def test_sound_indexes_pass_verification(silt: Silt, partition_dir: Path) -> None:
    files = f"{partition_dir / INDEX},{partition_dir / TIME_INDEX}"

    verified = silt("dump", "--files", files, "--verify-index-only")
    checked = silt("dump", "--files", files, "--index-sanity-check")

    assert (verified.exit_code, verified.err) == (0, "")
    assert verified.lines == [f"Dumping {path}" for path in files.split(",")]
    assert checked.lines[1::2] == [f"{path} passed sanity check." for path in files.split(",")]


def test_of_a_topic_only_the_indexes_are_verified(silt: Silt, partition_dir: Path) -> None:
    verified = silt("dump", "t", "--verify-index-only")

    assert verified.exit_code == 0
    assert verified.lines == [f"Dumping {partition_dir / name}" for name in (INDEX, TIME_INDEX)]


def test_an_offset_index_that_contradicts_its_log_fails_verification(
    silt: Silt, partition_dir: Path
) -> None:
    path = partition_dir / INDEX
    data = bytearray(path.read_bytes())
    data[3] = 3  # the offset of the first entry, which is 2
    path.write_bytes(data)

    dumped = silt("dump", "--files", path, "--verify-index-only")
    as_json = silt("dump", "--files", path, "--verify-index-only", "--output", "json")

    assert dumped.exit_code == 1
    assert dumped.err == f"Mismatches in :{path}\n  Index offset: 3, log offset: 2\n"
    assert as_json.exit_code == 1
    assert as_json.json == {
        "type": "finding",
        "finding": "offset_mismatch",
        "file": str(path),
        "count": 1,
        "pairs": [{"index_offset": 3, "log_offset": 2}],
    }


def test_a_time_index_that_contradicts_its_log_fails_verification(
    silt: Silt, partition_dir: Path
) -> None:
    path = partition_dir / TIME_INDEX
    times = bytearray(path.read_bytes())
    times[7] ^= 1  # the first timestamp becomes as large as the second
    times[23] = 3  # the second offset, which is 4: at 3 a marker ends, which is older
    times[35] = 9  # the third offset, which is 5: there is no 9
    path.write_bytes(times)

    dumped = silt("dump", "--files", path, "--verify-index-only")

    assert dumped.exit_code == 1
    assert dumped.err.splitlines() == [
        f"Found timestamp mismatch in :{path}",
        f"  Index timestamp: {START_MS + 7}, log timestamp: {START_MS + 6}",
        f"  Index timestamp: {START_MS + 7}, log timestamp: {START_MS + 6}",
        f"Found out of order timestamp in :{path}",
        f"  Index timestamp: {START_MS + 7}, Previously indexed timestamp: {START_MS + 7}",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 9, found log offset: -1",
    ]


def test_an_index_entry_that_points_nowhere_is_an_error(silt: Silt, partition_dir: Path) -> None:
    index = partition_dir / INDEX
    data = bytearray(index.read_bytes())
    data[7] += 1
    index.write_bytes(data)

    dumped = silt("dump", "--files", index)

    assert dumped.exit_code == 1
    assert "entry 0 points to position" in dumped.err
    assert "where no batch begins" in dumped.err


def test_an_index_of_a_wrong_size_fails_the_sanity_check(silt: Silt, partition_dir: Path) -> None:
    index = partition_dir / INDEX
    index.write_bytes(index.read_bytes()[:-1])

    dumped = silt("dump", "--files", index, "--index-sanity-check")

    assert dumped.exit_code == 1
    assert "are no multiple of 8" in dumped.err


def test_files_on_their_way_in_or_out_are_shown_too(silt: Silt, partition_dir: Path) -> None:
    for name in (LOG, INDEX):
        shutil.copy(partition_dir / name, partition_dir / f"{name}.deleted")

    dumped = silt(
        "dump", "--files", f"{partition_dir / LOG}.deleted,{partition_dir / INDEX}.deleted"
    )

    assert dumped.exit_code == 0
    assert dumped.lines[-1].startswith("offset: 4 position: ")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        ([], 2, "nothing to dump: name a topic, a directory or --files"),
        (["nope"], 1, "topic nope does not exist"),
        (["--files", "nope/x.log"], 1, "nope/x.log does not exist"),
        (["no/such"], 1, "no/such does not exist"),
    ],
)
@pytest.mark.usefixtures("partition_dir")
def test_what_cannot_be_dumped_is_refused(
    silt: Silt, arguments: list[str], exit_code: int, message: str
) -> None:
    dumped = silt("dump", *arguments)

    assert (dumped.exit_code, dumped.err) == (exit_code, f"silt: error: {message}\n")


def test_a_file_of_another_kind_is_ignored(silt: Silt, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")

    dumped = silt("dump", "--files", path)

    assert (dumped.exit_code, dumped.err) == (0, f"Ignoring unknown file {path}\n")


def test_an_index_without_its_log_is_an_error(silt: Silt, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_bytes(bytes(8))

    dumped = silt("dump", "--files", tmp_path / INDEX)

    assert dumped.exit_code == 1
    assert dumped.err == (f"silt: error: {tmp_path / LOG} does not exist: an index needs its log\n")
