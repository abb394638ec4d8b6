"""Siltstone, a Kafka-compatible keyed log."""

__version__ = "0.1.0"
