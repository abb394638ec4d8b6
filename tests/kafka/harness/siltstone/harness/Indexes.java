package siltstone.harness;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AbstractIndex;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Collection;
import java.util.Comparator;
import java.util.OptionalLong;

/** Index entries, aborted transactions, producers and epochs as JSON. */
final class Indexes {
    private static final int OFFSET_ENTRY_SIZE = 8;
    private static final int TIME_ENTRY_SIZE = 12;

    private Indexes() {}

    /**
     * Entries as [offset, position]; of an index not loaded yet, what Kafka would take from its
     * file.
     *
     * <p>After a crash the file still has its pre-allocated size and Kafka counts the zeroes as
     * entries. They are left out here, a million at a time; the length of the file tells that they
     * are there.
     */
    static ArrayNode offsetEntries(AbstractIndex loaded, File file, long baseOffset)
            throws IOException {
        if (loaded == null && !file.exists()) return null;
        ByteBuffer raw = rawEntries(loaded, file, OFFSET_ENTRY_SIZE);
        ArrayNode entries = Json.MAPPER.createArrayNode();
        while (raw.hasRemaining())
            entries.addArray().add(baseOffset + raw.getInt()).add(raw.getInt());
        return entries;
    }

    /** Entries as [timestamp, offset], under the same rules. */
    static ArrayNode timeEntries(AbstractIndex loaded, File file, long baseOffset)
            throws IOException {
        if (loaded == null && !file.exists()) return null;
        ByteBuffer raw = rawEntries(loaded, file, TIME_ENTRY_SIZE);
        ArrayNode entries = Json.MAPPER.createArrayNode();
        while (raw.hasRemaining())
            entries.addArray().add(raw.getLong()).add(baseOffset + raw.getInt());
        return entries;
    }

    private static ByteBuffer rawEntries(AbstractIndex loaded, File file, int entrySize)
            throws IOException {
        int claimed = loaded != null ? loaded.entries() : (int) (file.length() / entrySize);
        byte[] bytes = new byte[0];
        // Only the entries, not the megabytes allocated ahead: this runs after every operation.
        if (claimed > 0)
            try (InputStream input = Files.newInputStream(file.toPath())) {
                bytes = input.readNBytes(claimed * entrySize);
            }
        int used = bytes.length / entrySize;
        while (used > 0 && isZero(bytes, (used - 1) * entrySize, entrySize)) used--;
        // One entry of zeroes can be real: a first record of the year 1970.
        if (used == 0 && claimed == 1) used = 1;
        return ByteBuffer.wrap(bytes, 0, used * entrySize);
    }

    private static boolean isZero(byte[] bytes, int start, int length) {
        for (int i = start; i < start + length; i++) if (bytes[i] != 0) return false;
        return true;
    }

    static ArrayNode abortedTransactions(Collection<AbortedTxn> transactions) {
        ArrayNode described = Json.MAPPER.createArrayNode();
        for (AbortedTxn aborted : transactions) {
            ObjectNode node = described.addObject();
            node.put("producer_id", aborted.producerId());
            node.put("first_offset", aborted.firstOffset());
            node.put("last_offset", aborted.lastOffset());
            node.put("last_stable_offset", aborted.lastStableOffset());
        }
        return described;
    }

    static ArrayNode producers(Collection<ProducerStateEntry> entries) {
        ArrayNode described = Json.MAPPER.createArrayNode();
        entries.stream()
                .sorted(Comparator.comparingLong(ProducerStateEntry::producerId))
                .forEach(entry -> described.add(producer(entry)));
        return described;
    }

    private static ObjectNode producer(ProducerStateEntry entry) {
        ObjectNode node = Json.object();
        node.put("producer_id", entry.producerId());
        node.put("producer_epoch", entry.producerEpoch());
        node.put("last_data_offset", entry.lastDataOffset());
        node.put("last_timestamp_ms", entry.lastTimestamp());
        node.put("coordinator_epoch", entry.coordinatorEpoch());
        node.put("current_txn_first_offset", entry.currentTxnFirstOffset().orElse(-1));
        int lastSequence = -1;
        ArrayNode batches = node.putArray("batches");
        for (BatchMetadata batch : entry.batchMetadata()) {
            ObjectNode described = batches.addObject();
            described.put("first_sequence", batch.firstSeq());
            described.put("last_sequence", batch.lastSeq());
            described.put("first_offset", batch.firstOffset());
            described.put("last_offset", batch.lastOffset());
            described.put("timestamp_ms", batch.timestamp());
            lastSequence = batch.lastSeq();
        }
        node.put("last_sequence", lastSequence);
        return node;
    }

    static ArrayNode epochs(Collection<EpochEntry> entries) {
        ArrayNode described = Json.MAPPER.createArrayNode();
        for (EpochEntry entry : entries)
            described.addArray().add(entry.epoch()).add(entry.startOffset());
        return described;
    }

    static void putOptional(ObjectNode node, String name, OptionalLong value) {
        if (value.isPresent()) node.put(name, value.getAsLong());
        else node.putNull(name);
    }
}
