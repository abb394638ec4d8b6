"""`/metrics`, `/healthz` and `/readyz` of a broker that runs."""

import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.test_broker_life import append, create
from tests.support.serving import RawClient, ServedBroker


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def test_a_broker_tells_how_it_is(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": "20"}
    with ServedBroker(tmp_path / "logs", settings) as broker:
        broker.start(["--metrics-listen", "127.0.0.1:0"])
        found = re.search(r"metrics on \S+:(\d+)", broker.log())
        assert found is not None
        port = int(found[1])
        with RawClient(broker.port) as client:
            create(client, "t", cleanup_policy="compact")
            for _ in range(3):
                append(client, "t", b"v")
            families = {f.name: f for f in text_string_to_metric_families(get(port, "/metrics"))}
        assert get(port, "/healthz") == "ok\n"
        assert get(port, "/readyz") == "ready\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(port, "/nothing")

    (end,) = families["kafka_log_log_logendoffset"].samples
    assert end.labels == {"topic": "t", "partition": "0"}
    assert end.value == 3
    requests = families["kafka_network_requestmetrics_totaltime_seconds"].samples
    counts = {s.labels["request"]: s.value for s in requests if s.name.endswith("_count")}
    assert counts == {"create_topics": 1, "produce": 3}
    assert families["kafka_log_log_numlogsegments"].samples[0].value == 1
    stems = ("max_clean_time_secs", "max_buffer_utilization_percent", "cleaner_recopy_percent")
    for stem in (*stems, "max_compaction_delay_secs", "deadthreadcount"):
        assert families[f"kafka_log_logcleaner_{stem}"].samples[0].value == 0
    assert families["kafka_server_socket_server_connection_count"].samples[0].value == 1
