package org.apache.kafka.controller;

import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData.ReassignablePartition;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData.ReassignableTopic;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.CreatePartitionsRequestData.CreatePartitionsTopic;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableReplicaAssignment;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopic;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopicConfig;
import org.apache.kafka.common.message.ElectLeadersRequestData;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.MockTime;
import org.apache.kafka.metadata.BrokerHeartbeatReply;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.RecordTestUtils;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.EligibleLeaderReplicasVersion;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

import kafka.server.KafkaRaftServer;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * Runs scripts of events through the managers of a controller and writes the records that come out of them.
 *
 * The same source runs on the published classes and on the patched ones: it is compiled against the published ones and names
 * nothing that they lack. What happens next is drawn from a seed and from the state that the records have led to, so two
 * controllers get the same events as long as they write the same records.
 *
 * Arguments: the file to write, the level of min.insync.racks.version (-: there is no such feature), the level of
 * eligible.leader.replicas.version to begin with, min.insync.racks of all topics (1: it is not set), the first seed, the
 * number of seeds, the number of steps for each, of which some are several events.
 *
 * The file has lines "event SEED NUMBER NAME" and, after each, a line "record HEX TEXT" for each record or a line
 * "rejected EXCEPTION", and in the end a line "end". Words are separated by tabs.
 */
public final class ControllerScript {
    private static final String RACKS = "min.insync.racks";
    private static final String RACKS_FEATURE = "min.insync.racks.version";
    private static final String ELR_FEATURE = EligibleLeaderReplicasVersion.FEATURE_NAME;
    private static final String REPLICAS = "min.insync.replicas";
    private static final String UNCLEAN = "unclean.leader.election.enable";
    private static final String[] RACK_OF = {"a", "a", "b", "b", "c", ""};
    private static final long SESSION_MS = 9_000;

    private final PrintWriter out;
    private final long seed;
    private final int racks;
    private final Random random;
    private final MockTime time = new MockTime(0, 1_000_000, 0);
    private final FeatureControlManager features;
    private final ClusterControlManager cluster;
    private final ConfigurationControlManager configs;
    private final ReplicationControlManager replication;
    private final TreeSet<Integer> running = new TreeSet<>();
    private final TreeMap<Integer, Long> cleanEpochs = new TreeMap<>();
    private final TreeMap<String, Uuid> topics = new TreeMap<>();
    private int number = 0;
    private long epochs = 100;
    private long ids = 0;

    private ControllerScript(PrintWriter out, long seed, int racks) {
        this.out = out;
        this.seed = seed;
        this.racks = racks;
        this.random = new Random(seed);
        SnapshotRegistry snapshots = new SnapshotRegistry(new LogContext());
        this.features = new FeatureControlManager.Builder().
            setSnapshotRegistry(snapshots).
            setQuorumFeatures(new QuorumFeatures(0, QuorumFeatures.defaultSupportedFeatureMap(false), List.of(0))).
            build();
        this.cluster = new ClusterControlManager.Builder().
            setSnapshotRegistry(snapshots).
            setClusterId("script").
            setTime(time).
            setSessionTimeoutNs(SESSION_MS * 1_000_000).
            setReplicaPlacer(new StripedReplicaPlacer(new Random(seed))).
            setFeatureControlManager(features).
            setBrokerShutdownHandler((id, clean, records) -> replicationControl().handleBrokerShutdown(id, clean, records)).
            build();
        this.configs = new ConfigurationControlManager.Builder().
            setSnapshotRegistry(snapshots).
            setFeatureControl(features).
            setKafkaConfigSchema(KafkaRaftServer.configSchema()).
            build();
        this.replication = new ReplicationControlManager.Builder().
            setSnapshotRegistry(snapshots).
            setConfigurationControl(configs).
            setClusterControl(cluster).
            setFeatureControl(features).
            build();
    }

