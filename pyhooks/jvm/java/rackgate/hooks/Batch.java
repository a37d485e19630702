package rackgate.hooks;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.RecordMetadata;

/** Records that were sent with one call, and the outcome of each. */
final class Batch {

    private final long ticket;
    private final Consumer<Batch> whenDone;
    private final int[] partitions;
    private final long[] offsets;
    private final long[] sentNs;
    private final long[] doneNs;
    private final int[] errors;
    private final List<Throwable> kinds = new ArrayList<>();
    private final Map<List<String>, Integer> known = new HashMap<>();
    private final AtomicInteger open;

    /**
     * @param ticket id of the batch, chosen by the sender.
     * @param size number of records.
     * @param whenDone called once, with this batch, by the thread that completes the last record.
     */
    Batch(long ticket, int size, Consumer<Batch> whenDone) {
        this.ticket = ticket;
        this.whenDone = whenDone;
        partitions = new int[size];
        offsets = new long[size];
        sentNs = new long[size];
        doneNs = new long[size];
        errors = new int[size];
        Arrays.fill(partitions, -1);
        Arrays.fill(offsets, -1);
        Arrays.fill(errors, -1);
        // One more than records, so that the batch cannot complete before all of them were handed over.
        open = new AtomicInteger(size + 1);
    }

    /** Records the outcome of one record; a second outcome of the same record is ignored. */
    final class Slot extends AtomicBoolean implements Callback {

        private static final long serialVersionUID = 1;

        private final int index;

        Slot(int index) {
            this.index = index;
            sentNs[index] = System.nanoTime();
        }

        @Override
        public void onCompletion(RecordMetadata metadata, Exception exception) {
            end(metadata, exception);
        }

        void end(RecordMetadata metadata, Throwable failure) {
            if (!compareAndSet(false, true)) {
                return;
            }
            doneNs[index] = System.nanoTime();
            if (failure != null) {
                errors[index] = kind(Failures.inner(failure));
            } else if (metadata.hasOffset()) {
                offsets[index] = metadata.offset();
            }
            if (metadata != null) {
                partitions[index] = metadata.partition();
            }
            close();
        }
    }

    /** Count one completed record; the sender itself makes the last call. */
    void close() {
        if (open.decrementAndGet() == 0) {
            whenDone.accept(this);
        }
    }

    private int kind(Throwable failure) {
        List<String> key = Arrays.asList(failure.getClass().getName(), failure.getMessage());
        synchronized (known) {
            return known.computeIfAbsent(key, unknown -> {
                kinds.add(failure);
                return kinds.size() - 1;
            });
        }
    }

    /**
     * The batch as bytes: ticket (8 bytes), number of records and of errors (4 each); for each record partition (4),
     * offset, nanoseconds of sending and of completion (8 each), index of its error or -1 (4), column after column; for each
     * error two texts, each preceded by its length (4). Numbers are big-endian.
     */
    byte[] packed() {
        int size = partitions.length;
        List<byte[]> texts = new ArrayList<>();
        int bytes = 16 + size * (4 + 8 + 8 + 8 + 4);
        for (Throwable kind : kinds) {
            for (byte[] text : List.of(Failures.classes(kind), Failures.message(kind))) {
                texts.add(text);
                bytes += 4 + text.length;
            }
        }
        ByteBuffer buffer = ByteBuffer.allocate(bytes);
        buffer.putLong(ticket).putInt(size).putInt(kinds.size());
        Columns.put(buffer, partitions);
        Columns.put(buffer, offsets);
        Columns.put(buffer, sentNs);
        Columns.put(buffer, doneNs);
        Columns.put(buffer, errors);
        for (byte[] text : texts) {
            buffer.putInt(text.length).put(text);
        }
        return buffer.array();
    }
}
