package rackgate.hooks;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.RetriableException;

/**
 * A producer for workloads: records and answers cross into Python as packed bytes, many with one call.
 *
 * <p>It uses nothing but the public classes of kafka-clients that have been there since 2.8, so that it runs on the class
 * path of a client of any release. Numbers are big-endian. Times are of System.nanoTime, which on Linux is the clock of
 * Python's time.monotonic_ns.
 */
public final class Sending implements AutoCloseable {
    private static final int MOST_ANSWERS = 2000;

    private record Answer(int token, long sentNs, long doneNs, int partition, long offset, int error) {
    }

    private final KafkaProducer<byte[], byte[]> producer;
    private final LinkedBlockingQueue<Answer> answers = new LinkedBlockingQueue<>();
    private final Map<String, Integer> errors = new LinkedHashMap<>();

    /**
     * Makes the producer.
     *
     * @param config the producer's configuration, serializers included.
     */
    public Sending(Map<String, String> config) {
        Properties properties = new Properties();
        properties.putAll(config);
        producer = new KafkaProducer<>(properties);
    }

    /**
     * Sends records in their order. Each of them gets one answer, also if the producer does not take it.
     *
     * @param packed for each record: token (int), partition (int, -1 leaves it to the producer), and topic, key and value,
     *     each as a length (int) and bytes.
     */
    public void send(byte[] packed) throws IOException {
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(packed));
        while (in.available() > 0) {
            int token = in.readInt();
            int partition = in.readInt();
            String topic = new String(bytes(in), "UTF-8");
            byte[] key = bytes(in);
            byte[] value = bytes(in);
            long sentNs = System.nanoTime();
            try {
                producer.send(new ProducerRecord<>(topic, partition < 0 ? null : partition, key, value),
                    (metadata, failure) -> answer(token, sentNs, metadata, failure));
            } catch (RuntimeException failure) {
                answer(token, sentNs, null, failure);
            }
        }
    }

    /**
     * Takes answers.
     *
     * @param waitMs how long to wait for the first one.
     * @return for each: token (int), sent and done (long nanoseconds), partition (int), offset (long), and an index into
     *     {@link #errors()} or -1 (int).
     */
    public byte[] take(long waitMs) throws InterruptedException, IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        Answer answer = answers.poll(waitMs, TimeUnit.MILLISECONDS);
        for (int taken = 0; answer != null; answer = ++taken < MOST_ANSWERS ? answers.poll() : null) {
            out.writeInt(answer.token);
            out.writeLong(answer.sentNs);
            out.writeLong(answer.doneNs);
            out.writeInt(answer.partition);
            out.writeLong(answer.offset);
            out.writeInt(answer.error);
        }
        return bytes.toByteArray();
    }

    /** All kinds of errors so far: class, {@code retriable} or {@code final}, and message, with tabs between. */
    public String[] errors() {
        synchronized (errors) {
            return errors.keySet().toArray(new String[0]);
        }
    }

    /** Fences earlier producers of the same transactional id and ends what they left open. */
    public void initTransactions() {
        producer.initTransactions();
    }

    /** Begins a transaction. */
    public void begin() {
        producer.beginTransaction();
    }

    /** Waits for all records of the transaction and commits it. */
    public void commit() {
        producer.commitTransaction();
    }

    /** Gives up all records of the transaction. */
    public void abort() {
        producer.abortTransaction();
    }

    /** Closes the producer; afterwards every record has its answer. */
    public void close(long timeoutMs) {
        producer.close(Duration.ofMillis(timeoutMs));
    }

    @Override
    public void close() {
        close(0);
    }

    private void answer(int token, long sentNs, RecordMetadata metadata, Exception failure) {
        long doneNs = System.nanoTime();
        if (failure == null) {
            answers.add(new Answer(token, sentNs, doneNs, metadata.partition(), metadata.offset(), -1));
        } else {
            answers.add(new Answer(token, sentNs, doneNs, -1, -1, number(failure)));
        }
    }

    private int number(Exception failure) {
        String kind = failure instanceof RetriableException ? "retriable" : "final";
        String message = String.valueOf(failure.getMessage()).replace('\t', ' ');
        String line = String.join("\t", List.of(failure.getClass().getName(), kind, message));
        synchronized (errors) {
            Integer known = errors.putIfAbsent(line, errors.size());
            return known != null ? known : errors.size() - 1;
        }
    }

    private static byte[] bytes(DataInputStream in) throws IOException {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }
}
