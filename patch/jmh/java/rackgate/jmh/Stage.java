package rackgate.jmh;

import java.io.IOException;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Properties;

import kafka.cluster.DelayedOperations;
import kafka.cluster.Partition;
import kafka.server.AlterPartitionManager;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.partition.AlterPartitionListener;
import org.apache.kafka.server.replica.Replica;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;

import scala.Option;
import scala.collection.immutable.Set;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import sun.misc.Unsafe;

/**
 * A leader with its followers, made of Kafka's own classes: partition, replicas and metadata cache are real, the log is a
 * parameter. Compiled once against the published jars, and run on these and with the overlay before them.
 */
final class Stage {

    static final int LEADER = 101;
    static final String TOPIC = "bench";
    private static final boolean OVERLAY = Boolean.getBoolean("rackgate.overlay");
    private static final String REPLICAS_CONFIG = "min.insync.replicas";
    private static final String RACKS_CONFIG = "min.insync.racks";
    private static final String MIN_REPLICAS = "2";
    private static final String[] RACKS = {"a", "b", "c"};
    private static final long LAG_MAX_MS = 3_600_000L;

    private Stage() {
    }

    /** The configuration of a topic, with min.insync.replicas; only the min.insync.racks of the metadata counts. */
    static LogConfig config() {
        Properties properties = new Properties();
        properties.put(REPLICAS_CONFIG, MIN_REPLICAS);
        LogConfig config = new LogConfig(properties);
        if (LogConfig.configNames().contains(RACKS_CONFIG) != OVERLAY)
            throw new IllegalStateException("the class path is not the one that was asked for");
        return config;
    }

