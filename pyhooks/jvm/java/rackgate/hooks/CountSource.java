package rackgate.hooks;

import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/**
 * A source connector of Kafka Connect that writes the numbers from 0 on to a topic, as keys and values. Its offset is
 * the next number, so that a gap or a repetition in the topic shows what was lost or written twice.
 */
public final class CountSource extends SourceConnector {

    static final String VERSION = "1";
    private static final String TOPIC = "topic";
    private static final String PAUSE_MS = "pause.ms";

    private Map<String, String> config;

    @Override
    public void start(Map<String, String> properties) {
        config = Map.copyOf(properties);
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Numbers.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        return List.of(config);
    }

    @Override
    public void stop() {
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef()
            .define(TOPIC, ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "The topic.")
            .define(PAUSE_MS, ConfigDef.Type.INT, 50, ConfigDef.Importance.LOW, "Pause between two numbers.");
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> properties) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public String version() {
        return VERSION;
    }

    /** The only task. */
    public static final class Numbers extends SourceTask {

        private static final Map<String, String> PARTITION = Map.of("numbers", "all");
        private static final String NEXT = "next";

        private String topic;
        private long pauseMs;
        private long next;

        @Override
        public void start(Map<String, String> properties) {
            topic = properties.get(TOPIC);
            pauseMs = Long.parseLong(properties.get(PAUSE_MS));
            Map<String, Object> offset = context.offsetStorageReader().offset(PARTITION);
            next = offset == null ? 0 : ((Number) offset.get(NEXT)).longValue();
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(pauseMs);
            String number = Long.toString(next);
            next++;
            return List.of(new SourceRecord(PARTITION, Map.of(NEXT, next), topic,
                Schema.STRING_SCHEMA, number, Schema.STRING_SCHEMA, number));
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return VERSION;
        }
    }
}
