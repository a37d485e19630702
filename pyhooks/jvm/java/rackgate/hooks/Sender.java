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
 * A producer that takes records in batches and tells of their ends in batches.
 *
 * <p>The producer's own thread only notes the end of a record in arrays; whoever wants to know fetches them with
 * {@link #take}, so that a slow listener holds nothing up. It uses what clients from 2.8 on have.
 */
public final class Sender {

    private static final long NO_TIMESTAMP = -1;

    private final KafkaProducer<byte[], byte[]> producer;
    private final LinkedBlockingQueue<Batch> finished = new LinkedBlockingQueue<>();

    public Sender(Properties config) {
        producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /**
     * Sends records; {@link #take} tells of their ends.
     *
     * <p>The producer waits for at most {@code max.block.ms} until it can take a record. Once that was not enough, the
     * rest of the batch is not tried: it ends with the same error, and was surely not sent.
     *
     * @param ticket names the batch.
     * @param topic where to.
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

    /** Tells whether a record ended while the producer was still about to take it. */
    private static final class Taking implements Callback {

        private final Batch.Slot slot;
        private final Thread sender = Thread.currentThread();
        private Exception failure;

        Taking(Batch.Slot slot) {
            this.slot = slot;
        }

        @Override
        public void onCompletion(RecordMetadata metadata, Exception exception) {
            // What a producer refuses to take it tells in the thread that sends.
            if (Thread.currentThread() == sender) {
                failure = exception;
            }
            slot.onCompletion(metadata, exception);
        }
    }

    /**
     * Batches that have ended since the last call, as {@link Batch#packed} has them, one after the other.
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
    public void learn(String topic) {
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

    /** Closes the producer; every record that was sent has ended then. */
    public void close(long timeoutMs) {
        producer.close(Duration.ofMillis(timeoutMs));
    }
}
