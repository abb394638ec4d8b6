"""Consumer groups and transactions: their states, and the services that drive them."""
