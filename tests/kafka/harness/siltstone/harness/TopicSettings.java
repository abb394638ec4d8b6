package siltstone.harness;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.storage.internals.log.LogConfig;

import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;

/** The topic settings as Kafka defines them: name, type, default, allowed values. */
public final class TopicSettings {
    private TopicSettings() {}

    public static void main(String[] args) throws IOException {
        var answers = Json.claimStdout();
        for (var setting : describe()) Json.print(answers, setting);
        Runtime.getRuntime().halt(0);
    }

    static ArrayNode describe() {
        ArrayNode settings = Json.MAPPER.createArrayNode();
        Map<String, ConfigDef.ConfigKey> keys = new TreeMap<>(LogConfig.configKeys());
        for (ConfigDef.ConfigKey key : keys.values()) {
            ObjectNode node = settings.addObject();
            node.put("name", key.name);
            node.put("type", key.type.name().toLowerCase());
            node.put(
                    "default",
                    key.defaultValue == null
                            ? null
                            : ConfigDef.convertToString(key.defaultValue, key.type));
            node.put("valid", key.validator == null ? null : key.validator.toString());
            node.put(
                    "server_default_name",
                    LogConfig.configDefCopy().serverConfigName(key.name).orElse(null));
            node.put("internal", key.internalConfig);
        }
        return settings;
    }
}
