#include "shared/kafka/testing/fake_broker.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include <vector>

#include "shared/base/check.h"
#include "shared/kafka/handle.h"

namespace atl::kafka {
namespace {

constexpr std::int16_t kOffsetFetch = 9;  // https://kafka.apache.org/protocol#protocol_api_keys
constexpr std::int16_t kJoinGroup = 11;
constexpr std::size_t kManyJoins = 1000;  // more than a consumer tries in any test

struct DestroyCluster {
    void operator()(rd_kafka_mock_cluster_t* cluster) const { rd_kafka_mock_cluster_destroy(cluster); }
};

}  // namespace

class FakeBroker::Impl {
  public:
    Impl()
        : owner_(make_handle(RD_KAFKA_PRODUCER, "", {}).value()), cluster_(rd_kafka_mock_cluster_new(owner_.get(), 1)) {
        check(cluster_ != nullptr, "librdkafka makes no broker");
    }
    rd_kafka_mock_cluster_t* cluster() { return cluster_.get(); }

  private:
    Handle owner_;
    std::unique_ptr<rd_kafka_mock_cluster_t, DestroyCluster> cluster_;
};

FakeBroker::FakeBroker(const std::string& topic, int partitions)
    : impl_(std::make_unique<Impl>()), address_(rd_kafka_mock_cluster_bootstraps(impl_->cluster())) {
    check(rd_kafka_mock_topic_create(impl_->cluster(), topic.c_str(), partitions, 1) == RD_KAFKA_RESP_ERR_NO_ERROR,
          "librdkafka's broker makes no topic");
}

FakeBroker::~FakeBroker() = default;

void FakeBroker::disown_group_once() {
    rd_kafka_mock_push_request_errors(impl_->cluster(), kOffsetFetch, 1, RD_KAFKA_RESP_ERR_NOT_COORDINATOR);
}

void FakeBroker::refuse_members() {
    const std::vector<rd_kafka_resp_err_t> refusals(kManyJoins, RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID);
    rd_kafka_mock_push_request_errors_array(impl_->cluster(), kJoinGroup, refusals.size(), refusals.data());
}

void FakeBroker::accept_members() {
    rd_kafka_mock_clear_request_errors(impl_->cluster(), kJoinGroup);
}

}  // namespace atl::kafka
