package rackgate.jmh;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

import org.openjdk.jmh.annotations.AuxCounters;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * The least CPU time that the measuring thread took for a slice of an iteration, about a millisecond. On a machine that others
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

    /** 0 if an iteration had no whole slice: JMH sets it to that after start(). */
    public long fastestSliceNs;

    private int left;
    private long before;

    @Setup(Level.Iteration)
    public void start() {
        Turn.await();
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
        if (fastestSliceNs == 0 || now - before < fastestSliceNs)
            fastestSliceNs = now - before;
        left = CALLS_IN_SLICE;
        before = now;
    }

    @TearDown(Level.Trial)
    public void leave() {
        Turn.leave();
    }
}
