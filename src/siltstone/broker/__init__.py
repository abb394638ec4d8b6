"""The broker: Kafka's wire protocol over the logs of one node."""

from siltstone.broker import lean_kio as lean_kio  # before anything else loads kio