    public static void main(String[] args) throws IOException {
        short racksLevel = args[1].equals("-") ? 0 : Short.parseShort(args[1]);
        short elrLevel = Short.parseShort(args[2]);
        int racks = Integer.parseInt(args[3]);
        long first = Long.parseLong(args[4]);
        try (BufferedWriter file = Files.newBufferedWriter(Path.of(args[0])); PrintWriter out = new PrintWriter(file)) {
            for (long seed = first; seed < first + Integer.parseInt(args[5]); seed++) {
                new ControllerScript(out, seed, racks).run(racksLevel, elrLevel, Integer.parseInt(args[6]));
            }
            out.println("end");
        }
    }

    private ReplicationControlManager replicationControl() {
        return replication;
    }

    private void run(short racksLevel, short elrLevel, int steps) {
        event("bootstrap");
        bootstrap(racksLevel, elrLevel);
        cluster.activate();
        for (int broker = 0; broker < RACK_OF.length; broker++) {
            register(broker, false);
            unfence(broker);
        }
        createTopic();
        for (int i = 0; i < steps; i++) {
            step();
        }
    }

    private void bootstrap(short racksLevel, short elrLevel) {
        MetadataVersion version = MetadataVersion.latestProduction();
        // As the storage tool: all features of this build at their defaults
        Map<String, Short> levels = new TreeMap<>();
        Feature.PRODUCTION_FEATURES.forEach(feature -> levels.put(feature.featureName(), feature.defaultLevel(version)));
        levels.put(ELR_FEATURE, elrLevel);
        if (levels.containsKey(RACKS_FEATURE)) levels.put(RACKS_FEATURE, racksLevel);
        BootstrapMetadata metadata = BootstrapMetadata.fromVersions(version, levels, "script");
        apply(ActivationRecordsGenerator.generate(__ -> { }, -1L, metadata, Optional.empty(),
            configs.getStaticallyConfiguredMinInsyncReplicas()).records());
    }

    private void step() {
        time.sleep(10);
        int kind = random.nextInt(100);
        if (kind < 5) createTopic();
        else if (kind < 7) deleteTopic();
        else if (kind < 9) createPartitions();
        else if (kind < 19) expire(1 + random.nextInt(2));
        else if (kind < 26) shutdown();
        else if (kind < 50) restart();
        else if (kind < 72) alterPartition();
        else if (kind < 79) reassign();
        else if (kind < 84) elect(ElectionType.PREFERRED);
        else if (kind < 87) elect(ElectionType.UNCLEAN);
        else if (kind < 89) attempt("balance", replication::maybeBalancePartitionLeaders);
        else if (kind < 91) attempt("elect unclean where enabled", replication::maybeElectUncleanLeaders);
        else if (kind < 97) alterConfig();
        else if (kind < 99) toggleElr();
        else alterClusterConfig();
    }

    // -- brokers ---------------------------------------------------------------------------------------------------

    private void register(int broker, boolean clean) {
        BrokerRegistrationRequestData request = new BrokerRegistrationRequestData().
            setBrokerId(broker).
            setClusterId("script").
            setIncarnationId(newId()).
            setRack(RACK_OF[broker].isEmpty() ? null : RACK_OF[broker]).
            setPreviousBrokerEpoch(clean ? cleanEpochs.getOrDefault(broker, -1L) : -1L).
            setLogDirs(List.of(new Uuid(77, broker + 1)));
        request.listeners().add(new BrokerRegistrationRequestData.Listener().
            setName("PLAINTEXT").setHost("localhost").setPort(9092 + broker).setSecurityProtocol((short) 0));
        // The same request everywhere, also where the controller does not know the last one
        addFeature(request, MetadataVersion.FEATURE_NAME, MetadataVersion.MINIMUM_VERSION.featureLevel(),
            MetadataVersion.latestProduction().featureLevel());
        for (String name : List.of("transaction.version", "group.version", ELR_FEATURE, "share.version", "streams.version", RACKS_FEATURE)) {
            addFeature(request, name, (short) 0, (short) 9);
        }
        boolean done = attempt("register " + broker + (clean ? " after a clean shutdown" : ""), () ->
            cluster.registerBroker(request, epochs++, features.finalizedFeatures(Long.MAX_VALUE), true));
        if (done) running.add(broker);
    }

