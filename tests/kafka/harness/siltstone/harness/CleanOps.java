package siltstone.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.CleanerAccess;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.io.IOException;
import java.security.GeneralSecurityException;
import java.util.OptionalLong;

/** Selection and passes of Kafka's own cleaner over a driven log, as JSON. */
final class CleanOps {
    private static final int MAP_BYTES = 1024 * 1024;
    private static final int IO_BYTES = 64 * 1024;
    private static final int MAX_IO_BYTES = 1024 * 1024;

    private CleanOps() {}

    static boolean knows(String op) {
        return op.equals("cleanable") || op.equals("clean");
    }

    static JsonNode run(String op, UnifiedLog log, Time time, JsonNode command)
            throws IOException {
        return op.equals("clean") ? clean(log, time, command) : cleanable(log, time, command);
    }

    private static ObjectNode cleanable(UnifiedLog log, Time time, JsonNode command)
            throws IOException {
        OptionalLong checkpoint =
                command.hasNonNull("checkpoint")
                        ? OptionalLong.of(command.get("checkpoint").asLong())
                        : OptionalLong.empty();
        CleanerAccess.Selection selection = CleanerAccess.select(log, checkpoint, time);
        LogToClean toClean = selection.log();
        ObjectNode node = Json.object();
        node.put("is_eligible", selection.isEligible());
        node.put("first_dirty_offset", selection.firstDirtyOffset());
        node.put("limit_offset", selection.limitOffset());
        node.put("first_uncleanable_offset", toClean.firstUncleanableOffset());
        node.put("clean_bytes", toClean.cleanBytes());
        node.put("cleanable_bytes", toClean.cleanableBytes());
        // Not a number without any bytes, which JSON cannot say.
        if (Double.isNaN(toClean.cleanableRatio())) node.putNull("cleanable_ratio");
        else node.put("cleanable_ratio", toClean.cleanableRatio());
        node.put("resets_checkpoint", selection.resetsCheckpoint());
        node.put("compaction_delay_ms", selection.compactionDelayMs());
        return node;
    }

    private static ObjectNode clean(UnifiedLog log, Time time, JsonNode command)
            throws IOException {
        CleanerAccess.Buffers buffers =
                new CleanerAccess.Buffers(
                        (int) Json.number(command, "map_bytes", MAP_BYTES),
                        (int) Json.number(command, "io_bytes", IO_BYTES),
                        (int) Json.number(command, "max_io_bytes", MAX_IO_BYTES));
        CleanerAccess.Pass pass;
        try {
            pass =
                    CleanerAccess.clean(
                            log,
                            Json.require(command, "first_dirty_offset").asLong(),
                            Json.require(command, "limit_offset").asLong(),
                            buffers,
                            time);
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException("no digest for the keys", error);
        }
        if (Json.flag(command, "write_checkpoint", false))
            CleanerAccess.writeCheckpoint(log, pass.nextDirtyOffset());
        CleanerStats stats = pass.stats();
        ObjectNode node = Json.object();
        node.put("next_dirty_offset", pass.nextDirtyOffset());
        node.put("first_uncleanable_offset", pass.firstUncleanableOffset());
        node.put("bytes_read", stats.bytesRead());
        node.put("bytes_written", stats.bytesWritten());
        node.put("messages_read", stats.messagesRead());
        node.put("messages_written", stats.messagesWritten());
        node.put("invalid_messages_read", stats.invalidMessagesRead());
        node.put("map_messages_read", stats.mapMessagesRead());
        node.put("seconds", stats.elapsedSecs());
        return node;
    }
}
