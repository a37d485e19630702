package org.apache.spark.kafka010;

import scala.Tuple2;
import scala.collection.immutable.Seq;

/** Hides what must not be logged; named as the Scala object that Spark's Kafka source asks. */
public final class KafkaRedactionUtil$ {
    public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

    private KafkaRedactionUtil$() {}

    public Seq<Tuple2<String, String>> redactParams(Seq<Tuple2<String, Object>> properties) {
        return properties
                .map(pair -> new Tuple2<String, String>(pair._1(), shown(pair._1(), pair._2())))
                .toSeq();
    }

    private static String shown(String key, Object value) {
        String name = key.toLowerCase(java.util.Locale.ROOT);
        boolean secret = name.contains("password") || name.contains("secret") || name.contains("jaas");
        return secret ? "*********(redacted)" : String.valueOf(value);
    }
}
