"""What the broker does for each request: one module for each group of APIs that belong together."""
