package siltstone.harness;

import kafka.log.LogManager;
import kafka.server.KafkaConfig;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.IOException;
import java.io.PrintStream;
import java.util.Properties;

/**
 * Times how long Kafka's LogManager takes to load the logs of a directory.
 *
 * <p>Arguments: directory [recovery threads]. Loading uses up the clean-shutdown file and the
 * process ends without writing a new one: give it a copy.
 */
public final class LoadTime {
    private LoadTime() {}

    public static void main(String[] args) throws IOException {
        PrintStream answers = Json.claimStdout();
        Properties properties = new Properties();
        properties.put("process.roles", "broker");
        properties.put("node.id", "1");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("controller.quorum.bootstrap.servers", "localhost:1");
        properties.put("log.dirs", args[0]);
        if (args.length > 1) properties.put("num.recovery.threads.per.data.dir", args[1]);
        KafkaConfig config = new KafkaConfig(properties);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        ConfigRepository noOverrides = resource -> new Properties();
        LogManager manager =
                LogManager.apply(
                        config,
                        scala.collection.immutable.List$.MODULE$.empty(),
                        noOverrides,
                        scheduler,
                        Time.SYSTEM,
                        new BrokerTopicStats(),
                        new LogDirFailureChannel(1));

        long startNs = System.nanoTime();
        manager.loadLogs(
                manager.currentDefaultConfig(),
                scala.collection.immutable.Map$.MODULE$.empty(),
                log -> false);
        double elapsedMs = (System.nanoTime() - startNs) / 1e6;

        Json.print(
                answers,
                Json.object().put("logs", manager.allLogs().size()).put("milliseconds", elapsedMs));
        Runtime.getRuntime().halt(0);
    }
}
