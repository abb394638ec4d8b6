"""What Spark calls for `format("siltstone")`."""

from contextlib import suppress

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from siltstone.errors import SiltstoneError
from siltstone.spark.source.batch_reader import BatchReader, find_view_bounds
from siltstone.spark.source.options import parse_sink_options, parse_source_options
from siltstone.spark.source.schema import choose_columns, fixed_offsets, make_schema
from siltstone.spark.source.stream_reader import StreamReader
from siltstone.spark.source.worker import spare_collector
from siltstone.spark.source.writers import BatchWriter, StreamWriter, check_columns


class SiltstoneSource(DataSource):
    """Topics in log directories, with the columns and options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "siltstone"

    fixes_offsets = True
    """Whether a DataFrame has the offsets of when it was loaded, and tells them."""

    def schema(self) -> StructType:
        """Return the columns of a read, with the offsets of a batch read in their metadata."""
        headers = (self.options.get("includeHeaders") or "").strip().lower() == "true"
        bounds = None
        if self.fixes_offsets:
            # It may be a stream that begins, which is all that is not said here. If it is not,
            # what is wrong with the options will be found once more when the read is planned.
            with suppress(SiltstoneError):
                options = parse_source_options(self.options, is_streaming=False)
                bounds = find_view_bounds(options)
        spare_collector()
        return make_schema(with_headers=headers, bounds=bounds)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Begin a batch read."""
        options = parse_source_options(self.options, is_streaming=False)
        columns = choose_columns(schema, with_headers=options.include_headers)
        return BatchReader(options, columns, fixed_offsets(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Begin a streaming read."""
        options = parse_source_options(self.options, is_streaming=True)
        return StreamReader(options, choose_columns(schema, with_headers=options.include_headers))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Begin a batch write."""
        options = parse_sink_options(self.options)
        check_columns(schema, options, overwrite=overwrite)
        return BatchWriter(options)

    def streamWriter(  # noqa: N802 - Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Begin a batch of a streaming write."""
        options = parse_sink_options(self.options)
        check_columns(schema, options, overwrite=overwrite)
        return StreamWriter(options)
