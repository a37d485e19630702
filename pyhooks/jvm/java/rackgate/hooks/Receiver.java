package rackgate.hooks;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer whose polls are packed, so that a poll crosses into Python with one call.
 *
 * <p>Partitions are passed and returned as lines of text: {@code topic partition} or {@code topic partition offset}. Uses
 * only methods that clients have since 2.8. Like the consumer in it, it is used by one thread at a time; only
 * {@link #wakeup} may be called by any thread.
 */
public final class Receiver {

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Duration bound;

    public Receiver(Properties config, long timeoutMs) {
        consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        bound = Duration.ofMillis(timeoutMs);
    }

    public void subscribe(String topics) {
        consumer.subscribe(List.of(topics.split("\n")));
    }

    /** Assigns partitions; those with an offset start there, the others as configured. */
    public void assign(String lines) {
        Map<TopicPartition, Long> wanted = parse(lines);
        consumer.assign(wanted.keySet());
        wanted.forEach((partition, offset) -> {
            if (offset != null) {
                consumer.seek(partition, offset);
            }
        });
    }

    /**
     * The next records: their number and the number of their partitions (4 bytes each); for each record the
     * index of its partition (4), offset and timestamp (8 each), length of key and of value, -1 for null (4 each), column
     * after column; all keys; all values; then as text the partitions, one a line. Numbers are big-endian.
     */
    public byte[] poll(long timeoutMs) {
        ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(timeoutMs));
        int size = polled.count();
        int[] partitions = new int[size];
        long[] offsets = new long[size];
        long[] timestamps = new long[size];
        int[] keyLengths = new int[size];
        int[] valueLengths = new int[size];
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>(size);
        StringBuilder names = new StringBuilder();
        long blob = 0;
        int index = 0;
        int number = 0;
        for (TopicPartition partition : polled.partitions()) {
            names.append(partition.topic()).append(' ').append(partition.partition()).append('\n');
            for (ConsumerRecord<byte[], byte[]> record : polled.records(partition)) {
                partitions[index] = number;
                offsets[index] = record.offset();
                timestamps[index] = record.timestamp();
                keyLengths[index] = Columns.length(record.key());
                valueLengths[index] = Columns.length(record.value());
                blob += Math.max(0, keyLengths[index]) + Math.max(0, valueLengths[index]);
                records.add(record);
                index++;
            }
            number++;
        }
        byte[] table = names.toString().getBytes(StandardCharsets.UTF_8);
        ByteBuffer buffer = ByteBuffer.allocate(Math.toIntExact(8 + size * 28L + blob + table.length));
        buffer.putInt(size).putInt(number);
        Columns.put(buffer, partitions);
        Columns.put(buffer, offsets);
        Columns.put(buffer, timestamps);
        Columns.put(buffer, keyLengths);
        Columns.put(buffer, valueLengths);
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (record.key() != null) {
                buffer.put(record.key());
            }
        }
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (record.value() != null) {
                buffer.put(record.value());
            }
        }
        return buffer.put(table).array();
    }

    /** The assigned partitions, each with the offset of the next record. */
    public String positions() {
        Map<TopicPartition, Long> found = new HashMap<>();
        for (TopicPartition partition : consumer.assignment()) {
            found.put(partition, consumer.position(partition, bound));
        }
        return lines(found);
    }

    /** The committed offsets of those partitions that have one. */
    public String committed(String lines) {
        Map<TopicPartition, Long> found = new HashMap<>();
        consumer.committed(parse(lines).keySet(), bound).forEach((partition, committed) -> {
            if (committed != null) {
                found.put(partition, committed.offset());
            }
        });
        return lines(found);
    }

    /** Commits the given offsets, or, if there are none, all positions. */
    public void commit(String lines) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        parse(lines).forEach((partition, offset) -> offsets.put(partition, new OffsetAndMetadata(offset)));
        if (offsets.isEmpty()) {
            consumer.commitSync(bound);
        } else {
            consumer.commitSync(offsets, bound);
        }
    }

    /** The first offsets of partitions. */
    public String beginnings(String lines) {
        return lines(consumer.beginningOffsets(parse(lines).keySet(), bound));
    }

    /** The offsets up to which a consumer of this isolation level may read. */
    public String ends(String lines) {
        return lines(consumer.endOffsets(parse(lines).keySet(), bound));
    }

    public void wakeup() {
        consumer.wakeup();
    }

    @SuppressWarnings("deprecation") // its replacement is not in 2.8
    public void close(long timeoutMs) {
        consumer.close(Duration.ofMillis(timeoutMs));
    }

    private static Map<TopicPartition, Long> parse(String lines) {
        Map<TopicPartition, Long> found = new LinkedHashMap<>();
        for (String line : lines.isEmpty() ? new String[0] : lines.split("\n")) {
            String[] words = line.split(" ");
            TopicPartition partition = new TopicPartition(words[0], Integer.parseInt(words[1]));
            found.put(partition, words.length > 2 ? Long.valueOf(words[2]) : null);
        }
        return found;
    }

    private static String lines(Map<TopicPartition, Long> offsets) {
        StringBuilder text = new StringBuilder();
        new TreeMap<>(named(offsets)).forEach((name, offset) -> text.append(name).append(' ').append(offset).append('\n'));
        return text.toString();
    }

    private static Map<String, Long> named(Map<TopicPartition, Long> offsets) {
        Map<String, Long> named = new HashMap<>();
        offsets.forEach((partition, offset) -> named.put(partition.topic() + " " + partition.partition(), offset));
        return named;
    }
}
