"""All that runs on Spark: the cleaning engine, the data source and the streaming sink."""
