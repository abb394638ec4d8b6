package siltstone.harness;

import java.io.IOException;

/**
 * Runs Kafka's broker for as long as somebody holds the other end of standard input.
 *
 * <p>A test run that is itself killed cannot stop its brokers; the kernel closes the pipe for it.
 * Argument: the server.properties file.
 */
public final class Leash {
    private Leash() {}

    public static void main(String[] args) {
        Thread watcher = new Thread(Leash::waitForTheEnd, "leash");
        watcher.setDaemon(true);
        watcher.start();
        kafka.Kafka.main(args);
    }

    private static void waitForTheEnd() {
        try {
            while (System.in.read() >= 0) {}
        } catch (IOException error) {
            // Gone is gone.
        }
        Runtime.getRuntime().halt(1);
    }
}
