package siltstone.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.utils.Exit;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Runs the main method of one of Kafka's command line tools and catches what it prints. */
final class Tool {
    private Tool() {}

    /** Command: class, args. Result: status, stdout, stderr. */
    static ObjectNode run(JsonNode command) throws ReflectiveOperationException {
        List<String> args = new ArrayList<>();
        command.path("args").forEach(arg -> args.add(arg.asText()));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream outBefore = System.out;
        PrintStream errBefore = System.err;
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure(
                (status, message) -> {
                    throw new Exited(status);
                });
        int status = 0;
        try {
            Class.forName(Json.require(command, "class").asText())
                    .getMethod("main", String[].class)
                    .invoke(null, (Object) args.toArray(new String[0]));
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Exited) {
                status = ((Exited) error.getCause()).status;
            } else {
                error.getCause().printStackTrace();
                status = 1;
            }
        } finally {
            Exit.resetExitProcedure();
            System.setOut(outBefore);
            System.setErr(errBefore);
        }
        return Json.object()
                .put("status", status)
                .put("stdout", out.toString(StandardCharsets.UTF_8))
                .put("stderr", err.toString(StandardCharsets.UTF_8));
    }

    private static final class Exited extends RuntimeException {
        private static final long serialVersionUID = 1L;
        private final int status;

        Exited(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }
}
