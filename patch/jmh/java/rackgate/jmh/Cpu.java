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
 * The CPU time that the measuring thread took in an iteration, and the calls that it made in it. On a machine that others use
 * too, the clock on the wall tells mostly of them. An iteration runs when it is this JVM's turn, see {@link Turn}.
 */
@State(Scope.Thread)
@AuxCounters(AuxCounters.Type.EVENTS)
public class Cpu {

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    public long calls;
    public long cpuNs;

    private long before;

    @Setup(Level.Iteration)
    public void start() {
        Turn.await();
        calls = 0;
        cpuNs = 0;
        before = THREADS.getCurrentThreadCpuTime();
    }

    @TearDown(Level.Iteration)
    public void stop() {
        cpuNs = THREADS.getCurrentThreadCpuTime() - before;
    }

    @TearDown(Level.Trial)
    public void leave() {
        Turn.leave();
    }
}
