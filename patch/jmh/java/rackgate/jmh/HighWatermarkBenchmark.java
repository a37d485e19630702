package rackgate.jmh;

import java.util.concurrent.TimeUnit;

import kafka.cluster.Partition;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.replica.Replica;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * Partition.updateFollowerFetchState: followers fetch in turn, each from the next offset, so that every call evaluates the high
 * watermark and the last call of a round advances it.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class HighWatermarkBenchmark {

    private static final long END = Long.MAX_VALUE / 2;

    @Param({"3", "5", "7"})
    public int isr;

    @Param({"1", "2"})
    public int racks;

    private Stage.StubLog log;
    private Partition partition;
    private Replica[] followers;
    private long nowMs;
    private long offset;
    private int next;

    @Setup
    public void setUp() {
        log = Stage.stubLog(Stage.config(), END);
        partition = Stage.leader(0, isr, log, Stage.cache(isr, racks));
        followers = Stage.followers(partition, isr, new LogOffsetMetadata(0L, 0L, 0), END);
        nowMs = Time.SYSTEM.milliseconds();
        offset = 1L;
    }

    @Benchmark
    public void update(Cpu cpu) {
        partition.updateFollowerFetchState(followers[next], new LogOffsetMetadata(offset, 0L, 0), 0L, nowMs, END, 1001L + next);
        if (++next == followers.length) {
            next = 0;
            offset++;
        }
        cpu.called();
    }

    /** Proves that the measured calls advanced the high watermark. */
    @TearDown
    public void tearDown() {
        if (offset < 1000L || log.highWatermarkOffset() < offset - 1)
            throw new IllegalStateException("high watermark " + log.highWatermarkOffset() + " after offset " + offset);
    }
}
