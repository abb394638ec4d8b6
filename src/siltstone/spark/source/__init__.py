"""The Spark data source `siltstone`: batch and streaming reads, batch and streaming writes."""
