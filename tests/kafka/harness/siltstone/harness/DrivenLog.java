package siltstone.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TimestampOffset;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/** One real UnifiedLog with a clock and background work of ours. */
final class DrivenLog {
    // One for all logs: it only counts.
    private static final BrokerTopicStats STATS = new BrokerTopicStats();
    private static final int MIN_PUBLIC_SEGMENT_BYTES = 1024 * 1024;
    private static final int DAY_MS = 86_400_000;

    private final File dir;
    private final Map<String, Object> settings = new HashMap<>();
    private final ManualTime time;
    private final ManualScheduler scheduler;
    private final int maxTransactionTimeoutMs;
    private final ProducerStateManagerConfig producerConfig;
    private final int expirationCheckMs;
    private final Optional<Uuid> topicId;
    private final boolean followsLogEnd;
    private UnifiedLog log;
    private boolean isOpen;
    private long lastRecoveryPoint;
    private long lastLogStartOffset;

    DrivenLog(JsonNode command) throws IOException {
        dir = new File(Json.require(command, "dir").asText());
        time = new ManualTime(Json.number(command, "now_ms", 0));
        scheduler = new ManualScheduler(time);
        maxTransactionTimeoutMs = (int) Json.number(command, "max_transaction_timeout_ms", 900_000);
        producerConfig =
                new ProducerStateManagerConfig(
                        (int) Json.number(command, "producer_id_expiration_ms", DAY_MS),
                        Json.flag(command, "transaction_verification", false));
        expirationCheckMs = (int) Json.number(command, "producer_id_expiration_check_ms", 600_000);
        topicId = Optional.ofNullable(Json.text(command, "topic_id", null)).map(Uuid::fromString);
        // With a single replica the high watermark is the log end offset as soon as the append is
        // done.
        followsLogEnd = Json.flag(command, "auto_high_watermark", false);
        addSettings(command.path("config"));
        load(command);
    }

    boolean isOpen() {
        return isOpen;
    }

    JsonNode run(String op, JsonNode command) throws IOException {
        if (op.equals("reopen")) {
            if (isOpen)
                throw new IllegalStateException("close or crash the log before opening it again");
            addSettings(command.path("config"));
            load(command);
            return null;
        }
        if (op.equals("advance") || op.equals("set_time")) {
            time.set(
                    op.equals("advance")
                            ? time.milliseconds() + Json.require(command, "ms").asLong()
                            : Json.require(command, "now_ms").asLong());
            scheduler.runDue();
            return null;
        }
        if (!isOpen) throw new IllegalStateException("the log is closed");
        if (CleanOps.knows(op)) return CleanOps.run(op, log, time, command);
        switch (op) {
            case "state":
                return null;
            case "append":
                return append(command);
            case "roll":
                return Json.object().put("base_offset", log.roll().baseOffset());
            case "flush":
                log.flush(Json.flag(command, "force_active", false));
                return null;
            case "truncate_to":
                return Json.object()
                        .put("truncated", log.truncateTo(Json.require(command, "offset").asLong()));
            case "truncate_fully_and_start_at":
                log.truncateFullyAndStartAt(
                        Json.require(command, "offset").asLong(),
                        command.hasNonNull("log_start_offset")
                                ? Optional.of(command.get("log_start_offset").asLong())
                                : Optional.empty());
                return null;
            case "delete_old_segments":
                return Json.object().put("deleted", log.deleteOldSegments());
            case "update_high_watermark":
                long highWatermark =
                        log.updateHighWatermark(Json.require(command, "offset").asLong());
                return Json.object().put("high_watermark", highWatermark);
            case "increment_log_start_offset":
                String reason = Json.text(command, "reason", "ClientRecordDeletion");
                boolean incremented =
                        log.maybeIncrementLogStartOffset(
                                Json.require(command, "offset").asLong(),
                                LogStartOffsetIncrementReason.valueOf(reason));
                return Json.object().put("incremented", incremented);
            case "assign_epoch":
                log.assignEpochStartOffset(
                        Json.require(command, "epoch").asInt(),
                        Json.require(command, "offset").asLong());
                return null;
            case "end_offset_for_epoch":
                return endOffsetForEpoch(command);
            case "lookup":
                return lookup(command);
            case "read":
                return read(command);
            case "aborted_transactions":
                return Indexes.abortedTransactions(
                        log.collectAbortedTransactions(
                                Json.require(command, "from").asLong(),
                                Json.require(command, "upper").asLong()));
            case "remove_expired_producers":
                log.removeExpiredProducers(time.milliseconds());
                return null;
            case "take_snapshot":
                log.takeProducerSnapshot();
                return null;
            case "update_config":
                addSettings(command.path("config"));
                log.updateConfig(new LogConfig(settings));
                return null;
            case "pause_background":
                scheduler.pause(Json.flag(command, "paused", true));
                return null;
            case "close":
                // As LogManager.shutdown does it; the last recovery point is what it would write to
                // the checkpoint.
                log.flush(true);
                log.close();
                noteClosed();
                return null;
            case "crash":
                // The files stay as the kernel has them, like after kill -9.
                noteClosed();
                log.closeHandlers();
                return null;
            default:
                throw new IllegalArgumentException("unknown op " + op);
        }
    }

