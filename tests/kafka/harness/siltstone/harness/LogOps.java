package siltstone.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.storage.internals.log.RecordValidationException;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Drives real partition logs: one JSON command per line on standard input, one JSON answer per
 * line.
 *
 * <p>It also runs the other tools of this package, which saves them the start of a JVM.
 *
 * <p>A command is {"op": ..., "log": name, ...}. The answer is {"ok": true, "result": ...} or
 * {"ok": false, "error": {...}}, both with the log's "state" afterwards unless the command says
 * "state": false. Many logs can be open at a time; each has its own clock.
 */
public final class LogOps {
    private final Map<String, DrivenLog> logs = new HashMap<>();

    public static void main(String[] args) throws IOException {
        PrintStream answers = Json.claimStdout();
        LogOps ops = new LogOps();
        BufferedReader commands =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine())
            Json.print(answers, ops.answer(Json.MAPPER.readTree(line)));
        // Kafka's metrics leave threads behind; end without waiting for them.
        Runtime.getRuntime().halt(0);
    }

    private ObjectNode answer(JsonNode command) {
        ObjectNode answer = Json.object();
        try {
            JsonNode result = run(command);
            answer.put("ok", true);
            answer.set("result", result);
        } catch (Throwable error) {
            answer.put("ok", false);
            answer.set("error", describe(error));
        }
        try {
            DrivenLog log = logs.get(Json.text(command, "log", ""));
            if (log != null && log.isOpen() && Json.flag(command, "state", true))
                answer.set("state", log.state());
        } catch (Throwable error) {
            answer.put("ok", false);
            answer.set("error", describe(error));
        }
        return answer;
    }

    private JsonNode run(JsonNode command) throws IOException, ReflectiveOperationException {
        String op = Json.require(command, "op").asText();
        switch (op) {
            case "ping":
                return null;
            case "build_batch":
                return Json.object().put("batch", Json.base64(Batches.build(command)));
            case "describe_batches":
                return Batches.describeAll(
                        Json.bytes(command.get("batches")), Json.flag(command, "records", true));
            case "log_state":
                return LogState.describe(
                        new File(Json.require(command, "dir").asText()),
                        Json.flag(command, "records", false));
            case "topic_settings":
                return TopicSettings.describe();
            case "produce":
                return Produce.runScript(
                        Json.require(command, "bootstrap").asText(), command.get("script"));
            case "consume":
                return Consume.run(command);
            case "tool":
                return Tool.run(command);
            case "open":
                return open(command);
            case "forget":
                return forget(command);
            default:
                return log(command).run(op, command);
        }
    }

    private JsonNode open(JsonNode command) throws IOException {
        String name = Json.require(command, "log").asText();
        if (logs.containsKey(name))
            throw new IllegalArgumentException("log " + name + " exists already");
        DrivenLog log = new DrivenLog(command);
        logs.put(name, log);
        return null;
    }

    private JsonNode forget(JsonNode command) {
        DrivenLog log = logs.remove(Json.require(command, "log").asText());
        if (log != null) log.discard();
        return null;
    }

    private DrivenLog log(JsonNode command) {
        DrivenLog log = logs.get(Json.require(command, "log").asText());
        if (log == null)
            throw new IllegalArgumentException("no log named " + command.get("log").asText());
        return log;
    }

    private static ObjectNode describe(Throwable error) {
        ObjectNode node = Json.object();
        Throwable cause = error;
        if (error instanceof RecordValidationException) {
            RecordValidationException invalid = (RecordValidationException) error;
            cause = invalid.invalidException();
            ArrayNode records = node.putArray("record_errors");
            for (ProduceResponse.RecordError record : invalid.recordErrors())
                records.addArray().add(record.batchIndex).add(record.message);
        }
        Errors code = Errors.forException(cause);
        node.put("exception", cause.getClass().getSimpleName());
        node.put("message", String.valueOf(cause.getMessage()));
        node.put("code", code.code());
        node.put("code_name", code.name());
        return node;
    }
}