    private static void addFeature(BrokerRegistrationRequestData request, String name, short from, short to) {
        request.features().add(new BrokerRegistrationRequestData.Feature().
            setName(name).setMinSupportedVersion(from).setMaxSupportedVersion(to));
    }

    private boolean heartbeat(int broker, boolean wantShutDown) {
        long epoch = cluster.brokerRegistrations().get(broker).epoch();
        boolean[] over = {false};
        attempt((wantShutDown ? "shut down " : "heartbeat ") + broker, () -> {
            cluster.trackBrokerHeartbeat(broker, epoch);
            ControllerResult<BrokerHeartbeatReply> result = replication.processBrokerHeartbeat(
                new BrokerHeartbeatRequestData().setBrokerId(broker).setBrokerEpoch(epoch).
                    setCurrentMetadataOffset(1_000_000).setWantShutDown(wantShutDown), 0);
            over[0] = result.response().shouldShutDown();
            return result;
        });
        return over[0];
    }

    private void unfence(int broker) {
        heartbeat(broker, false);
    }

    /** The sessions of brokers end, as when they are killed or cut off. */
    private void expire(int count) {
        List<Integer> chosen = some(running, count);
        chosen.forEach(broker -> {
            running.remove(broker);
            cleanEpochs.remove(broker);
        });
        fenceSilent();
    }

    private void fenceSilent() {
        time.sleep(SESSION_MS / 2);
        running.forEach(broker -> heartbeat(broker, false));
        time.sleep(SESSION_MS / 2 + 1);
        boolean[] more = {true};
        while (more[0]) {
            attempt("fence", () -> {
                ControllerResult<Boolean> result = replication.maybeFenceOneStaleBroker();
                more[0] = result.response();
                return result;
            });
        }
        running.forEach(broker -> heartbeat(broker, false));
    }

    private void shutdown() {
        for (int broker : some(running, 1)) {
            long epoch = cluster.brokerRegistrations().get(broker).epoch();
            for (int turn = 0; turn < 4 && !heartbeat(broker, true); turn++) {
                running.stream().filter(other -> other != broker).forEach(other -> heartbeat(other, false));
            }
            running.remove(broker);
            cleanEpochs.put(broker, epoch);
            fenceSilent();
        }
    }

    private void restart() {
        Set<Integer> away = new TreeSet<>();
        for (int broker = 0; broker < RACK_OF.length; broker++) {
            if (!running.contains(broker)) away.add(broker);
        }
        for (int broker : some(away, 3)) {
            register(broker, cleanEpochs.containsKey(broker));
            if (running.contains(broker)) unfence(broker);
        }
    }

    // -- topics ----------------------------------------------------------------------------------------------------

    private void createTopic() {
        String name = "topic-" + ids;
        CreatableTopic topic = new CreatableTopic().setName(name);
        if (random.nextInt(4) == 0) {
            topic.setNumPartitions(1 + random.nextInt(3)).setReplicationFactor((short) (1 + random.nextInt(3)));
        } else {
            topic.setNumPartitions(-1).setReplicationFactor((short) -1);
            int size = 2 + random.nextInt(3);
            for (int partition = 0; partition < 2; partition++) {
                topic.assignments().add(new CreatableReplicaAssignment().
                    setPartitionIndex(partition).setBrokerIds(replicas(size)));
            }
        }
        if (random.nextBoolean()) {
            topic.configs().add(new CreatableTopicConfig().setName(REPLICAS).setValue("" + (1 + random.nextInt(3))));
        }
        CreateTopicsRequestData request = new CreateTopicsRequestData();
        request.topics().add(topic);
        Uuid id = newId();
        boolean done = attempt("create " + name, () -> renamed(id, ControllerCalls.createTopics(
            replication, ControllerRequestContextUtil.anonymousContextFor(ApiKeys.CREATE_TOPICS), request, Set.of(name))));
        if (done && replication.getTopic(id) != null) {
            topics.put(name, id);
            if (racks > 1) {
                // Not an event of its own, so that the events that follow keep their numbers
                apply(ControllerCalls.alterConfigs(configs, Map.of(new ConfigResource(ConfigResource.Type.TOPIC, name),
                    Map.of(RACKS, Map.entry(OpType.SET, "" + racks)))).records());
            }
        }
    }

