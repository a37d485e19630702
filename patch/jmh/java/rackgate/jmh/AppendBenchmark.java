package rackgate.jmh;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

import kafka.cluster.Partition;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * Partition.appendRecordsToLeader with acks=all, one record of 100 bytes. The log "stub" stores nothing, so that a difference
 * of a nanosecond is visible; "file" is Kafka's own log, which shows the share of a complete append.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class AppendBenchmark {

    @Param({"3", "5", "7"})
    public int isr;

    @Param({"1", "2"})
    public int racks;

    @Param({"stub", "file"})
    public String log;

    private final RequestLocal requestLocal = RequestLocal.withThreadConfinedCaching();
    private Partition partition;
    private MemoryRecords records;
    private ByteBuffer batch;
    private UnifiedLog file;
    private File folder;
    private KafkaScheduler scheduler;

    @Setup
    public void setUp() throws IOException {
        LogConfig config = Stage.config();
        UnifiedLog chosen = log.equals("file") ? open(config) : Stage.stubLog(config, 100L);
        partition = Stage.leader(0, isr, chosen, Stage.cache(isr, racks));
        Stage.followers(partition, isr, new LogOffsetMetadata(log.equals("file") ? 0L : 90L, 0L, 0), 100L);
        records = MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(new byte[100]));
        batch = records.buffer();
    }

    private UnifiedLog open(LogConfig config) throws IOException {
        folder = Files.createTempDirectory("rackgate-jmh").toFile();
        scheduler = new KafkaScheduler(1);
        scheduler.startup();
        file = UnifiedLog.create(new File(folder, Stage.TOPIC + "-0"), config, 0L, 0L, scheduler, new BrokerTopicStats(),
            Time.SYSTEM, 300_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1),
            true, Optional.of(Uuid.randomUuid()));
        return file;
    }

    /** Each iteration begins with an empty log. */
    @Setup(Level.Iteration)
    public void empty() {
        if (file != null)
            file.truncateFullyAndStartAt(0L, Optional.empty());
    }

    @TearDown
    public void tearDown() throws Exception {
        if (file != null) {
            file.close();
            scheduler.shutdown();
            Utils.delete(folder);
        }
    }

    @Benchmark
    public LogAppendInfo append(Cpu cpu) {
        // An append writes the offset into the batch, and a batch that does not start at offset 0 is rejected.
        batch.putLong(0, 0L);
        LogAppendInfo info = partition.appendRecordsToLeader(records, AppendOrigin.CLIENT, -1, requestLocal,
            VerificationGuard.SENTINEL, (short) 0);
        cpu.called();
        return info;
    }
}
