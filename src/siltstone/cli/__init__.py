"""The `silt` command: wires everything together, prints tables, JSON and progress."""
