package siltstone.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.io.IOException;
import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads one partition from its beginning to its end with Kafka's Java consumer.
 *
 * <p>Arguments: bootstrap topic partition isolation [name=value ...]. Prints one line: the records,
 * the beginning and end offsets and the position reached.
 */
public final class Consume {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private Consume() {}

    public static void main(String[] args) throws IOException {
        PrintStream answers = Json.claimStdout();
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", args[0]);
        settings.put("isolation.level", args[3]);
        for (int i = 4; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        Json.print(
                answers, readAll(settings, new TopicPartition(args[1], Integer.parseInt(args[2]))));
        Runtime.getRuntime().halt(0);
    }

    /** The same as a command: bootstrap, topic, partition, config. */
    static ObjectNode run(JsonNode command) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", Json.require(command, "bootstrap").asText());
        command.path("config")
                .properties()
                .forEach(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        return readAll(
                settings,
                new TopicPartition(
                        Json.require(command, "topic").asText(),
                        Json.require(command, "partition").asInt()));
    }

    private static ObjectNode readAll(Map<String, Object> settings, TopicPartition partition) {
        settings.put("enable.auto.commit", "false");
        // A log that starts later than asked for is a finding, not something to skip over.
        settings.put("auto.offset.reset", "none");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(
                        settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            return readAll(consumer, partition);
        }
    }

    private static ObjectNode readAll(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        ObjectNode result = Json.object();
        ArrayNode records = result.putArray("records");
        consumer.assign(List.of(partition));
        long beginning = consumer.beginningOffsets(List.of(partition)).get(partition);
        // With read_committed this is the last stable offset.
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        consumer.seek(partition, beginning);
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (consumer.position(partition) < end) {
            if (System.nanoTime() > deadline)
                throw new IllegalStateException(
                        "stuck at " + consumer.position(partition) + " of " + end);
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200)))
                records.add(describe(record));
        }
        return result.put("beginning_offset", beginning)
                .put("end_offset", end)
                .put("position", consumer.position(partition));
    }

    private static ObjectNode describe(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = Json.object();
        node.put("offset", record.offset());
        node.put("timestamp_ms", record.timestamp());
        node.put("timestamp_type", record.timestampType().name);
        node.put("leader_epoch", record.leaderEpoch().orElse(null));
        node.put("key", Json.base64(record.key()));
        node.put("value", Json.base64(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers())
            headers.addArray().add(header.key()).add(Json.base64(header.value()));
        return node;
    }
}