    /** The controller draws a topic's id at random; the same is put in its place everywhere. */
    private static <T> ControllerResult<T> renamed(Uuid id, ControllerResult<T> result) {
        for (ApiMessageAndVersion record : result.records()) {
            if (record.message() instanceof TopicRecord topic) topic.setTopicId(id);
            if (record.message() instanceof PartitionRecord partition) partition.setTopicId(id);
        }
        return result;
    }

    private void deleteTopic() {
        for (String name : some(topics.keySet(), 1)) {
            Uuid id = topics.remove(name);
            attempt("delete " + name, () -> replication.deleteTopics(
                ControllerRequestContextUtil.anonymousContextFor(ApiKeys.DELETE_TOPICS), Set.of(id)));
        }
    }

    private void createPartitions() {
        for (String name : some(topics.keySet(), 1)) {
            int count = replication.getTopic(topics.get(name)).numPartitions(Long.MAX_VALUE) + 1;
            attempt("add a partition to " + name, () -> replication.createPartitions(
                ControllerRequestContextUtil.anonymousContextFor(ApiKeys.CREATE_PARTITIONS),
                List.of(new CreatePartitionsTopic().setName(name).setCount(count).setAssignments(null))));
        }
    }

    /** A leader reports an ISR: one member less, or one replica more. */
    private void alterPartition() {
        for (String name : some(topics.keySet(), 1)) {
            Uuid id = topics.get(name);
            int index = random.nextInt(replication.getTopic(id).numPartitions(Long.MAX_VALUE));
            PartitionRegistration partition = replication.getPartition(id, index);
            if (partition.leader < 0) continue;
            TreeSet<Integer> isr = IntStream.of(partition.isr).boxed().collect(Collectors.toCollection(TreeSet::new));
            Set<Integer> others = IntStream.of(partition.replicas).boxed().
                filter(broker -> !isr.contains(broker)).collect(Collectors.toCollection(TreeSet::new));
            boolean grows = random.nextInt(3) > 0;
            if (grows) isr.addAll(some(others, 1));
            else isr.removeAll(some(isr.stream().filter(b -> b != partition.leader).collect(Collectors.toSet()), 1));
            List<AlterPartitionRequestData.BrokerState> states = isr.stream().map(broker ->
                new AlterPartitionRequestData.BrokerState().setBrokerId(broker).setBrokerEpoch(epochOf(broker))).toList();
            AlterPartitionRequestData request = new AlterPartitionRequestData().
                setBrokerId(partition.leader).setBrokerEpoch(epochOf(partition.leader));
            request.topics().add(new AlterPartitionRequestData.TopicData().setTopicId(id).setPartitions(List.of(
                new AlterPartitionRequestData.PartitionData().setPartitionIndex(index).
                    setPartitionEpoch(partition.partitionEpoch).setLeaderEpoch(partition.leaderEpoch).
                    setLeaderRecoveryState(LeaderRecoveryState.RECOVERED.value()).setNewIsrWithEpochs(states))));
            attempt((grows ? "expand " : "shrink ") + name + "-" + index + " to " + isr, () -> replication.alterPartition(
                ControllerRequestContextUtil.anonymousContextFor(ApiKeys.ALTER_PARTITION), request));
        }
    }

    private long epochOf(int broker) {
        BrokerRegistration registration = cluster.brokerRegistrations().get(broker);
        return registration == null ? -1 : registration.epoch();
    }

    private void reassign() {
        for (String name : some(topics.keySet(), 1)) {
            int index = random.nextInt(replication.getTopic(topics.get(name)).numPartitions(Long.MAX_VALUE));
            List<Integer> target = random.nextInt(4) == 0 ? null : replicas(1 + random.nextInt(4));
            attempt("reassign " + name + "-" + index + " to " + target, () -> replication.alterPartitionReassignments(
                new AlterPartitionReassignmentsRequestData().setTopics(List.of(new ReassignableTopic().setName(name).
                    setPartitions(List.of(new ReassignablePartition().setPartitionIndex(index).setReplicas(target)))))));
        }
    }

