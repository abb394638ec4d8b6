"""Segments in object storage: their copies, their metadata and reads through them."""