    /** Let go of everything without a word to the disk. */
    void discard() {
        if (isOpen) {
            scheduler.shutdown();
            log.closeHandlers();
        }
        if (log != null) log.removeLogMetrics();
        isOpen = false;
    }

    private void addSettings(JsonNode config) {
        for (Map.Entry<String, JsonNode> entry : config.properties())
            settings.put(entry.getKey(), entry.getValue().asText());
        // Since 4.1 a topic cannot ask for segments below 1 MiB, but Kafka's own tests can.
        if (!config.has("segment.bytes")) return;
        settings.remove(LogConfig.INTERNAL_SEGMENT_BYTES_CONFIG);
        if (config.get("segment.bytes").asInt() < MIN_PUBLIC_SEGMENT_BYTES)
            settings.put(
                    LogConfig.INTERNAL_SEGMENT_BYTES_CONFIG, settings.remove("segment.bytes"));
    }

    private void load(JsonNode command) throws IOException {
        log =
                UnifiedLog.create(
                        dir,
                        new LogConfig(settings),
                        Json.number(command, "log_start_offset", lastLogStartOffset),
                        Json.number(command, "recovery_point", lastRecoveryPoint),
                        scheduler,
                        STATS,
                        time,
                        maxTransactionTimeoutMs,
                        producerConfig,
                        expirationCheckMs,
                        new LogDirFailureChannel(10),
                        Json.flag(command, "clean", true),
                        topicId);
        isOpen = true;
    }

    private void noteClosed() {
        isOpen = false;
        lastRecoveryPoint = log.recoveryPoint();
        lastLogStartOffset = log.logStartOffset();
        scheduler.shutdown();
        log.removeLogMetrics();
    }

    private ObjectNode append(JsonNode command) throws IOException {
        MemoryRecords records =
                MemoryRecords.readableRecords(ByteBuffer.wrap(Json.bytes(command.get("batches"))));
        int leaderEpoch = (int) Json.number(command, "leader_epoch", 0);
        AppendOrigin origin = AppendOrigin.valueOf(Json.text(command, "origin", "CLIENT"));
        LogAppendInfo info =
                origin == AppendOrigin.REPLICATION
                        ? log.appendAsFollower(records, leaderEpoch)
                        : log.appendAsLeader(
                                records,
                                leaderEpoch,
                                origin,
                                RequestLocal.noCaching(),
                                guard(command),
                                (short) Json.number(command, "transaction_version", 0));
        if (followsLogEnd) log.updateHighWatermark(log.logEndOffset());
        ObjectNode result = Json.object();
        result.put("first_offset", info.firstOffset());
        result.put("last_offset", info.lastOffset());
        result.put("max_timestamp_ms", info.maxTimestamp());
        result.put("log_append_time_ms", info.logAppendTime());
        result.put("log_start_offset", info.logStartOffset());
        result.put("record_count", info.numMessages());
        result.put("valid_bytes", info.validBytes());
        return result;
    }

    /**
     * Ask for verification first if the command says so, as the broker does for a transaction's
     * first batch.
     */
    private VerificationGuard guard(JsonNode command) {
        if (!command.hasNonNull("verify")) return VerificationGuard.SENTINEL;
        JsonNode verify = command.get("verify");
        return log.maybeStartTransactionVerification(
                verify.get("producer_id").asLong(),
                verify.get("sequence").asInt(),
                (short) verify.get("epoch").asInt(),
                Json.flag(verify, "supports_epoch_bump", true));
    }

    private ObjectNode endOffsetForEpoch(JsonNode command) {
        Optional<OffsetAndEpoch> found =
                log.endOffsetForEpoch(Json.require(command, "epoch").asInt());
        return found.map(
                        end ->
                                Json.object()
                                        .put("epoch", end.epoch())
                                        .put("end_offset", end.offset()))
                .orElse(null);
    }

    private ObjectNode lookup(JsonNode command) {
        Optional<FileRecords.TimestampAndOffset> found =
                log.fetchOffsetByTimestamp(
                                Json.require(command, "timestamp_ms").asLong(), Optional.empty())
                        .timestampAndOffsetOpt();
        return found.map(
                        hit -> {
                            ObjectNode node =
                                    Json.object()
                                            .put("timestamp_ms", hit.timestamp)
                                            .put("offset", hit.offset);
                            node.put("leader_epoch", hit.leaderEpoch.orElse(null));
                            return node;
                        })
                .orElse(null);
    }