    /**
     * A metadata cache with as many brokers as replicas, in racks a, b, c in turn. The topic requires {@code racks} racks,
     * and the features that enforce them are enabled. The published Kafka ignores both.
     */
    static MetadataCache cache(int replicas, int racks) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        for (int i = 0; i < replicas; i++) {
            delta.replay(new RegisterBrokerRecord()
                .setBrokerId(LEADER + i)
                .setBrokerEpoch(1000L + i)
                .setFenced(false)
                .setRack(RACKS[i % RACKS.length]));
        }
        for (String feature : List.of("eligible.leader.replicas.version", "min.insync.racks.version"))
            delta.replay(new FeatureLevelRecord().setName(feature).setFeatureLevel((short) 1));
        configure(delta, REPLICAS_CONFIG, MIN_REPLICAS);
        configure(delta, RACKS_CONFIG, Integer.toString(racks));
        KRaftMetadataCache cache = new KRaftMetadataCache(LEADER, () -> KRaftVersion.LATEST_PRODUCTION);
        cache.setImage(delta.apply(MetadataProvenance.EMPTY));
        if (OVERLAY && requiredRacks(cache) != racks)
            throw new IllegalStateException("the metadata require " + requiredRacks(cache) + " racks");
        return cache;
    }

    private static void configure(MetadataDelta delta, String name, String value) {
        delta.replay(new ConfigRecord()
            .setResourceType(ConfigResource.Type.TOPIC.id())
            .setResourceName(TOPIC)
            .setName(name)
            .setValue(value));
    }

    // The method is not in the published jars, against which this is compiled.
    private static int requiredRacks(MetadataCache cache) {
        try {
            return (Integer) MetadataCache.class.getMethod("minInSyncRacks", String.class).invoke(cache, TOPIC);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** A partition that leads, with all replicas in sync. */
    static Partition leader(int number, int replicas, UnifiedLog log, MetadataCache cache) {
        TopicPartition topicPartition = new TopicPartition(TOPIC, number);
        Partition partition = new Partition(topicPartition, LAG_MAX_MS, LEADER, () -> 1000L, Time.SYSTEM, new Silent(),
            new NothingDelayed(topicPartition), cache, null, new NoController(), Option.empty());
        List<Object> ids = new ArrayList<>();
        for (int i = 0; i < replicas; i++)
            ids.add(LEADER + i);
        Seq<Object> none = CollectionConverters.asScala(List.<Object>of()).toSeq();
        Seq<Object> all = CollectionConverters.asScala(ids).toSeq();
        Set<Object> inSync = all.toSet();
        partition.updateAssignmentAndIsr(all, true, inSync, none, none, LeaderRecoveryState.RECOVERED);
        partition.log_$eq(Option.apply(log));
        partition.leaderReplicaIdOpt_$eq(Option.apply((Object) LEADER));
        try {
            // Otherwise a real log would reject the records. Only an election sets it, which needs a log manager.
            Field epoch = Partition.class.getDeclaredField("leaderEpoch");
            epoch.setAccessible(true);
            epoch.setInt(partition, 1);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
        return partition;
    }

    /** The followers of a partition, all at the given offset. */
    static Replica[] followers(Partition partition, int replicas, LogOffsetMetadata at, long leaderEnd) {
        Replica[] followers = new Replica[replicas - 1];
        for (int i = 0; i < followers.length; i++) {
            followers[i] = partition.getReplica(LEADER + 1 + i).get();
            partition.updateFollowerFetchState(followers[i], at, 0L, Time.SYSTEM.milliseconds(), leaderEnd, 1001L + i);
        }
        return followers;
    }

    /** A log that stores nothing, so that an append consists of the work of the partition. */
    static StubLog stubLog(LogConfig config, long end) {
        StubLog log = unconstructed(StubLog.class);
        log.config = config;
        log.end = new LogOffsetMetadata(end, 0L, 0);
        log.highWatermark = new LogOffsetMetadata(0L, 0L, 0);
        log.info = LogAppendInfo.UNKNOWN_LOG_APPEND_INFO;
        return log;
    }

    /** An object whose constructor, which opens files, did not run. */
    static <T> T unconstructed(Class<T> type) {
        try {
            Field field = Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return type.cast(((Unsafe) field.get(null)).allocateInstance(type));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static final class StubLog extends UnifiedLog {
        private LogConfig config;
        private LogOffsetMetadata end;
        private LogOffsetMetadata highWatermark;
        private LogAppendInfo info;

        private StubLog() throws IOException {
            super(0L, null, null, 0, null, null, Optional.empty(), false, null);
        }

        @Override
        public LogConfig config() {
            return config;
        }

        @Override
        public LogAppendInfo appendAsLeader(MemoryRecords records, int leaderEpoch, AppendOrigin origin,
                                            RequestLocal requestLocal, VerificationGuard guard, short version) {
            return info;
        }

        @Override
        public LogOffsetMetadata logEndOffsetMetadata() {
            return end;
        }

        @Override
        public Optional<LogOffsetMetadata> maybeIncrementHighWatermark(LogOffsetMetadata candidate) {
            if (candidate.messageOffset <= highWatermark.messageOffset)
                return Optional.empty();
            LogOffsetMetadata old = highWatermark;
            highWatermark = candidate;
            return Optional.of(old);
        }

        long highWatermarkOffset() {
            return highWatermark.messageOffset;
        }
    }

    private static final class NothingDelayed extends DelayedOperations {
        NothingDelayed(TopicPartition topicPartition) {
            super(Option.empty(), topicPartition, null, null, null, null);
        }

        @Override
        public void checkAndCompleteAll() {
            // no request waits
        }

        @Override
        public int numDelayedDelete() {
            return 0;
        }
    }

    private static final class Silent implements AlterPartitionListener {
        @Override
        public void markIsrExpand() {
            throw new IllegalStateException("the ISR changed");
        }

        @Override
        public void markIsrShrink() {
            throw new IllegalStateException("the ISR changed");
        }

        @Override
        public void markFailed() {
            throw new IllegalStateException("the ISR changed");
        }
    }

    static final class NoController implements AlterPartitionManager {
        @Override
        public java.util.concurrent.CompletableFuture<org.apache.kafka.metadata.LeaderAndIsr> submit(
                org.apache.kafka.server.common.TopicIdPartition partition, org.apache.kafka.metadata.LeaderAndIsr isr) {
            throw new IllegalStateException("the ISR changed");
        }

        @Override
        public void start() {
            // there is none
        }

        @Override
        public void shutdown() {
            // there is none
        }
    }
}
