package org.apache.kafka.controller;

import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.CreateTopicsResponseData;
import org.apache.kafka.common.requests.ApiError;

import java.util.Map;
import java.util.Map.Entry;
import java.util.Set;

/** Calls of the controller that other versions of Kafka declare with other parameters. */
final class ControllerCalls {
    private ControllerCalls() { }

    static ControllerResult<CreateTopicsResponseData> createTopics(ReplicationControlManager replication,
            ControllerRequestContext context, CreateTopicsRequestData request, Set<String> describable) {
        return replication.createTopics(context, request, describable, false);
    }

    static ControllerResult<Map<ConfigResource, ApiError>> alterConfigs(ConfigurationControlManager configs,
            Map<ConfigResource, Map<String, Entry<OpType, String>>> changes) {
        return configs.incrementalAlterConfigs(changes, false, false);
    }
}
