package rackgate.hooks;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** A sink connector of Kafka Connect that appends the offset of each record to a file, one a line. */
public final class CountSink extends SinkConnector {

    private static final String FILE = "file";

    private Map<String, String> config;

    @Override
    public void start(Map<String, String> properties) {
        config = Map.copyOf(properties);
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Offsets.class;
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
        return new ConfigDef().define(FILE, ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "The file.");
    }

    @Override
    public String version() {
        return CountSource.VERSION;
    }

    /** The only task. */
    public static final class Offsets extends SinkTask {

        private Path file;

        @Override
        public void start(Map<String, String> properties) {
            file = Path.of(properties.get(FILE));
        }

        @Override
        public void put(Collection<SinkRecord> records) {
            StringBuilder lines = new StringBuilder();
            for (SinkRecord record : records) {
                lines.append(record.kafkaOffset()).append('\n');
            }
            try {
                Files.writeString(file, lines, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException e) {
                throw new ConnectException(e);
            }
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return CountSource.VERSION;
        }
    }
}
