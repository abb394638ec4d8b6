"""Wait for what Kafka's coordinator of transactions does after its answer."""

from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from tests.support.serving import RawClient
from tests.support.waiting import wait_until


def wait_for_markers(bootstrap: str, *transactional_ids: str) -> None:
    """Wait until transactions that have ended have their markers, which come after the answer.

    Who reads before, stops Kafka before, or lets another transaction write before, finds another
    log each time. Others of the same Kafka may lack theirs for good: some tests see to that.
    """
    with RawClient(int(bootstrap.rsplit(":", 1)[1])) as raw:
        wait_until(lambda: not _are_markers_missing(raw, {*transactional_ids}))


def _are_markers_missing(raw: RawClient, transactional_ids: set[str]) -> bool:
    answer = raw.ask(
        wire.LIST_TRANSACTIONS,
        0,
        state_filters=("PrepareCommit", "PrepareAbort"),
        producer_id_filters=(),
    )
    is_loading = answer.error_code == ErrorCode.coordinator_load_in_progress
    assert is_loading or answer.error_code == ErrorCode.none, answer
    missing = {found.transactional_id for found in answer.transaction_states}
    return is_loading or not missing.isdisjoint(transactional_ids)
