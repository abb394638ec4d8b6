"""The compacted log as a table: key index, views, point lookup, snapshots and export."""
