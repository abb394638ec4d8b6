"""The web page and `/metrics`: shows the broker's status and decides nothing."""
