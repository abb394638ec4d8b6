"""The server: connections, one handler per API, purgatory, quotas and status."""
