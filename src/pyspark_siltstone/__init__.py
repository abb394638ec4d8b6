"""Found by PySpark through its name: the format `siltstone` is there without being registered."""

from siltstone.spark.source.data_source import SiltstoneSource as DefaultSource

__all__ = ["DefaultSource"]
