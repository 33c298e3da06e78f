#pragma once

#include <librdkafka/rdkafka.h>

#include <map>
#include <memory>
#include <string>

#include "shared/base/result.h"

// What the module's own sources share; nothing outside shared/kafka includes this.
namespace atl::kafka {

struct DestroyHandle {
    void operator()(rd_kafka_t* handle) const { rd_kafka_destroy(handle); }
};
using Handle = std::unique_ptr<rd_kafka_t, DestroyHandle>;

struct DestroyLocalTopic {
    void operator()(rd_kafka_topic_t* topic) const { rd_kafka_topic_destroy(topic); }
};
using LocalTopic = std::unique_ptr<rd_kafka_topic_t, DestroyLocalTopic>;

struct Settings {
    std::map<std::string, std::string> values;
    void (*on_delivery)(rd_kafka_t*, const rd_kafka_message_t*, void*) = nullptr;
};

// A client with our logging and connection settings. kInvalidArgument for settings that librdkafka refuses.
Result<Handle> make_handle(rd_kafka_type_t type, const std::string& brokers, const Settings& settings);

// The file with the certificate that a client shows, as it was when this was made: a client reads it once.
class CertificateWatch {
  public:
    explicit CertificateWatch(const std::string& brokers);
    // Whether the file holds another certificate now; false while it cannot be read, and where there is none.
    bool is_renewed() const;

  private:
    std::string file_;
    std::string was_;
};

Error make_error(rd_kafka_resp_err_t code, const std::string& what);

}  // namespace atl::kafka
