#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "services/dispatch/domain/task_machine.h"
#include "shared/digest/digest.h"
#include "shared/json/printable.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::uint64_t kSeed = 20'260'301;

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
    void bend_member(Json& value) {
        auto member = value.begin();
        std::advance(member, below(value.size()));
        const std::string key = one_in(3) ? odd_text() : member.key();
        value[key] = odd_value(3);
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
std::string fault_of(const Json& value) {
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

Json kept_of(const TaskChange& change) {
    const Task& task = change.task;
    Json kept = {{"error", task.error}, {"result", task.result}, {"events", Json::array()}};
    if (task.attempt) kept["attempt"] = {{"error", task.attempt->error}, {"progress", progress_json(*task.attempt)}};
    for (const DomainEvent& event : change.events) kept["events"].push_back(event.data);
    return kept;
}

Task new_task(Noise& noise) {
    Task task;
    task.id = "t1";
    task.job = "j1";
    task.facility = "leonardo";
    if (noise.one_in(2)) task.params = EvaluateParams{"d", "p", {{"g", "global"}}};
    task = begin_attempt(std::move(task)).task;
    task.attempt->step = noise.one_in(2) ? Step::kQueued : Step::kRunning;
    return task;
}

Observed look(Noise& noise) {
    Observed watched;
    watched.started = noise.one_in(2);
    for (std::size_t count = noise.below(5); count > 0; --count) watched.lines.push_back(noise.line());
    if (noise.one_in(3)) watched.exit_code = read_exit_code(noise.file());
    watched.log_is_drained = !noise.one_in(4);
    if (watched.exit_code.value_or(0) != 0) watched.stderr_tail = json::printable(noise.line());
    return watched;
}

TEST(SiteNoiseTest, NothingThatASitePrintsThrowsOrLeavesWhatTheDatabaseCannotHold) {
    Noise noise(kSeed);
    Task task = new_task(noise);
    std::map<std::string, int> ends;
    for (int i = 0; i < 20'000; ++i) {
        TaskChange change = apply(task, look(noise), {}, 0);
        const Json kept = kept_of(change);
        ASSERT_EQ(fault_of(kept), "") << "seed " << kSeed << ", look " << i << ": "
                                      << kept.dump(2, ' ', true, Json::error_handler_t::replace);
        ASSERT_LT(kept.dump().size(), 16U << 10) << "seed " << kSeed << ", look " << i;
        const Step step = change.task.attempt->step;
        ++ends[to_string(step)];
        const bool goes_on = step == Step::kQueued || step == Step::kRunning;
        task = goes_on ? std::move(change.task) : new_task(noise);
    }
    for (const char* end : {"running", "collecting", "done", "failed"})
        EXPECT_GT(ends[end], 50) << "seed " << kSeed << ": too seldom " << end;
}

TEST(SiteNoiseTest, NoFileOfASiteIsReadAsMoreThanItMayBe) {
    Noise noise(kSeed);
    int digests = 0;
    int refusals = 0;
    int splits = 0;
    for (int i = 0; i < 20'000; ++i) {
        const std::string text = noise.file();
        const std::int64_t exit_code = read_exit_code(text);
        ASSERT_TRUE(exit_code >= 0 && exit_code <= 255) << text;
        if (const auto answer = read_push_answer(text)) {
            ASSERT_TRUE(answer->error || digest::is_sha256(answer->digest)) << text;
            const std::string why = answer->error ? json::printable(describe(*answer->error)) : "";
            ASSERT_EQ(fault_of(why), "") << text;
            ++(answer->error ? refusals : digests);
        }
        const auto split = read_data_json(text, "train.data.json");
        if (!split.ok()) {
            ASSERT_EQ(fault_of(json::printable(describe(split.error()))), "") << text;
            continue;
        }
        ++splits;
        ASSERT_TRUE(digest::is_sha256(split->fingerprint) && digest::is_sha256(split->tokenizer_sha256)) << text;
        ASSERT_TRUE(split->rows >= 0 && split->tokens >= 0 && split->documents >= 0 && split->seq_len > 0) << text;
    }
    EXPECT_GT(digests, 100) << "seed " << kSeed;
    EXPECT_GT(refusals, 100) << "seed " << kSeed;
    EXPECT_GT(splits, 100) << "seed " << kSeed;
}

}  // namespace
}  // namespace atl::dispatch
