package rackgate.jmh;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;

import org.openjdk.jmh.annotations.AuxCounters;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * The least and the median CPU time that the measuring thread took for a slice of an iteration, about a millisecond. On a machine that others
 * use too, the clock on the wall tells mostly of them; and now and then each call takes half as long again, of CPU time too, as if
 * the other thread of the same core were busy. That comes and goes within an iteration, but few milliseconds are touched by it
 * only in part.
 * An iteration runs when it is this JVM's turn, see {@link Turn}.
 */
@State(Scope.Thread)
@AuxCounters(AuxCounters.Type.EVENTS)
public class Cpu {

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final int CALLS_IN_SLICE = Integer.getInteger("rackgate.slice.calls");
    // more than there are in a second
    private static final int MOST_SLICES = 8192;

    /** 0 if an iteration had no whole slice: JMH sets it to that after start(). */
    public long fastestSliceNs;

    private final long[] slices = new long[MOST_SLICES];
    private int count;
    private int left;
    private long before;

    @Setup(Level.Iteration)
    public void start() {
        Turn.await();
        count = 0;
        left = CALLS_IN_SLICE;
        before = THREADS.getCurrentThreadCpuTime();
    }

    /** To be called at the end of each call of a benchmark: the first slice begins with the iteration. */
    void called() {
        if (--left == 0)
            endSlice();
    }

    private void endSlice() {
        long now = THREADS.getCurrentThreadCpuTime();
        if (count < MOST_SLICES)
            slices[count++] = now - before;
        if (fastestSliceNs == 0 || now - before < fastestSliceNs)
            fastestSliceNs = now - before;
        left = CALLS_IN_SLICE;
        before = now;
    }

    /** JMH reads it once, after the iteration; the upper one of two medians, and 0 if there was no whole slice. */
    public long medianSliceNs() {
        if (count == 0)
            return 0;
        long[] sorted = Arrays.copyOf(slices, count);
        Arrays.sort(sorted);
        return sorted[count / 2];
    }

    @TearDown(Level.Trial)
    public void leave() {
        Turn.leave();
    }
}
