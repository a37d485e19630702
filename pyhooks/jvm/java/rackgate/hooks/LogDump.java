package rackgate.hooks;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Reads the logs of stopped brokers from their disks as log recovery does: with Kafka's own classes,
 * segment by segment, each batch checked by its checksum. At the first batch that is cut short or damaged the log ends.
 *
 * <p>Data folders come on standard input, one a line. On standard output comes one JSON object a line: for each chunk of a
 * partition {@code {folder, topic, partition, low, begin, next, runs, keys}}, the last one of a partition with {@code end}
 * and, if the log is cut short, {@code torn}; for each folder at its end {@code {folder, done}}, or {@code {folder, error}}.
 */
public final class LogDump {

    // Kafka appends a suffix to the names of folders that it has replaced or will delete.
    private static final Pattern PARTITION = Pattern.compile("(.+)-(\\d+)");
    private static final Pattern SEGMENT = Pattern.compile("(\\d{20})\\.log");
    private static final int CHUNK = 5000;

    private final JsonGenerator json;

    private LogDump(JsonGenerator json) {
        this.json = json;
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        OutputStream out = new BufferedOutputStream(System.out, 1 << 16);
        try (JsonGenerator json = new JsonFactory().createGenerator(out)) {
            json.setRootValueSeparator(new com.fasterxml.jackson.core.io.SerializedString("\n"));
            LogDump dump = new LogDump(json);
            for (String folder = in.readLine(); folder != null; folder = in.readLine()) {
                dump.folder(Path.of(folder));
            }
        }
    }

    private void folder(Path folder) throws IOException {
        String error = null;
        try {
            Map<String, Long> starts = checkpoint(folder.resolve("log-start-offset-checkpoint"));
            for (Path path : sorted(folder)) {
                Matcher name = PARTITION.matcher(path.getFileName().toString());
                if (Files.isDirectory(path) && name.matches() && !name.group(1).equals("__cluster_metadata")) {
                    partition(folder, path, name.group(1), Integer.parseInt(name.group(2)), starts);
                }
            }
        } catch (IOException | RuntimeException e) {
            error = e.toString();
        }
        json.writeStartObject();
        json.writeStringField("folder", folder.toString());
        if (error == null) {
            json.writeBooleanField("done", true);
        } else {
            json.writeStringField("error", error);
        }
        json.writeEndObject();
    }

    private void partition(Path folder, Path path, String topic, int partition, Map<String, Long> starts)
        throws IOException {
        List<Path> segments = new ArrayList<>();
        for (Path file : sorted(path)) {
            if (SEGMENT.matcher(file.getFileName().toString()).matches()) {
                segments.add(file);
            }
        }
        long first = segments.isEmpty() ? 0 : base(segments.get(0));
        long low = Math.max(first, starts.getOrDefault(topic + " " + partition, first));
        Chunk chunk = new Chunk(folder, topic, partition, low);
        String torn = null;
        for (Path segment : segments) {
            torn = segment(segment, chunk);
            if (torn != null) {
                break;
            }
        }
        chunk.write(Math.max(low, chunk.next), torn);
    }

    /** Reads a segment; returns where and why it is truncated, or null. */
    private String segment(Path path, Chunk chunk) throws IOException {
        int valid = 0;
        try (FileRecords records = FileRecords.open(new File(path.toString()), false)) {
            try {
                for (RecordBatch batch : records.batches()) {
                    batch.ensureValid();
                    if (batch.baseOffset() < chunk.seen) {
                        return path.getFileName() + ": offsets go back at byte " + valid;
                    }
                    if (!batch.isControlBatch()) {
                        for (Record record : batch) {
                            chunk.add(record.offset(), record.key());
                        }
                    }
                    chunk.reach(batch.nextOffset());
                    valid += batch.sizeInBytes();
                }
            } catch (CorruptRecordException | InvalidRecordException e) {
                return path.getFileName() + ": damaged at byte " + valid;
            }
            int left = records.sizeInBytes() - valid;
            return left > 0 ? path.getFileName() + ": cut short at byte " + valid + ", " + left + " bytes left" : null;
        }
    }

    private static long base(Path segment) {
        return Long.parseLong(segment.getFileName().toString().substring(0, 20));
    }

    private static List<Path> sorted(Path folder) throws IOException {
        try (Stream<Path> found = Files.list(folder)) {
            return found.sorted().toList();
        }
    }

    /** The lines {@code topic partition offset} of a checkpoint file, after its version and the number of lines. */
    private static Map<String, Long> checkpoint(Path file) throws IOException {
        Map<String, Long> offsets = new HashMap<>();
        if (Files.exists(file)) {
            for (String line : Files.readAllLines(file).stream().skip(2).toList()) {
                int space = line.lastIndexOf(' ');
                offsets.put(line.substring(0, space), Long.parseLong(line.substring(space + 1)));
            }
        }
        return offsets;
    }

    /** Keys of a partition by offset, written in chunks. */
    private final class Chunk {

        private final Path folder;
        private final String topic;
        private final int partition;
        private final long low;
        private final List<long[]> runs = new ArrayList<>();
        private final List<String> keys = new ArrayList<>();
        private long begin;
        private long next;
        private long seen;

        Chunk(Path folder, String topic, int partition, long low) {
            this.folder = folder;
            this.topic = topic;
            this.partition = partition;
            this.low = low;
            begin = low;
            next = low;
        }

        void add(long offset, ByteBuffer key) throws IOException {
            if (offset < low) {
                return;
            }
            if (keys.size() >= CHUNK) {
                reach(offset);
                write(-1, null);
            }
            long[] last = runs.isEmpty() ? null : runs.get(runs.size() - 1);
            if (last != null && last[0] + last[1] == offset) {
                last[1]++;
            } else {
                runs.add(new long[] {offset, 1});
            }
            keys.add(text(key));
        }

        void reach(long offset) {
            seen = offset;
            next = Math.max(next, offset);
        }

        /** Writes the buffered keys; with an end of 0 or more this is the partition's last chunk. */
        void write(long end, String torn) throws IOException {
            json.writeStartObject();
            json.writeStringField("folder", folder.toString());
            json.writeStringField("topic", topic);
            json.writeNumberField("partition", partition);
            json.writeNumberField("low", low);
            json.writeNumberField("begin", begin);
            json.writeNumberField("next", next);
            json.writeArrayFieldStart("runs");
            for (long[] run : runs) {
                json.writeArray(run, 0, 2);
            }
            json.writeEndArray();
            json.writeArrayFieldStart("keys");
            for (String key : keys) {
                json.writeString(key);
            }
            json.writeEndArray();
            if (end >= 0) {
                json.writeNumberField("end", end);
            }
            if (torn != null) {
                json.writeStringField("torn", torn);
            }
            json.writeEndObject();
            begin = next;
            runs.clear();
            keys.clear();
        }

        /** As pyhooks.history.record_format.text_of: text, or hexadecimal digits after 0x. */
        private String text(ByteBuffer key) {
            if (key == null) {
                return null;
            }
            try {
                return StandardCharsets.UTF_8.newDecoder().decode(key.duplicate()).toString();
            } catch (CharacterCodingException e) {
                byte[] bytes = new byte[key.remaining()];
                key.duplicate().get(bytes);
                return "0x" + HexFormat.of().formatHex(bytes);
            }
        }
    }
}
