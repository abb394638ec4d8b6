"""The settings of transactions and their producers: Kafka's names, types and defaults."""

from dataclasses import dataclass

from siltstone.settings import BOOLEAN, INT, Bound, at_least, setting


@dataclass(frozen=True, kw_only=True)
class TransactionConfig:
    """What a broker is told about transactions. Without slots, as several make up its settings."""

    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        INT,
        50,
        at_least(1),
        doc="Partitions of `__transaction_state`; counts when the topic is made.",
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        INT,
        3,
        at_least(1),
        doc="Replicas of `__transaction_state`; no more than there are brokers.",
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        INT,
        104_857_600,
        at_least(1),
        doc="Segments of `__transaction_state`; counts when the topic is made.",
    )
    transaction_state_log_load_buffer_size: int = setting(
        "transaction.state.log.load.buffer.size",
        INT,
        5 << 20,
        at_least(1),
        doc="How much of `__transaction_state` is read at a time after a start.",
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        INT,
        900_000,
        at_least(1),
        doc="Refuse a producer that wants its transactions to stay open for longer.",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        INT,
        604_800_000,
        at_least(1),
        doc="Forget a transactional id that was not used for so long.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10_000,
        at_least(1),
        doc="How often transactions are aborted that have been open for too long.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3_600_000,
        at_least(1),
        doc="How often expired transactional ids are forgotten.",
    )
    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        doc="Refuse a batch whose partition is not in its producer's transaction.",
    )
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        Bound("false: two-phase commit is not served", lambda value: not value),
        doc="Let producers take part in transactions that others end; not served.",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        at_least(1),
        doc="Forget the sequence numbers of a producer that was not heard of for so long.",
    )
