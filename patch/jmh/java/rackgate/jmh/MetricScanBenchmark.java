package rackgate.jmh;

import java.io.File;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.TimeUnit;

import com.yammer.metrics.core.Gauge;
import com.yammer.metrics.core.Metric;
import com.yammer.metrics.core.MetricName;

import kafka.log.LogManager;
import kafka.server.KafkaConfig;
import kafka.server.QuotaFactory;
import kafka.server.ReplicaManager;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.ActionQueue;
import org.apache.kafka.server.DelayedActionQueue;
import org.apache.kafka.server.common.DirectoryEventHandler;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

import scala.Option;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One reading of a broker's gauge that counts partitions, over 10,000 partitions that it leads. Time and bytes are per
 * partition.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class MetricScanBenchmark {

    private static final int PARTITIONS = 10_000;
    private static final int REPLICAS = 3;
    // bytes
    private static final int LINE = 64;

    @Param({"1", "2"})
    public int racks;

    @Param({"UnderMinIsrPartitionCount"})
    public String gauge;

    private final Metrics metrics = new Metrics();
    private QuotaFactory.QuotaManagers quotas;
    private ReplicaManager manager;
    private Gauge<?> read;
    // referenced, because a collection would close them
    private final byte[][] gaps = new byte[PARTITIONS][];

    @Setup
    public void setUp() {
        MetadataCache cache = Stage.cache(REPLICAS, racks);
        LogConfig config = Stage.config();
        manager = manager(cache);
        Random random = new Random(1);
        for (int i = 0; i < PARTITIONS; i++) {
            // Partitions of one size all have the same alignment to cache lines. The alignments of two sizes differ by more than
            // the measured difference.
            gaps[i] = new byte[random.nextInt(LINE)];
            // One log for each partition, as on a broker, because distance in memory matters.
            manager.addOnlinePartition(new TopicPartition(Stage.TOPIC, i),
                Stage.leader(i, REPLICAS, Stage.stubLog(config, 100L), cache));
        }
        read = find(gauge);
        Object value = find("LeaderCount").value();
        if (!value.equals(PARTITIONS))
            throw new IllegalStateException("leads " + value + " partitions");
        // A copying collector would move the gaps away from between the partitions.
        if (collections() != 0)
            throw new IllegalStateException("the young generation is too small for " + PARTITIONS + " partitions");
        // The next collection would move the partitions, in one fork before a measurement, in another within it, and their
        // locations dominate the time of a scan. This collection keeps their order.
        System.gc();
    }

    private static long collections() {
        return ManagementFactory.getGarbageCollectorMXBeans().stream()
            .mapToLong(GarbageCollectorMXBean::getCollectionCount)
            .sum();
    }

    private static Gauge<?> find(String name) {
        for (var entry : KafkaYammerMetrics.defaultRegistry().allMetrics().entrySet()) {
            MetricName key = entry.getKey();
            Metric metric = entry.getValue();
            if (key.getType().equals("ReplicaManager") && key.getName().equals(name) && metric instanceof Gauge<?> found)
                return found;
        }
        throw new IllegalStateException("no gauge " + name);
    }

    private ReplicaManager manager(MetadataCache cache) {
        Properties properties = new Properties();
        properties.put("process.roles", "broker");
        properties.put("node.id", Integer.toString(Stage.LEADER));
        properties.put("broker.rack", "a");
        properties.put("listeners", "PLAINTEXT://127.0.0.1:0");
        properties.put("advertised.listeners", "PLAINTEXT://127.0.0.1:9092");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("controller.quorum.voters", "1@127.0.0.1:9093");
        properties.put("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT");
        KafkaConfig config = KafkaConfig.fromProps(properties);
        quotas = QuotaFactory.instantiate(config, metrics, Time.SYSTEM, "", "broker");
        ActionQueue actions = new DelayedActionQueue();
        return new ReplicaManager(config, metrics, Time.SYSTEM, new KafkaScheduler(1), Stage.unconstructed(NoLogs.class),
            Option.empty(), quotas, cache,
            new LogDirFailureChannel(1), new Stage.NoController(), new BrokerTopicStats(), Option.empty(), Option.empty(),
            Option.empty(), Option.empty(), Option.empty(), Option.empty(), () -> 1000L, Option.empty(),
            DirectoryEventHandler.NOOP, actions);
    }

    /** A log manager without folders, because no partition here has files. */
    private static final class NoLogs extends LogManager {
        private NoLogs() {
            super(null, null, null, null, null, 0, 0L, 0L, 0L, 0L, 0, null, 0, null, null, null, null, false, 0L, null);
        }

        @Override
        public Seq<File> liveLogDirs() {
            return CollectionConverters.asScala(java.util.List.<File>of());
        }
    }

    /** Ends its threads; otherwise the JVM would wait for them. */
    @TearDown
    public void tearDown() {
        manager.shutdown(false);
        quotas.shutdown();
        metrics.close();
    }

    @Benchmark
    @OperationsPerInvocation(PARTITIONS)
    public Object scan(Cpu cpu) {
        Object value = read.value();
        cpu.called();
        return value;
    }
}
