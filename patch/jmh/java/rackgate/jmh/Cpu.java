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
 * Minimum and median CPU time of the measuring thread in slices of an iteration, each about a millisecond. On a shared machine,
 * wall-clock time mostly depends on other processes. At times CPU time is half as long again, too, as if the other thread of the
 * core were busy. That changes within an iteration, but affects most slices either completely or not at all.
 * An iteration runs when it is this JVM's turn, see {@link Turn}.
 */
@State(Scope.Thread)
@AuxCounters(AuxCounters.Type.EVENTS)
public class Cpu {

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final int CALLS_IN_SLICE = Integer.getInteger("rackgate.slice.calls");
    // more than the slices of a second
    private static final int MOST_SLICES = 8192;

    /** 0 if an iteration had no complete slice; JMH resets it after start(). */
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

    /** Called at the end of each call of a benchmark; the first slice begins with the iteration. */
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

    /** Read by JMH once, after the iteration: the upper of two medians, or 0 if there was no complete slice. */
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
