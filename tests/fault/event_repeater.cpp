#include "tests/fault/event_repeater.h"

#include <random>

#include "shared/base/backoff.h"
#include "shared/base/id.h"
#include "shared/json/json.h"

namespace atl::fault {
namespace {

using json::Json;

constexpr std::size_t kKept = 2000;
constexpr std::size_t kAtOnce = 40;

bool may_have_new_id(const kafka::Message& message) {
    return message.topic == "atoll.rounds" || message.topic == "atoll.aggregations";
}

kafka::Message junk(const std::string& topic) {
    const Json event = {{"specversion", "1.0"},
                        {"id", "junk-" + new_id()},
                        {"type", topic == "atoll.rounds" ? "atoll.round.closed.v1" : "atoll.aggregation.completed.v1"},
                        {"source", "/nobody"},
                        {"data", {{"nonsense", true}}}};
    return {.topic = topic, .key = "junk", .value = event.dump()};
}

}  // namespace

EventRepeater::EventRepeater(std::string brokers) : brokers_(std::move(brokers)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void EventRepeater::run(const std::stop_token& stop) {
    const std::vector<std::string> topics = {"atoll.jobs", "atoll.rounds", "atoll.aggregations", "atoll.models"};
    while (!stop.stop_requested()) {
        auto consumer = kafka::Consumer::create(brokers_, "fault-repeater-" + new_id(), topics);
        while (consumer.ok() && !stop.stop_requested()) {
            auto polled = consumer->poll(std::chrono::milliseconds(200));
            if (!polled.ok()) break;
            const std::lock_guard lock(mutex_);
            for (kafka::Message& message : *polled) {
                if (message.key == "junk") continue;
                if (messages_.size() < kKept)
                    messages_.push_back(std::move(message));
                else
                    messages_[seen_ % kKept] = std::move(message);
                ++seen_;
            }
        }
        wait_unless_stopped(stop, std::chrono::seconds(1));
    }
}

bool EventRepeater::repeat(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<kafka::Message> again = {junk(random() % 2 == 0 ? "atoll.rounds" : "atoll.aggregations")};
    {
        const std::lock_guard lock(mutex_);
        if (messages_.empty()) return false;
        for (std::size_t i = 0; i < kAtOnce; ++i) {
            const kafka::Message& message = messages_[random() % messages_.size()];
            again.push_back({.topic = message.topic, .key = message.key, .value = message.value});
            if (!may_have_new_id(message) || random() % 2 == 0) continue;
            Json event = json::parse(message.value).value();
            event["id"] = new_id();
            again.back().value = event.dump();
        }
    }
    auto producer = kafka::Producer::create(brokers_, "fault-repeater");
    return producer.ok() && producer->send(again, std::chrono::seconds(5)).ok();
}

}  // namespace atl::fault
