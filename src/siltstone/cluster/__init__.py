"""Several brokers as one: membership, controller, replicas, and a small client of our own."""
