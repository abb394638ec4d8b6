"""What Spark calls for `format("siltstone")`."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from siltstone.spark.source.batch_reader import BatchReader
from siltstone.spark.source.options import parse_sink_options, parse_source_options
from siltstone.spark.source.rows import COLUMNS, HEADERS_COLUMN
from siltstone.spark.source.stream_reader import StreamReader
from siltstone.spark.source.writers import BatchWriter, StreamWriter, check_columns


class SiltstoneSource(DataSource):
    """Topics in log directories, with the columns and options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "siltstone"

    def schema(self) -> str:
        """Return the columns of a read."""
        headers = (self.options.get("includeHeaders") or "").strip().lower() == "true"
        return COLUMNS + (HEADERS_COLUMN if headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Begin a batch read."""
        return BatchReader(parse_source_options(self.options, is_streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Begin a streaming read."""
        return StreamReader(parse_source_options(self.options, is_streaming=True))

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
