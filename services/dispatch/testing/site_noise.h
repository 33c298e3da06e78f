#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "services/dispatch/domain/task_machine.h"
#include "shared/json/printable.h"

namespace atl::dispatch {

using json::Json;

// What a broken or lying site may print: what our programs print, bent member by member and byte by byte.
class Noise {
  public:
    explicit Noise(std::uint64_t seed) : random_(seed) {}

    std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }
    bool one_in(std::size_t count) { return below(count) == 0; }

    std::string line() {
        Json value = pick({R"({"step":3,"loss":2.5,"lr":0.1,"grad_norm":1.5,"tokens_per_s":100.5,"mfu":0.5,"hfu":null,)"
                           R"("peak_bytes":1024,"loss_scale":64})",
                           R"({"summary":true,"steps":3,"samples":48,"tokens":6144,"loss":2.5,"final_loss":2.25,)"
                           R"("tokens_per_s":100.5,"wall_s":1.5,"resumable":false})",
                           R"({"loss":2.0,"perplexity":7.389,"tokens":1000})",
                           R"({"step":3,"val_loss":2.5,"val_perplexity":12.5,"val_tokens":640})"});
        return bent(std::move(value));
    }
    // A document of a row, as another release may have written it.
    Json bent_document(Json value) {
        while (!one_in(3)) bend_member(value);
        return value;
    }
    std::string file() {
        Json value = pick({R"({"exit_code":0,"out":"trained","resumable":true})",
                           R"({"digest":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})",
                           R"({"refused":true,"error":{"code":"conflict","detail":"no","field":"manifest"}})",
                           R"({"schema":1,"seq_len":128,"batching":"packing","documents":10,"rows":5,"tokens":600,)"
                           R"("tokenizer_sha256":"1111111111111111111111111111111111111111111111111111111111111111",)"
                           R"("fingerprint":"2222222222222222222222222222222222222222222222222222222222222222"})"});
        return bent(std::move(value));
    }

  private:
    Json pick(const std::vector<std::string>& texts) { return Json::parse(texts[below(texts.size())]); }

    std::string bent(Json value) {
        while (!one_in(3)) bend_member(value);
        std::string text = value.dump(-1, ' ', one_in(2), Json::error_handler_t::ignore);
        if (one_in(3))
            for (std::size_t count = 1 + below(4); count > 0; --count) bend_byte(text);
        return text;
    }
    // Of the object itself or of one that it holds; of a list an element.
    void bend_member(Json& value) {
        if (!value.is_structured() || value.empty()) {
            value = odd_value(3);
            return;
        }
        auto member = value.begin();
        std::advance(member, below(value.size()));
        if (member->is_structured() && one_in(2)) return bend_member(*member);
        if (value.is_array()) {
            *member = odd_value(3);
        } else if (one_in(4)) {
            value.erase(member);
        } else {
            const std::string key = one_in(3) ? odd_text() : member.key();
            value[key] = odd_value(3);
        }
    }
    void bend_byte(std::string& text) {
        const std::size_t at = below(text.size() + 1);
        const char byte =
            static_cast<char>(one_in(2) ? below(256) : static_cast<std::size_t>("\"{}[],:-.0e\\"[below(12)]));
        if (at == text.size() || one_in(2))
            text.insert(at, 1, byte);
        else if (one_in(2) && text.size() > 1)
            text.erase(at, 1);
        else
            text[at] = byte;
    }
    std::string odd_text() {
        static const std::vector<std::string> texts = {"",           std::string("a\0b", 3),
                                                       "\xff\xfe",   "\xed\xa0\x80",
                                                       "\x1b[31m",   "perché",
                                                       "step",       "summary",
                                                       "perplexity", "resumable",
                                                       "tokens",     std::string(2000, 'x')};
        return texts[below(texts.size())];
    }
    Json odd_value(int depth) {
        switch (below(depth > 0 ? 12 : 10)) {
            case 0:
                return nullptr;
            case 1:
                return one_in(2);
            case 2:
                return INT64_MIN;
            case 3:
                return UINT64_MAX;
            case 4:
                return std::int64_t{1} << 53;
            case 5:
                return 1.7976931348623157e308;
            case 6:
                return -1.5;
            case 7:
                return static_cast<std::int64_t>(below(100));
            case 8:
            case 9:
                return odd_text();
            case 10:
                return Json::array({odd_value(depth - 1), odd_value(depth - 1)});
            default:
                return Json{{"step", odd_value(depth - 1)}, {"more", odd_value(depth - 1)}};
        }
    }

    std::mt19937_64 random_;
};

// Why a value cannot be a jsonb of Postgres, empty if it can.
inline std::string fault_of(const Json& value) {
    if (value.is_number_float() && !std::isfinite(value.get<double>())) return "a number is not finite";
    if (value.is_structured())
        for (const Json& item : value)
            if (std::string fault = fault_of(item); !fault.empty()) return fault;
    if (value.is_object())
        for (const auto& [key, item] : value.items())
            if (std::string fault = fault_of(Json(key)); !fault.empty()) return fault;
    if (!value.is_string()) return {};
    const auto& text = value.get_ref<const std::string&>();
    if (text.find('\0') != std::string::npos) return "a text holds U+0000";
    try {
        (void)Json(text).dump();
    } catch (const Json::exception&) {
        return "a text is no UTF-8";
    }
    return {};
}

inline Json kept_of(const TaskChange& change) {
    const Task& task = change.task;
    Json kept = {{"error", task.error}, {"result", task.result}, {"events", Json::array()}};
    if (task.attempt) kept["attempt"] = {{"error", task.attempt->error}, {"progress", progress_json(*task.attempt)}};
    for (const DomainEvent& event : change.events) kept["events"].push_back(event.data);
    return kept;
}

inline Task noisy_task(Noise& noise) {
    Task task;
    task.id = "t1";
    task.job = "j1";
    task.facility = "leonardo";
    if (noise.one_in(2)) task.params = EvaluateParams{"d", "p", {{"g", "global"}}};
    task = begin_attempt(std::move(task)).task;
    task.attempt->step = noise.one_in(2) ? Step::kQueued : Step::kRunning;
    return task;
}

inline Observed look(Noise& noise) {
    Observed watched;
    watched.started = noise.one_in(2);
    for (std::size_t count = noise.below(5); count > 0; --count) watched.lines.push_back(noise.line());
    if (noise.one_in(3)) watched.exit_code = read_exit_code(noise.file());
    watched.log_is_drained = !noise.one_in(4);
    if (watched.exit_code.value_or(0) != 0) watched.stderr_tail = json::printable(noise.line());
    return watched;
}

// What a push comes to whose answer, or whose program, is noise.
inline Outcome push_outcome(Noise& noise, const Task& task) {
    const auto answer = read_push_answer(noise.file());
    if (!answer) return outcome_of(task, internal_error("atoll push said " + noise.line()));
    if (answer->is_refused) return refuse_update(*answer->error, noise.one_in(2));
    if (answer->error) return outcome_of(task, *answer->error);
    return Collected{{{"version", answer->digest}, {"samples", 1}, {"tokens", 1}, {"metrics", Json::object()}}};
}

// Something that a site has said, taken by the task.
inline TaskChange noisy_change(Noise& noise, const Task& task) {
    const bool collects = task.attempt->step == Step::kCollecting;
    return apply(task, collects ? push_outcome(noise, task) : Outcome(look(noise)), {}, 0);
}

inline bool goes_on(const Task& task) {
    const Step step = task.attempt->step;
    return step == Step::kQueued || step == Step::kRunning || step == Step::kCollecting;
}

}  // namespace atl::dispatch
