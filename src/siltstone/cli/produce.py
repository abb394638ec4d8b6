"""`silt produce`: records from standard input or files, with kcat's options."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Final

import typer

from siltstone.cli import output
from siltstone.cli.command_group import did_you_mean
from siltstone.cli.kcat import parse_delimiter, parse_header
from siltstone.cli.logs import check_topic, open_manager
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat, format_size
from siltstone.cli.record_batches import TopicWriter, choose_by_key, choose_fixed
from siltstone.cli.record_input import InputFormat, iter_messages, open_file, read_files
from siltstone.clock import SystemClock
from siltstone.errors import UsageError
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.records.compression import Codec
from siltstone.records.partitioner import DEFAULT_PARTITIONER, PARTITIONERS

app = typer.Typer(rich_markup_mode=None)

_ANY_PARTITION: Final = -1  # kcat's way to say: let the partitioner choose
_JAVA: Final = "java"  # what its client does, by the name that people look for
