"""Leader epochs: whether a client and this leader speak of the same history."""

from kio.schema.errors import ErrorCode

from siltstone.broker.error_codes import ProtocolError
from siltstone.log.leader_epochs import UNDEFINED_EPOCH, EpochEnd
from siltstone.log.partition_log import PartitionLog


def check_leader_epoch(log: PartitionLog, epoch: int) -> None:
    """Raise if the client knows of another leader than this one; a negative epoch knows none."""
    if epoch < 0 or epoch == (current := log.latest_epoch):
        return
    if epoch < current:
        raise ProtocolError(
            ErrorCode.fenced_leader_epoch,
            f"{log.partition}: epoch {epoch} is over, it is {current}",
        )
    raise ProtocolError(
        ErrorCode.unknown_leader_epoch,
        f"{log.partition}: epoch {epoch} is to come, it is {current}",
    )


def find_divergence(
    log: PartitionLog, last_fetched_epoch: int, offset: int
) -> tuple[int, int] | None:
    """Return where the client's history leaves this log's, as (epoch, end offset), or None."""
    if last_fetched_epoch < 0:
        return None
    end = find_epoch_end(log, last_fetched_epoch)
    if end.epoch == UNDEFINED_EPOCH or (
        end.epoch >= last_fetched_epoch and end.end_offset >= offset
    ):
        return None
    return (end.epoch, end.end_offset)


def find_epoch_end(log: PartitionLog, epoch: int) -> EpochEnd:
    """Return the largest epoch up to one, and the offset after its last record."""
    return log.leader_epochs.end_offset_for(epoch, log.log_end_offset)
