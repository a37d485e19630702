package org.apache.spark.kafka010;

import java.util.Map;
import org.apache.spark.SparkConf;
import scala.Option;

/** Says that there are no delegation tokens; named as the Scala object that Spark's Kafka source asks. */
public final class KafkaTokenUtil$ {
    public static final KafkaTokenUtil$ MODULE$ = new KafkaTokenUtil$();

    private KafkaTokenUtil$() {}

    public boolean needTokenUpdate(Map<String, Object> properties, Option<?> tokenCluster) {
        return false;
    }

    public Option<Object> findMatchingTokenClusterConfig(SparkConf conf, String bootstrapServers) {
        return Option.empty();
    }
}
