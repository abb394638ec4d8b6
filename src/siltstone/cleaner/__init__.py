"""Compaction and retention: decides what stays, rewrites it, commits it and verifies it."""