    private void elect(ElectionType type) {
        attempt("elect " + type, () -> replication.electLeaders(new ElectLeadersRequestData().
            setElectionType(type.value).setTopicPartitions(null)));
    }

    // -- configs and features --------------------------------------------------------------------------------------

    private void alterConfig() {
        for (String name : some(topics.keySet(), 1)) {
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
            switch (random.nextInt(4)) {
                case 0 -> setConfig(topic, UNCLEAN, "" + (random.nextInt(4) == 0));
                case 1 -> setConfig(topic, "retention.ms", "" + random.nextInt(1000));
                case 2 -> alterMinIsr(topic, null, Set.of(name));
                default -> alterMinIsr(topic, "" + (1 + random.nextInt(3)), Set.of(name));
            }
        }
    }

    private void alterClusterConfig() {
        alterMinIsr(new ConfigResource(ConfigResource.Type.BROKER, ""), "" + (1 + random.nextInt(3)), topics.keySet());
    }

    /**
     * A published controller that clears an ELR goes on to believe, in an index, that its members are in it. Later it writes
     * records that it should not, or fails. The patched one does not, so the script leaves ELRs with members alone.
     */
    private void alterMinIsr(ConfigResource resource, String value, Set<String> concerned) {
        for (String name : concerned) {
            Uuid id = topics.get(name);
            for (int index = 0; index < replication.getTopic(id).numPartitions(Long.MAX_VALUE); index++) {
                if (replication.getPartition(id, index).elr.length > 0) return;
            }
        }
        setConfig(resource, REPLICAS, value);
    }

    private void setConfig(ConfigResource resource, String name, String value) {
        OpType operation = value == null ? OpType.DELETE : OpType.SET;
        attempt("alter " + resource.name() + " " + name + "=" + value, () -> ControllerCalls.alterConfigs(
            configs, Map.of(resource, Map.of(name, Map.entry(operation, value == null ? "" : value)))));
    }

    private void toggleElr() {
        boolean enabled = features.isElrFeatureEnabled();
        attempt((enabled ? "disable" : "enable") + " ELR", () -> configs.updateFeatures(
            Map.of(ELR_FEATURE, (short) (enabled ? 0 : 1)),
            Map.of(ELR_FEATURE, enabled ? FeatureUpdate.UpgradeType.SAFE_DOWNGRADE : FeatureUpdate.UpgradeType.UPGRADE),
            false, 0));
    }

    // -- the rest --------------------------------------------------------------------------------------------------

    private boolean attempt(String name, Supplier<ControllerResult<?>> call) {
        event(name);
        ControllerResult<?> result;
        try {
            result = call.get();
        } catch (ApiException e) {
            out.println("rejected\t" + e.getClass().getSimpleName());
            return false;
        }
        apply(result.records());
        return true;
    }

    private void event(String name) {
        out.println("event\t" + seed + "\t" + number++ + "\t" + name);
    }

    private void apply(List<ApiMessageAndVersion> records) {
        for (ApiMessageAndVersion record : records) {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
            out.println("record\t" + HexFormat.of().formatHex(buffer.array()) + "\t" + record.message());
            List<ApiMessageAndVersion> one = List.of(record);
            RecordTestUtils.replayAll(features, one);
            RecordTestUtils.replayAll(cluster, one);
            RecordTestUtils.replayAll(configs, one);
            RecordTestUtils.replayAll(replication, one);
        }
    }

    private Uuid newId() {
        return new Uuid(1290 + seed, ++ids);
    }

    private List<Integer> replicas(int size) {
        return some(Set.of(0, 1, 2, 3, 4, 5), size);
    }

    private <T extends Comparable<T>> List<T> some(Set<T> from, int count) {
        List<T> all = new ArrayList<>(new TreeSet<>(from));
        Collections.shuffle(all, random);
        return new ArrayList<>(all.subList(0, Math.min(count, all.size())));
    }
}
