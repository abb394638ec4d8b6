"""Batches and records as bytes: layout, checksums, codecs, builders, readers and kernels."""
