#include "shared/kafka/lag_watch.h"

#include <algorithm>
#include <utility>

#include "shared/kafka/handle.h"

namespace atl::kafka {
namespace {

using std::chrono::milliseconds;

constexpr int kAnswerTimeoutMs = 1000;
constexpr int kLooksPerPatience = 3;

Partitions copy_of(const rd_kafka_topic_partition_list_t& partitions) {
    return Partitions(rd_kafka_topic_partition_list_copy(&partitions));
}

// Adds the partitions that a topic has; none while the broker does not know it.
Status add_partitions_of(rd_kafka_t* handle, const std::string& topic, rd_kafka_topic_partition_list_t& list) {
    const LocalTopic local(rd_kafka_topic_new(handle, topic.c_str(), nullptr));
    const rd_kafka_metadata_t* answer = nullptr;
    const auto code = rd_kafka_metadata(handle, 0, local.get(), &answer, kAnswerTimeoutMs);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) return make_error(code, "cannot read the partitions of " + topic);
    for (int i = 0; i < answer->topic_cnt; ++i)
        for (int p = 0; p < answer->topics[i].partition_cnt; ++p)
            rd_kafka_topic_partition_list_add(&list, topic.c_str(), answer->topics[i].partitions[p].id);
    rd_kafka_metadata_destroy(answer);
    return {};
}

}  // namespace

LagWatch::LagWatch(rd_kafka_t* consumer, std::vector<std::string> topics, milliseconds deaf_after)
    : consumer_(consumer), topics_(std::move(topics)), deaf_after_(deaf_after), next_look_(Clock::now() + deaf_after) {}

void LagWatch::on_message(const Message& message) {
    delivered_[{message.topic, message.partition}] = message.offset + 1;
}

Status LagWatch::look() {
    if (Clock::now() < next_look_) return {};
    const Status measured = measure();
    next_look_ = Clock::now() + deaf_after_ / kLooksPerPatience;
    if (!measured.ok()) {  // time without an answer does not count
        waiting_.reset();
        standstills_.clear();
    }
    for (const auto& [partition, standstill] : standstills_) {
        const auto stood = std::chrono::duration_cast<milliseconds>(Clock::now() - standstill.since);
        if (stood >= (has_partitions_ ? 1 : 2) * deaf_after_)
            return unavailable("kafka: partition " + std::to_string(partition.second) + " of " + partition.first +
                               " holds unread messages, and none has come for " + std::to_string(stood.count() / 1000) +
                               " s");
    }
    return {};
}

std::optional<Lag> LagWatch::lag() const {
    if (!waiting_) return {};
    Lag lag{.messages = *waiting_};
    for (const auto& [partition, standstill] : standstills_)
        lag.age = std::max(lag.age, std::chrono::duration_cast<milliseconds>(Clock::now() - standstill.since));
    return lag;
}

// The consumer's own; all while it has none, which is right only if other members of the group read them.
Result<Partitions> LagWatch::watched_partitions() {
    rd_kafka_topic_partition_list_t* assigned = nullptr;
    const auto code = rd_kafka_assignment(consumer_, &assigned);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) return make_error(code, "cannot read the assignment");
    Partitions partitions(assigned);
    const bool has_partitions = partitions->cnt > 0;
    if (std::exchange(has_partitions_, has_partitions) != has_partitions) standstills_.clear();
    if (has_partitions) return partitions;
    for (const std::string& topic : topics_) ATOLL_RETURN_IF_ERROR(add_partitions_of(consumer_, topic, *partitions));
    return partitions;
}

Result<std::map<LagWatch::Partition, std::int64_t>> LagWatch::committed(
    const rd_kafka_topic_partition_list_t& partitions) const {
    const Partitions list = copy_of(partitions);
    const auto code = rd_kafka_committed(consumer_, list.get(), kAnswerTimeoutMs);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) return make_error(code, "cannot read the committed offsets");
    std::map<Partition, std::int64_t> found;
    for (int i = 0; i < list->cnt; ++i)
        if (list->elems[i].err == RD_KAFKA_RESP_ERR_NO_ERROR && list->elems[i].offset >= 0)
            found[{list->elems[i].topic, list->elems[i].partition}] = list->elems[i].offset;
    return found;
}

Result<std::map<LagWatch::Partition, std::int64_t>> LagWatch::offsets(const rd_kafka_topic_partition_list_t& partitions,
                                                                      std::int64_t which) const {
    const Partitions list = copy_of(partitions);
    for (int i = 0; i < list->cnt; ++i) list->elems[i].offset = which;  // stands for a time in this request
    const auto code = rd_kafka_offsets_for_times(consumer_, list.get(), kAnswerTimeoutMs);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) return make_error(code, "cannot read the partitions' offsets");
    std::map<Partition, std::int64_t> found;
    for (int i = 0; i < list->cnt; ++i)
        if (list->elems[i].err == RD_KAFKA_RESP_ERR_NO_ERROR)
            found[{list->elems[i].topic, list->elems[i].partition}] = list->elems[i].offset;
    return found;
}

Status LagWatch::measure() {
    ATOLL_TRY(const Partitions partitions, watched_partitions());
    if (partitions->cnt == 0) return {};
    ATOLL_TRY(const auto ends, offsets(*partitions, RD_KAFKA_OFFSET_END));
    ATOLL_TRY(auto positions, committed(*partitions));
    for (const auto& [partition, offset] : delivered_)
        if (auto& position = positions[partition]; position < offset) position = offset;
    ATOLL_TRY(const auto begins, offsets(*partitions, RD_KAFKA_OFFSET_BEGINNING));
    const auto before = std::exchange(standstills_, {});
    std::int64_t waiting = 0;
    for (const auto& [partition, end] : ends) {
        const auto begin = begins.find(partition);
        std::int64_t position = begin == begins.end() ? 0 : begin->second;
        // Beyond the end it belongs to a topic that has been deleted and made anew, which is read from its beginning.
        if (const auto at = positions.find(partition); at != positions.end() && at->second <= end)
            position = std::max(position, at->second);
        if (position >= end) continue;
        waiting += end - position;
        const auto stood = before.find(partition);
        const bool stands = stood != before.end() && stood->second.position == position;
        standstills_[partition] = {position, stands ? stood->second.since : Clock::now()};
    }
    waiting_ = waiting;
    return {};
}

}  // namespace atl::kafka
