"""`silt dump`: what is in the files, with the options and the words of Kafka's dump tool."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from siltstone.cli import output
from siltstone.cli.dump_index import (
    IndexDumpOptions,
    dump_offset_index,
    dump_time_index,
    open_segment,
)
from siltstone.cli.dump_log import LogDumpOptions, dump_log
from siltstone.cli.dump_state import SMALL_FILES, dump_snapshot, dump_transaction_index
from siltstone.cli.dumped import Findings, Line
from siltstone.cli.log_dirs import check_log_dirs, resolve_log_dirs
from siltstone.cli.options import LogDirs, Output
from siltstone.cli.output import OutputFormat
from siltstone.errors import StorageError, UnknownTopicError, UsageError
from siltstone.ids import is_legal_topic
from siltstone.log import filenames
from siltstone.log.filenames import DirState
from siltstone.log.filesystem import FileSystem

app = typer.Typer(add_completion=False, rich_markup_mode=None)

# Per segment in this order, as a reader would look at them.
_EXTENSIONS: Final = (
    filenames.SNAPSHOT,
    filenames.LOG,
    filenames.OFFSET_INDEX,
    filenames.TIME_INDEX,
    filenames.TRANSACTION_INDEX,
)


@app.command()
def dump(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET",
            help="Topics, or paths of partition directories and files, shown whole.",
        ),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--files", metavar="FILE,FILE,...", help="Files to show, with commas between."
        ),
    ] = None,
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Show records with key and value.")
    ] = False,
    deep_iteration: Annotated[
        bool, typer.Option("--deep-iteration", help="Show the records in each batch.")
    ] = False,
    verify_index_only: Annotated[
        bool,
        typer.Option(
            "--verify-index-only",
            help="Compare indexes with their log and show only what differs; exit 1 if "
            "anything does.",
        ),
    ] = False,
    index_sanity_check: Annotated[
        bool,
        typer.Option(
            "--index-sanity-check", help="Only check that the entries of an index make sense."
        ),
    ] = False,
    max_message_size: Annotated[
        int, typer.Option("--max-message-size", help="Largest batch to expect, in bytes.", min=1)
    ] = IndexDumpOptions().max_batch_bytes,
    max_bytes: Annotated[
        int | None,
        typer.Option("--max-bytes", help="Read no more than this of each log file.", min=0),
    ] = None,
    skip_record_metadata: Annotated[
        bool,
        typer.Option(
            "--skip-record-metadata", help="Of each record show key and value only; no markers."
        ),
    ] = False,
    log_dir: LogDirs = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Show what is in log, index, snapshot and checkpoint files, and verify it.

    Reads only, and takes no lock: a running broker does not mind.
    """
    paths = [Path(name) for names in files or [] for name in names.split(",") if name]
    for target in targets or []:
        found = _find_files(target, log_dir)
        if verify_index_only or index_sanity_check:
            found = [path for path in found if _is_index(path)]
        paths += found
    if not paths:
        raise UsageError("nothing to dump: name a topic, a directory or --files")
    dumper = _Dumper(
        LogDumpOptions(
            shows_records=deep_iteration or print_data_log,
            shows_data=print_data_log,
            shows_metadata=not skip_record_metadata,
            max_bytes=max_bytes,
        ),
        IndexDumpOptions(
            verifies_only=verify_index_only,
            checks_sanity_only=index_sanity_check,
            max_batch_bytes=max_message_size,
        ),
    )
    for path in paths:
        if output_format is OutputFormat.TEXT:
            output.print_line(f"Dumping {path}")
        for line in dumper.dump(path):
            _print(line, path, output_format)
    for finding in dumper.findings.lines():
        if output_format is OutputFormat.JSON:
            output.print_json(finding.document)
        else:
            output.print_message(finding.text)
    if verify_index_only and dumper.findings.index_is_wrong:
        raise typer.Exit(1)


class _Dumper:
    """Shows files of every kind, and remembers what did not fit together."""

    def __init__(self, log_options: LogDumpOptions, index_options: IndexDumpOptions) -> None:
        self.findings = Findings()
        self._fs = FileSystem()
        self._log_options = log_options
        self._index_options = index_options

    def dump(self, path: Path) -> Iterator[Line]:
        """Show one file by what its name says it is."""
        if not path.is_file():
            raise StorageError(f"{path} {'is no file' if path.exists() else 'does not exist'}")
        if path.name in SMALL_FILES:
            yield from SMALL_FILES[path.name](path, self._read(path))
            return
        name = filenames.parse_segment_file(path.name)
        if name is None:
            output.print_message(f"Ignoring unknown file {path}")
            return
        match name.extension:
            case filenames.LOG:
                yield Line(
                    f"Log starting offset: {name.base_offset}",
                    {"type": "log", "base_offset": name.base_offset},
                )
                file = self._fs.open(path, writable=False)
                yield from dump_log(file, self._log_options, self.findings)
            case filenames.OFFSET_INDEX:
                segment = open_segment(self._fs, path.parent, name)
                yield from dump_offset_index(segment, self._index_options, self.findings)
            case filenames.TIME_INDEX:
                segment = open_segment(self._fs, path.parent, name)
                yield from dump_time_index(segment, self._index_options, self.findings)
            case filenames.TRANSACTION_INDEX:
                yield from dump_transaction_index(self._fs, path, name.base_offset)
            case filenames.SNAPSHOT:
                yield from dump_snapshot(path, self._read(path))

    def _read(self, path: Path) -> bytes:
        return self._fs.read_file(path) or b""


def _print(line: Line, path: Path, output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        output.print_json({"file": str(path), **line.document})
    else:
        output.print_line(line.text)


def _is_index(path: Path) -> bool:
    name = filenames.parse_segment_file(path.name)
    return name is not None and name.extension in (filenames.OFFSET_INDEX, filenames.TIME_INDEX)


def _find_files(target: str, log_dirs: Sequence[Path] | None) -> list[Path]:
    """Return the files of a topic, of a directory, or the one file that was named."""
    path = Path(target)
    if path.is_dir():
        return _partition_files(path)
    if path.exists() or not is_legal_topic(target):
        return [path]
    directories = resolve_log_dirs(log_dirs)
    check_log_dirs(directories)
    partitions = [
        directory
        for log_dir in directories
        for directory in log_dir.iterdir()
        if _belongs_to(directory, target)
    ]
    if not partitions:
        raise UnknownTopicError(target)
    return [file for partition in sorted(partitions) for file in _partition_files(partition)]


def _belongs_to(directory: Path, topic: str) -> bool:
    try:
        parsed = filenames.parse_partition_dir(directory.name)
    except ValueError:
        return False
    return directory.is_dir() and parsed.state is DirState.LIVE and parsed.partition.topic == topic


def _partition_files(directory: Path) -> list[Path]:
    segments = []
    small = []
    for path in sorted(directory.iterdir()):
        name = filenames.parse_segment_file(path.name)
        if name is not None and name.suffix != filenames.DELETED:
            segments.append((name.base_offset, _EXTENSIONS.index(name.extension), path))
        elif path.name in SMALL_FILES:
            small.append(path)
    return [*small, *(path for _, _, path in sorted(segments))]
