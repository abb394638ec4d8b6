package siltstone.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;

import java.nio.ByteBuffer;

/** Record batches as Kafka's own classes write and read them, to and from JSON. */
final class Batches {
    // Header positions that RecordBatch has no accessor for (magic 2).
    private static final int ATTRIBUTES_POSITION = 21;
    private static final int BASE_TIMESTAMP_POSITION = 27;

    private Batches() {}

    /** Build one batch from its description with Kafka's MemoryRecordsBuilder. */
    static byte[] build(JsonNode spec) {
        long baseOffset = Json.number(spec, "base_offset", 0);
        int leaderEpoch =
                (int) Json.number(spec, "leader_epoch", RecordBatch.NO_PARTITION_LEADER_EPOCH);
        long producerId = Json.number(spec, "producer_id", RecordBatch.NO_PRODUCER_ID);
        short producerEpoch =
                (short) Json.number(spec, "producer_epoch", RecordBatch.NO_PRODUCER_EPOCH);
        if (spec.hasNonNull("marker")) {
            ControlRecordType type = ControlRecordType.valueOf(spec.get("marker").asText());
            EndTransactionMarker marker =
                    new EndTransactionMarker(type, (int) Json.number(spec, "coordinator_epoch", 0));
            return toBytes(
                    MemoryRecords.withEndTransactionMarker(
                            baseOffset,
                            Json.number(spec, "timestamp_ms", 0),
                            leaderEpoch,
                            producerId,
                            producerEpoch,
                            marker));
        }
        CompressionType codec = CompressionType.forName(Json.text(spec, "codec", "none"));
        TimestampType timestampType =
                TimestampType.forName(Json.text(spec, "timestamp_type", "CreateTime"));
        MemoryRecordsBuilder builder =
                MemoryRecords.builder(
                        ByteBuffer.allocate(1024),
                        RecordBatch.CURRENT_MAGIC_VALUE,
                        Compression.of(codec).build(),
                        timestampType,
                        baseOffset,
                        Json.number(spec, "log_append_time_ms", RecordBatch.NO_TIMESTAMP),
                        producerId,
                        producerEpoch,
                        (int) Json.number(spec, "base_sequence", RecordBatch.NO_SEQUENCE),
                        Json.flag(spec, "transactional", false),
                        leaderEpoch);
        for (JsonNode record : Json.require(spec, "records")) builder.append(simpleRecord(record));
        return toBytes(builder.build());
    }

    private static SimpleRecord simpleRecord(JsonNode record) {
        JsonNode headers = record.path("headers");
        Header[] built = new Header[headers.size()];
        for (int i = 0; i < built.length; i++)
            built[i] =
                    new RecordHeader(
                            headers.get(i).get(0).asText(), Json.bytes(headers.get(i).get(1)));
        return new SimpleRecord(
                Json.number(record, "timestamp_ms", RecordBatch.NO_TIMESTAMP),
                Json.bytes(record.get("key")),
                Json.bytes(record.get("value")),
                built);
    }

    private static byte[] toBytes(MemoryRecords records) {
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(bytes);
        return bytes;
    }

    /** Describe every batch of a buffer, positions counted from its beginning. */
    static ArrayNode describeAll(byte[] bytes, boolean withRecords) {
        ArrayNode described = Json.MAPPER.createArrayNode();
        int position = 0;
        for (MutableRecordBatch batch :
                MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            described.add(describe(batch, position, withRecords));
            position += batch.sizeInBytes();
        }
        return described;
    }

    static ObjectNode describe(RecordBatch batch, int position, boolean withRecords) {
        ObjectNode node = Json.object();
        ByteBuffer raw = ByteBuffer.allocate(batch.sizeInBytes());
        batch.writeTo(raw);
        node.put("position", position);
        node.put("size", batch.sizeInBytes());
        node.put("magic", batch.magic());
        node.put("base_offset", batch.baseOffset());
        node.put("last_offset", batch.lastOffset());
        node.put("count", batch.countOrNull());
        node.put("crc", batch.checksum());
        node.put("is_valid", batch.isValid());
        node.put("codec", batch.compressionType().name);
        node.put("timestamp_type", batch.timestampType().name);
        node.put("max_timestamp_ms", batch.maxTimestamp());
        node.put("producer_id", batch.producerId());
        node.put("producer_epoch", batch.producerEpoch());
        node.put("base_sequence", batch.baseSequence());
        node.put("last_sequence", batch.lastSequence());
        node.put("is_transactional", batch.isTransactional());
        node.put("is_control", batch.isControlBatch());
        node.put("leader_epoch", batch.partitionLeaderEpoch());
        if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2) {
            node.put("attributes", raw.getShort(ATTRIBUTES_POSITION) & 0xffff);
            node.put("base_timestamp_ms", raw.getLong(BASE_TIMESTAMP_POSITION));
        }
        if (batch.deleteHorizonMs().isPresent())
            node.put("delete_horizon_ms", batch.deleteHorizonMs().getAsLong());
        else node.putNull("delete_horizon_ms");
        if (withRecords) addRecords(node, batch);
        return node;
    }

    private static void addRecords(ObjectNode node, RecordBatch batch) {
        ArrayNode records = node.putArray("records");
        try {
            for (Record record : batch) records.add(describe(record));
        } catch (RuntimeException error) {
            node.put("records_error", error.toString());
        }
    }

    private static ObjectNode describe(Record record) {
        ObjectNode node = Json.object();
        node.put("offset", record.offset());
        node.put("timestamp_ms", record.timestamp());
        node.put("sequence", record.sequence());
        node.put("size", record.sizeInBytes());
        node.put("key", Json.base64(record.key()));
        node.put("value", Json.base64(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers())
            headers.addArray().add(header.key()).add(Json.base64(header.value()));
        return node;
    }
}
