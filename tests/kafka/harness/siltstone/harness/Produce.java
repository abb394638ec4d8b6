package siltstone.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

/**
 * Writes with Kafka's Java producer what a script of JSON lines on standard input says.
 *
 * <p>Argument: bootstrap servers. Ops: "producer" (id, config), "send", "flush", "begin", "commit",
 * "abort", "close", and "halt", which ends the process at once and so leaves open what is open. One
 * answer per "send", in the order of the script; the first failure ends the script.
 */
public final class Produce {
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();

    private Produce(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws IOException {
        PrintStream answers = Json.claimStdout();
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<JsonNode> script = new ArrayList<>();
        for (String line = lines.readLine(); line != null; line = lines.readLine())
            script.add(Json.MAPPER.readTree(line));
        for (JsonNode outcome : runScript(args[0], script)) Json.print(answers, outcome);
        Runtime.getRuntime().halt(0);
    }

    /** Run a whole script; what became of each "send", and of the script itself if it broke off. */
    static ArrayNode runScript(String bootstrap, Iterable<JsonNode> script) {
        Produce produce = new Produce(bootstrap);
        ArrayNode outcomes = Json.MAPPER.createArrayNode();
        boolean halted = false;
        try {
            for (JsonNode line : script) if (!halted) halted = produce.run(line);
        } catch (RuntimeException error) {
            outcomes.addObject().put("error", error.toString());
        }
        if (!halted)
            produce.producers.values().forEach(producer -> producer.close(Duration.ofSeconds(30)));
        produce.sent.forEach(future -> outcomes.add(outcome(future)));
        return outcomes;
    }

    /** Carry out one line; true means stop here without closing anything. */
    private boolean run(JsonNode line) {
        String op = Json.require(line, "op").asText();
        String id = Json.text(line, "producer", "default");
        switch (op) {
            case "producer":
                producers.put(id, open(line.path("config")));
                return false;
            case "send":
                sent.add(producers.get(id).send(record(line)));
                return false;
            case "flush":
                producers.get(id).flush();
                return false;
            case "begin":
                producers.get(id).beginTransaction();
                return false;
            case "commit":
                producers.get(id).commitTransaction();
                return false;
            case "abort":
                producers.get(id).abortTransaction();
                return false;
            case "close":
                producers.remove(id).close(Duration.ofSeconds(30));
                return false;
            case "halt":
                producers.values().forEach(KafkaProducer::flush);
                return true;
            default:
                throw new IllegalArgumentException("unknown op " + op);
        }
    }

    private KafkaProducer<byte[], byte[]> open(JsonNode config) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        // A batch ends where the script says "flush", not where a timer happens to fire.
        settings.put("linger.ms", "60000");
        settings.put("delivery.timeout.ms", "120000");
        settings.put("batch.size", "65536");
        config.properties()
                .forEach(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        if (settings.containsKey("transactional.id")) producer.initTransactions();
        return producer;
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode line) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : line.path("headers"))
            headers.add(new RecordHeader(header.get(0).asText(), Json.bytes(header.get(1))));
        return new ProducerRecord<>(
                Json.require(line, "topic").asText(),
                line.hasNonNull("partition") ? (Integer) line.get("partition").asInt() : null,
                line.hasNonNull("timestamp_ms") ? (Long) line.get("timestamp_ms").asLong() : null,
                Json.bytes(line.get("key")),
                Json.bytes(line.get("value")),
                headers);
    }

    private static ObjectNode outcome(Future<RecordMetadata> future) {
        if (!future.isDone()) return Json.object().put("error", "never sent");
        try {
            RecordMetadata metadata = future.get();
            return Json.object()
                    .put("partition", metadata.partition())
                    .put("offset", metadata.offset())
                    .put("timestamp_ms", metadata.timestamp());
        } catch (ExecutionException error) {
            return Json.object().put("error", String.valueOf(error.getCause()));
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
