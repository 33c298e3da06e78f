#include "shared/kafka/kafka.h"

#include <cstdlib>

#include "services/stack/component.h"
#include "services/stack/process.h"
#include "shared/base/file.h"
#include "shared/base/id.h"

namespace atl::stack {
namespace {

namespace fs = std::filesystem;

// A broker of our size: small buffers, few internal partitions, no waiting for others that do not exist. Other users of
// this machine reach its ports too: it takes clients with our own certificate alone, which may do all, and shows it, so
// that no program that took the port while it was away gets anything. (Not SCRAM: librdkafka before 2.6.1 speaks it as
// Kafka 4 does not take it.)
std::string broker_settings(const Stack& stack) {
    const std::string broker = loopback(stack.ports.kafka);
    const std::string controller = loopback(stack.ports.kafka_controller);
    const std::string credentials = stack.layout.kafka_credentials().string();
    return "# Written by `atoll up`: one broker, its own controller (KRaft).\n"
           "process.roles=broker,controller\n"
           "node.id=1\n"
           "controller.quorum.voters=1@" +
           controller +
           "\n"
           "listeners=BROKER://" +
           broker + ",CONTROLLER://" + controller +
           "\n"
           "advertised.listeners=BROKER://" +
           broker +
           "\n"
           "controller.listener.names=CONTROLLER\n"
           "inter.broker.listener.name=BROKER\n"
           "listener.security.protocol.map=BROKER:SSL,CONTROLLER:SSL\n"
           "ssl.client.auth=required\n"
           "ssl.keystore.type=PEM\n"
           "ssl.keystore.location=" +
           credentials +
           "\n"
           "ssl.truststore.type=PEM\n"
           "ssl.truststore.location=" +
           credentials +
           "\n"
           "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
           "super.users=User:CN=atoll\n"
           "log.dirs=" +
           (stack.layout.kafka() / "data").string() +
           "\n"
           "auto.create.topics.enable=false\n"
           // A producer's own time is refused where its clock is over an hour ahead, and decides what is too old to
           // keep.
           "log.message.timestamp.type=LogAppendTime\n"
           "log.retention.hours=2160\n"  // events outlive a coordinator that is off for weeks
           "controlled.shutdown.enable=false\n"
           "broker.session.timeout.ms=4000\n"  // so long a new process waits for the one before it
           "broker.heartbeat.interval.ms=500\n"
           "group.initial.rebalance.delay.ms=0\n"
           "num.network.threads=2\n"
           "num.io.threads=4\n"
           "log.cleaner.dedupe.buffer.size=4194304\n"
           "log.index.size.max.bytes=1048576\n"
           "offsets.topic.num.partitions=4\n"
           "offsets.topic.replication.factor=1\n"
           "transaction.state.log.num.partitions=4\n"
           "transaction.state.log.replication.factor=1\n"
           "transaction.state.log.min.isr=1\n"
           "share.coordinator.state.topic.num.partitions=1\n"
           "share.coordinator.state.topic.replication.factor=1\n"
           "share.coordinator.state.topic.min.isr=1\n";
}

constexpr const char* kLogSettings = R"(status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
)";

std::string java() {
    if (const char* home = std::getenv("JAVA_HOME"); home != nullptr && fs::exists(fs::path(home) / "bin/java"))
        return (fs::path(home) / "bin/java").string();
    return "java";
}

// The command line of one of Kafka's main classes.
std::vector<std::string> jvm(const Stack& stack, const std::vector<std::string>& arguments) {
    std::vector<std::string> argv = {
        java(),
        "-Xms96m",
        "-Xmx320m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        "-Dlog4j2.configurationFile=" + (stack.layout.kafka() / "log4j2.properties").string(),
        "-cp",
        (stack.kafka_jars / "*").string()};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return argv;
}

Status format_storage(const Stack& stack, const fs::path& settings) {
    if (fs::exists(stack.layout.kafka() / "data/meta.properties")) return {};
    // What `kafka.tools.StorageTool random-uuid` prints: 16 bytes in URL-safe base64 without padding. Hexadecimal
    // digits are base64's too; the last of 22 characters carries four bits that must be zero.
    const std::string cluster = "A" + random_hex(10) + "A";
    ATOLL_RETURN_IF_ERROR(
        run_checked(jvm(stack, {"kafka.tools.StorageTool", "format", "-t", cluster, "-c", settings.string()}),
                    "Kafka's storage cannot be formatted", kMakeTimeMax));
    return {};
}

Status find_kafka(const fs::path& jars) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(jars, error)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("kafka") && name.ends_with(".jar")) return {};
    }
    return invalid_argument("--kafka-jars", "no Kafka in " + jars.string() +
                                                ": `./dev install` fetches it; or give --kafka-jars DIR (Kafka's libs "
                                                "directory). Nothing was started");
}

Result<std::vector<std::string>> start_kafka(const Stack& stack) {
    const fs::path settings = stack.layout.kafka() / "server.properties";
    ATOLL_RETURN_IF_ERROR(write_file_atomic(stack.layout.kafka() / "log4j2.properties", kLogSettings));
    ATOLL_RETURN_IF_ERROR(write_file_atomic(settings, broker_settings(stack)));
    ATOLL_RETURN_IF_ERROR(format_storage(stack, settings));
    return jvm(stack, {"kafka.Kafka", settings.string()});
}

}  // namespace

std::string loopback(std::uint16_t port) {
    return "127.0.0.1:" + std::to_string(port);
}

Component kafka_component(const Stack& stack) {
    Component component;
    component.name = "kafka";
    component.address = loopback(stack.ports.kafka);
    component.find = [jars = stack.kafka_jars] { return find_kafka(jars); };
    component.start = [stack] { return start_kafka(stack); };
    const std::string cluster =
        kafka::with_credentials(loopback(stack.ports.kafka), stack.layout.kafka_credentials().string());
    component.ready = [cluster, port = stack.ports.kafka] {
        return !port_is_free(port) && kafka::Probe(cluster).is_reachable(std::chrono::seconds(2));
    };
    component.start_time_max = std::chrono::seconds(120);
    return component;
}

}  // namespace atl::stack
