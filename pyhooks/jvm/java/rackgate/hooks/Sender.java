package rackgate.hooks;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer that takes records in batches and returns their outcomes in batches.
 *
 * <p>The producer's own thread only stores the outcome of a record in arrays, which {@link #take} returns, so that a slow
 * caller does not delay the producer. Uses only methods that clients have since 2.8.
 */
public final class Sender {

    private static final long NO_TIMESTAMP = -1;

    private final KafkaProducer<byte[], byte[]> producer;
    private final LinkedBlockingQueue<Batch> finished = new LinkedBlockingQueue<>();

    public Sender(Properties config) {
        producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /**
     * Sends records; {@link #take} returns their outcomes.
     *
     * <p>The producer waits for at most {@code max.block.ms} until it can take a record. After one such timeout the rest of
     * the batch is not tried: it fails with the same error, and was certainly not sent.
     *
     * @param ticket id of the batch.
     * @param topic name of the topic.
     * @param packed number of records (4 bytes); for each record its partition, or -1 for the partitioner's choice (4), its
     *     timestamp in milliseconds, or -1 for now (8), length of its key and of its value, -1 for null (4 each), column
     *     after column; then all keys, then all values.
     */
    public void send(long ticket, String topic, byte[] packed) {
        ByteBuffer buffer = ByteBuffer.wrap(packed);
        int size = buffer.getInt();
        int[] partitions = Columns.ints(buffer, size);
        long[] timestamps = Columns.longs(buffer, size);
        int[] keyLengths = Columns.ints(buffer, size);
        int[] valueLengths = Columns.ints(buffer, size);
        ByteBuffer values = buffer.duplicate();
        for (int length : keyLengths) {
            values.position(values.position() + Math.max(0, length));
        }
        Batch batch = new Batch(ticket, size, finished::add);
        Throwable late = null;
        for (int index = 0; index < size; index++) {
            Integer partition = partitions[index] < 0 ? null : (Integer) partitions[index];
            Long timestamp = timestamps[index] == NO_TIMESTAMP ? null : (Long) timestamps[index];
            byte[] key = Columns.bytes(buffer, keyLengths[index]);
            byte[] value = Columns.bytes(values, valueLengths[index]);
            Batch.Slot slot = batch.new Slot(index);
            if (late != null) {
                slot.end(null, late);
                continue;
            }
            Taking taking = new Taking(slot);
            try {
                producer.send(new ProducerRecord<>(topic, partition, timestamp, key, value), taking);
            } catch (RuntimeException e) {
                slot.end(null, e);
            }
            late = taking.failure instanceof TimeoutException ? taking.failure : null;
        }
        batch.close();
    }

    /** Callback of one record; keeps the exception if the record fails while the producer is still accepting it. */
    private static final class Taking implements Callback {

        private final Batch.Slot slot;
        private final Thread sender = Thread.currentThread();
        private Exception failure;

        Taking(Batch.Slot slot) {
            this.slot = slot;
        }

        @Override
        public void onCompletion(RecordMetadata metadata, Exception exception) {
            // A producer that rejects a record throws in the sending thread.
            if (Thread.currentThread() == sender) {
                failure = exception;
            }
            slot.onCompletion(metadata, exception);
        }
    }

    /**
     * Batches that have ended since the last call, as {@link Batch#packed} encodes them, one after the other.
     *
     * @param waitMs how long to wait for the first one.
     */
    public byte[] take(long waitMs) throws InterruptedException {
        List<Batch> batches = new ArrayList<>();
        Batch first = finished.poll(waitMs, TimeUnit.MILLISECONDS);
        if (first == null) {
            return new byte[0];
        }
        batches.add(first);
        finished.drainTo(batches);
        List<byte[]> parts = new ArrayList<>();
        int bytes = 0;
        for (Batch batch : batches) {
            byte[] part = batch.packed();
            parts.add(part);
            bytes += part.length;
        }
        ByteBuffer all = ByteBuffer.allocate(bytes);
        parts.forEach(all::put);
        return all.array();
    }

    /** Waits until the producer knows a topic's partitions, for at most {@code max.block.ms}. */
    public void fetchMetadata(String topic) {
        producer.partitionsFor(topic);
    }

    public void initTransactions() {
        producer.initTransactions();
    }

    public void beginTransaction() {
        producer.beginTransaction();
    }

    public void commitTransaction() {
        producer.commitTransaction();
    }

    public void abortTransaction() {
        producer.abortTransaction();
    }

    public void flush() {
        producer.flush();
    }

    /** Closes the producer; every record has completed then. */
    public void close(long timeoutMs) {
        producer.close(Duration.ofMillis(timeoutMs));
    }
}
