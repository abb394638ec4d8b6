package siltstone.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/** JSON lines on standard output, and nothing else there. */
final class Json {
    static final ObjectMapper MAPPER = new ObjectMapper();

    private Json() {}

    /**
     * Take standard output for answers; whatever Kafka or its logger prints goes to standard error.
     */
    static PrintStream claimStdout() {
        PrintStream answers =
                new PrintStream(
                        new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        return answers;
    }

    static ObjectNode object() {
        return MAPPER.createObjectNode();
    }

    static void print(PrintStream answers, JsonNode node) throws java.io.IOException {
        answers.print(MAPPER.writeValueAsString(node));
        answers.print('\n');
        answers.flush();
        // A PrintStream swallows errors; a caller that went away must end this process.
        if (answers.checkError())
            throw new java.io.IOException("nobody reads the answers any more");
    }

    static String base64(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static String base64(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return base64(bytes);
    }

    static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static long number(JsonNode request, String name, long ifAbsent) {
        return request.hasNonNull(name) ? request.get(name).asLong() : ifAbsent;
    }

    static boolean flag(JsonNode request, String name, boolean ifAbsent) {
        return request.hasNonNull(name) ? request.get(name).asBoolean() : ifAbsent;
    }

    static String text(JsonNode request, String name, String ifAbsent) {
        return request.hasNonNull(name) ? request.get(name).asText() : ifAbsent;
    }

    static JsonNode require(JsonNode request, String name) {
        if (!request.hasNonNull(name))
            throw new IllegalArgumentException("missing field " + name + " in " + request);
        return request.get(name);
    }
}