    private ObjectNode read(JsonNode command) throws IOException {
        FetchDataInfo fetched =
                log.read(
                        Json.require(command, "offset").asLong(),
                        (int) Json.number(command, "max_bytes", Integer.MAX_VALUE),
                        FetchIsolation.valueOf(Json.text(command, "isolation", "LOG_END")),
                        Json.flag(command, "min_one_message", true));
        ObjectNode result = Json.object();
        result.put("records", Json.base64(bytes(fetched.records)));
        result.put("offset", fetched.fetchOffsetMetadata.messageOffset);
        result.put("segment_base_offset", fetched.fetchOffsetMetadata.segmentBaseOffset);
        result.put("position", fetched.fetchOffsetMetadata.relativePositionInSegment);
        result.put("first_entry_incomplete", fetched.firstEntryIncomplete);
        if (fetched.abortedTransactions.isPresent()) {
            ArrayNode aborted = result.putArray("aborted_transactions");
            for (FetchResponseData.AbortedTransaction transaction :
                    fetched.abortedTransactions.get())
                aborted.addArray().add(transaction.producerId()).add(transaction.firstOffset());
        } else {
            result.putNull("aborted_transactions");
        }
        return result;
    }

    private static byte[] bytes(Records records) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(records.sizeInBytes());
        if (records instanceof FileRecords) ((FileRecords) records).readInto(buffer, 0);
        else if (records instanceof MemoryRecords)
            buffer.put(((MemoryRecords) records).buffer().duplicate());
        else throw new IllegalStateException("cannot read " + records.getClass());
        byte[] bytes = new byte[buffer.limit()];
        System.arraycopy(buffer.array(), 0, bytes, 0, bytes.length);
        return bytes;
    }

    ObjectNode state() throws IOException {
        ObjectNode state = Json.object();
        state.put("now_ms", time.milliseconds());
        state.put("log_start_offset", log.logStartOffset());
        state.put("log_end_offset", log.logEndOffset());
        state.put("high_watermark", log.highWatermark());
        state.put("last_stable_offset", log.lastStableOffset());
        Indexes.putOptional(
                state,
                "first_unstable_offset",
                log.firstUnstableOffset().map(OptionalLong::of).orElse(OptionalLong.empty()));
        state.put("recovery_point", log.recoveryPoint());
        state.put("size", log.size());
        state.put("producer_state_end_offset", log.latestProducerStateEndOffset());
        Indexes.putOptional(state, "latest_snapshot_offset", log.latestProducerSnapshotOffset());
        state.put("latest_epoch", log.latestEpoch().orElse(null));
        state.set("epochs", Indexes.epochs(log.leaderEpochCache().epochEntries()));
        state.set(
                "producers",
                Indexes.producers(log.producerStateManager().activeProducers().values()));
        state.set(
                "aborted_transactions",
                Indexes.abortedTransactions(
                        log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset())));
        ArrayNode segments = state.putArray("segments");
        for (LogSegment segment : log.logSegments()) segments.add(describe(segment));
        ObjectNode files = state.putObject("files");
        File[] listed = dir.listFiles();
        if (listed == null) throw new IOException("cannot list " + dir);
        Arrays.sort(listed);
        for (File file : listed) files.put(file.getName(), file.length());
        ArrayNode pending = state.putArray("pending_tasks");
        scheduler.pendingNames().forEach(pending::add);
        return state;
    }

    private static ObjectNode describe(LogSegment segment) throws IOException {
        ObjectNode node = Json.object();
        node.put("base_offset", segment.baseOffset());
        node.put("size", segment.size());
        node.set(
                "offset_index",
                Indexes.offsetEntries(
                        Peek.loadedOffsetIndex(segment),
                        segment.offsetIndexFile(),
                        segment.baseOffset()));
        node.set(
                "time_index",
                Indexes.timeEntries(
                        Peek.loadedTimeIndex(segment),
                        segment.timeIndexFile(),
                        segment.baseOffset()));
        node.set(
                "txn_index",
                segment.txnIndex().file().exists()
                        ? Indexes.abortedTransactions(segment.txnIndex().allAbortedTxns())
                        : null);
        TimestampOffset max = Peek.loadedMaxTimestamp(segment);
        if (max == null) node.putNull("max_timestamp");
        else node.putArray("max_timestamp").add(max.timestamp()).add(max.offset());
        Indexes.putOptional(node, "rolling_timestamp_ms", Peek.rollingTimestamp(segment));
        node.put("bytes_since_index_entry", Peek.bytesSinceIndexEntry(segment));
        node.put("created_ms", Peek.created(segment));
        node.put("roll_jitter_ms", segment.rollJitterMs());
        return node;
    }
}
