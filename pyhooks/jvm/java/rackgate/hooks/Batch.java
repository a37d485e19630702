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

/** Records that were sent with one call, and what became of each. */
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
     * @param ticket names it for who sent it.
     * @param size how many records.
     * @param whenDone called once, with this, when the last record has ended; by the thread that ended it.
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
        // One more than records: it is not done before all of them were handed over.
        open = new AtomicInteger(size + 1);
    }

    /** The end of one record; who tells of a second one is not heard. */
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

    /** One record less is open; the last call is the sender's own. */
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
     * Everything about it: ticket (8 bytes), number of records and of errors (4 each); for each record partition (4),
     * offset, nanoseconds of sending and of the end (8 each), index of its error or -1 (4), column after column; for each
     * error two texts, each after its length (4). Numbers are big-endian.
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
