"""The broker: Kafka's wire protocol over the logs of one node."""
