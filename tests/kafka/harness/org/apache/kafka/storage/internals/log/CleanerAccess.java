package org.apache.kafka.storage.internals.log;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.utils.Throttler;

import java.io.File;
import java.io.IOException;
import java.security.DigestException;
import java.security.NoSuchAlgorithmException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;

/**
 * The real cleaner and its manager over a single log, without their threads.
 *
 * <p>It lives in Kafka's package because selection is not public there.
 */
public final class CleanerAccess {
    private static final double LOAD_FACTOR = 0.9;
    // One for all passes: it registers a metric, and never holds anybody back.
    private static final Throttler THROTTLER =
            new Throttler(Double.MAX_VALUE, 300, "harness-cleaner-io", "bytes", Time.SYSTEM);

    private CleanerAccess() {}

    /** What the manager finds out about a log before it chooses one. */
    public record Selection(
            long firstDirtyOffset,
            long limitOffset,
            boolean resetsCheckpoint,
            long compactionDelayMs,
            LogToClean log,
            boolean isEligible) {}

    /** Sizes of what a cleaner works with; they do not show in its results. */
    public record Buffers(int mapBytes, int ioBytes, int maxIoBytes) {}

    /** The end of a pass. */
    public record Pass(long nextDirtyOffset, long firstUncleanableOffset, CleanerStats stats) {}

    /** Let the manager look at a log as if it had this checkpoint; nothing is written. */
    public static Selection select(UnifiedLog log, OptionalLong checkpoint, Time time)
            throws IOException {
        Optional<Long> lastClean =
                checkpoint.isPresent() ? Optional.of(checkpoint.getAsLong()) : Optional.empty();
        LogCleanerManager.OffsetsToClean offsets =
                LogCleanerManager.cleanableOffsets(log, lastClean, time.milliseconds());
        PreCleanStats stats = new PreCleanStats();
        SingleLogManager manager = new SingleLogManager(log, lastClean);
        try {
            Optional<LogToClean> grabbed = manager.grabFilthiestCompactedLog(time, stats);
            long delayMs = stats.maxCompactionDelayMs();
            LogToClean toClean =
                    new LogToClean(
                            log,
                            offsets.firstDirtyOffset(),
                            offsets.firstUncleanableDirtyOffset(),
                            delayMs > 0);
            if (grabbed.isPresent() && !grabbed.get().equals(toClean))
                throw new IllegalStateException(grabbed.get() + " is not " + toClean);
            return new Selection(
                    offsets.firstDirtyOffset(),
                    offsets.firstUncleanableDirtyOffset(),
                    offsets.forceUpdateCheckpoint(),
                    delayMs,
                    toClean,
                    grabbed.isPresent());
        } finally {
            manager.removeMetrics();
        }
    }

    /** Run one pass over a log between two offsets, whether it is due or not. */
    public static Pass clean(
            UnifiedLog log, long firstDirtyOffset, long limitOffset, Buffers buffers, Time time)
            throws IOException, DigestException, NoSuchAlgorithmException {
        LogToClean toClean = new LogToClean(log, firstDirtyOffset, limitOffset, false);
        Cleaner cleaner =
                new Cleaner(
                        0,
                        new SkimpyOffsetMap(buffers.mapBytes()),
                        buffers.ioBytes(),
                        buffers.maxIoBytes(),
                        LOAD_FACTOR,
                        THROTTLER,
                        time,
                        partition -> {});
        Map.Entry<Long, CleanerStats> end = cleaner.doClean(toClean, time.milliseconds());
        return new Pass(end.getKey(), toClean.firstUncleanableOffset(), end.getValue());
    }

    /** Note the end of a pass in the checkpoint file beside the log's directory. */
    public static void writeCheckpoint(UnifiedLog log, long nextDirtyOffset) {
        File logDir = log.parentDirFile();
        LogCleanerManager manager =
                new LogCleanerManager(List.of(logDir), onlyLog(log), new LogDirFailureChannel(1));
        try {
            manager.setCleaningState(
                    log.topicPartition(), LogCleaningState.LOG_CLEANING_IN_PROGRESS);
            manager.doneCleaning(log.topicPartition(), logDir, nextDirtyOffset);
        } finally {
            manager.removeMetrics();
        }
    }

    private static ConcurrentMap<TopicPartition, UnifiedLog> onlyLog(UnifiedLog log) {
        return new ConcurrentHashMap<>(Map.of(log.topicPartition(), log));
    }

    /** A manager whose checkpoint is an argument instead of a file. */
    private static final class SingleLogManager extends LogCleanerManager {
        private final Map<TopicPartition, Long> checkpoints;

        SingleLogManager(UnifiedLog log, Optional<Long> checkpoint) {
            super(List.of(), onlyLog(log), new LogDirFailureChannel(1));
            checkpoints =
                    checkpoint.isPresent()
                            ? Map.of(log.topicPartition(), checkpoint.get())
                            : Map.of();
        }

        @Override
        public Map<TopicPartition, Long> allCleanerCheckpoints() {
            return checkpoints;
        }
    }
}
