package siltstone.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogFileUtils;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.SnapshotFile;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TransactionIndex;

import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/**
 * Everything in a partition directory, read by Kafka's storage classes without opening a log.
 *
 * <p>Works on a copy, because some of those classes create, lock or resize the files they open.
 */
public final class LogState {
    private LogState() {}

    /** Arguments: directory [records]. Prints one line per partition directory given. */
    public static void main(String[] args) throws IOException {
        PrintStream answers = Json.claimStdout();
        boolean withRecords = args.length > 1 && args[1].equals("records");
        Json.print(answers, describe(new File(args[0]), withRecords));
        Runtime.getRuntime().halt(0);
    }

    static ObjectNode describe(File original, boolean withRecords) throws IOException {
        File dir = copy(original);
        try {
            return describeCopy(dir, withRecords);
        } finally {
            deleteTree(dir.toPath());
        }
    }

    private static ObjectNode describeCopy(File dir, boolean withRecords) throws IOException {
        ObjectNode node = Json.object();
        // Listed first: reading below may create what is missing.
        ObjectNode sizes = node.putObject("files");
        List<File> files = sortedFiles(dir);
        for (File file : files) sizes.put(file.getName(), file.length());

        ArrayNode segments = node.putArray("segments");
        for (File file : files)
            if (file.getName().endsWith(LogFileUtils.LOG_FILE_SUFFIX))
                segments.add(segment(dir, file, withRecords));

        ArrayNode snapshots = node.putArray("snapshots");
        for (File file : files)
            if (file.getName().endsWith(LogFileUtils.PRODUCER_SNAPSHOT_FILE_SUFFIX))
                snapshots.add(snapshot(file));

        node.set("epochs", epochs(dir));
        node.set("topic_id", topicId(dir));
        return node;
    }

    private static ObjectNode segment(File dir, File logFile, boolean withRecords)
            throws IOException {
        long base = LogFileUtils.offsetFromFile(logFile);
        ObjectNode node = Json.object();
        node.put("base_offset", base);
        node.put("size", logFile.length());
        ArrayNode batches = node.putArray("batches");
        try (FileRecords records = FileRecords.open(logFile, false)) {
            int position = 0;
            try {
                for (FileChannelRecordBatch batch : records.batches()) {
                    batches.add(Batches.describe(batch, batch.position(), withRecords));
                    position = batch.position() + batch.sizeInBytes();
                }
            } catch (RuntimeException error) {
                node.put("batches_error", message(error, logFile));
            }
            node.put("trailing_bytes", records.sizeInBytes() - position);
        }
        File offsetFile = LogFileUtils.offsetIndexFile(dir, base);
        node.set("offset_index", Indexes.offsetEntries(null, offsetFile, base));
        node.put(
                "offset_index_error",
                offsetFile.exists() ? offsetIndexError(offsetFile, base) : null);
        File timeFile = LogFileUtils.timeIndexFile(dir, base);
        node.set("time_index", Indexes.timeEntries(null, timeFile, base));
        node.put("time_index_error", timeFile.exists() ? timeIndexError(timeFile, base) : null);
        addTransactionIndex(node, LogFileUtils.transactionIndexFile(dir, base), base);
        return node;
    }

    private static String offsetIndexError(File file, long base) throws IOException {
        try (OffsetIndex index = new OffsetIndex(file, base, -1, false)) {
            index.sanityCheck();
            return null;
        } catch (RuntimeException error) {
            return message(error, file);
        }
    }

    private static String timeIndexError(File file, long base) throws IOException {
        try (TimeIndex index = new TimeIndex(file, base, -1, false)) {
            index.sanityCheck();
            return null;
        } catch (RuntimeException error) {
            return message(error, file);
        }
    }

    /** What Kafka says, without the place of the copy, which nobody knows. */
    private static String message(RuntimeException error, File file) {
        return error.toString().replace(file.getParent() + File.separator, "");
    }

    private static void addTransactionIndex(ObjectNode node, File file, long base)
            throws IOException {
        if (!file.exists()) {
            node.putNull("txn_index");
            node.putNull("txn_index_error");
            return;
        }
        try (TransactionIndex index = new TransactionIndex(base, file)) {
            node.set("txn_index", Indexes.abortedTransactions(index.allAbortedTxns()));
            try {
                index.sanityCheck();
                node.putNull("txn_index_error");
            } catch (RuntimeException error) {
                node.put("txn_index_error", message(error, file));
            }
        }
    }

    private static ObjectNode snapshot(File file) throws IOException {
        ObjectNode node = Json.object();
        node.put("offset", new SnapshotFile(file).offset);
        try {
            node.set("producers", Indexes.producers(ProducerStateManager.readSnapshot(file)));
            node.putNull("error");
        } catch (RuntimeException error) {
            node.putArray("producers");
            node.put("error", message(error, file));
        }
        return node;
    }

    private static JsonNode epochs(File dir) throws IOException {
        File file = LeaderEpochCheckpointFile.newFile(dir);
        if (!file.exists()) return null;
        return Indexes.epochs(
                new LeaderEpochCheckpointFile(file, new LogDirFailureChannel(1)).read());
    }

    private static JsonNode topicId(File dir) throws IOException {
        File file = PartitionMetadataFile.newFile(dir);
        if (!file.exists()) return null;
        return Json.MAPPER
                .getNodeFactory()
                .textNode(
                        new PartitionMetadataFile(file, new LogDirFailureChannel(1))
                                .read()
                                .topicId()
                                .toString());
    }

    private static List<File> sortedFiles(File dir) throws IOException {
        File[] listed = dir.listFiles(File::isFile);
        if (listed == null) throw new IOException("cannot list " + dir);
        Arrays.sort(listed);
        return List.of(listed);
    }

    private static File copy(File original) throws IOException {
        Path copy = Files.createTempDirectory("log-state").resolve(original.getName());
        Files.createDirectory(copy);
        for (File file : sortedFiles(original))
            Files.copy(file.toPath(), copy.resolve(file.getName()));
        return copy.toFile();
    }

    private static void deleteTree(Path copy) throws IOException {
        try (Stream<Path> paths = Files.walk(copy.getParent())) {
            for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) Files.delete(path);
        }
    }
}
