package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;

/** Collects the consumer properties that Spark's Kafka source sets; knows no delegation tokens. */
public final class KafkaConfigUpdater {
    private final Map<String, Object> properties = new HashMap<>();

    public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> given) {
        given.foreachEntry((key, value) -> properties.put(key, value));
    }

    public KafkaConfigUpdater set(String key, Object value) {
        properties.put(key, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String key, Object value) {
        properties.putIfAbsent(key, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> tokenCluster) {
        return this;
    }

    public Map<String, Object> build() {
        return properties;
    }
}
