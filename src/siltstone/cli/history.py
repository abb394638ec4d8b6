"""`silt history`: every pass over a topic, from the manifests that they left."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from siltstone.cleaner.manifest import read_manifests
from siltstone.cleaner.retention import RETENTION
from siltstone.cli import output
from siltstone.cli.logs import open_reader
from siltstone.cli.options import LogDirs, Output
from siltstone.cli.output import OutputFormat
from siltstone.cli.relay import BootstrapServer, relay
from siltstone.cli.tables import Column, print_table
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def history(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Show what each pass over a topic did, oldest first."""
    if bootstrap_server is not None:
        relay(bootstrap_server)
        return
    reader = open_reader(log_dir)
    passes = [
        (TopicPartition(topic, number), manifest)
        for number in reader.partitions(topic)
        for manifest in read_manifests(
            FileSystem(), reader.get_log(TopicPartition(topic, number)).directory
        )
    ]
    if output_format is OutputFormat.JSON:
        output.print_json_list(
            [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "manifest": manifest.name,
                    **manifest.fields,
                }
                for partition, manifest in passes
            ]
        )
        return
    print_table(
        [
            Column("COMMITTED"),
            Column("PARTITION"),
            Column("WHY"),
            Column("UP TO OFFSET", is_number=True),
            Column("RECORDS", is_number=True),
            Column("KEPT", is_number=True),
            Column("SECONDS", is_number=True),
            Column("MANIFEST"),
        ],
        [
            (
                output.format_time(manifest.fields["committed_ms"]),
                str(partition),
                *_describe(manifest.fields),
                f"{manifest.fields['seconds']:.2f}",
                manifest.name,
            )
            for partition, manifest in passes
        ],
    )


def _describe(fields: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Say why, up to where, and how many records; retention does not look at records."""
    plan, counts = fields["plan"], fields["counts"]
    if fields.get("kind") == RETENTION:
        rules = dict.fromkeys(removal["rule"] for removal in plan["removals"])
        why = f"{RETENTION}: {', '.join(rules)}"
        return why, str(plan["new_log_start_offset"]), "-", "-"
    return (
        plan["reason"],
        str(plan["end_offset"]),
        str(counts["records_read"]),
        str(counts["records_kept"]),
    )
