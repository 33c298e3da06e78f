#include "services/dispatch/domain/site_output.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using json::Json;

StepLine step_of(const Json& line) {
    const TrainingLine read = read_training_line(line.dump()).value();
    EXPECT_TRUE(std::holds_alternative<StepLine>(read)) << line;
    return std::get<StepLine>(read);
}

SummaryLine summary_of(const Json& line) {
    const TrainingLine read = read_training_line(line.dump()).value();
    EXPECT_TRUE(std::holds_alternative<SummaryLine>(read)) << line;
    return std::get<SummaryLine>(read);
}

bool is_none(const std::string& line) {
    const auto training = read_training_line(line);
    const auto evaluation = read_evaluation_line(line);
    return training.ok() && std::holds_alternative<std::monostate>(*training) && evaluation.ok() && !*evaluation;
}

TEST(SiteOutputTest, EveryMemberOfTheTrainersLinesIsKeptUnderItsName) {
    const Json step = {{"step", 7},        {"loss", 2.5},      {"loss_tokens", 512},     {"lr", 1e-3},
                       {"grad_norm", 0.5}, {"loss_scale", 64}, {"tokens_per_s", 1e4},    {"mfu", 0.5},
                       {"hfu", 0.25},      {"peak_bytes", 99}, {"exposed_comm_s", 0.25}, {"eta_s", 9.0},
                       {"step_s", 1.5},    {"val_loss", 2.0},  {"val_tokens", 640},      {"val_perplexity", 7.5}};
    EXPECT_EQ(to_json(step_of(step)), step);
    EXPECT_EQ(to_json(*parse_step_line(to_json(step_of(step)))), step);
    EXPECT_EQ(parse_step_line({{"step", 1}, {"time_unix_s", 1.7e9}})->time_unix_s, 1.7e9);
    for (const double time : {1e300, -1.0, 1e11})
        EXPECT_EQ(parse_step_line({{"step", 1}, {"time_unix_s", time}})->time_unix_s, std::nullopt) << time;
    const Json metrics = {{"steps", 3},
                          {"samples", 48},
                          {"tokens", 6144},
                          {"loss", 7.5},
                          {"tokens_per_s", 100.5},
                          {"wall_s", 1.5},
                          {"earlier_updates", 9},
                          {"optimizer_anew", true},
                          {"rounding_error_anew", true},
                          {"control_variate_anew", true}};
    Json summary = metrics;
    summary.update({{"summary", true}, {"resumable", true}});
    EXPECT_EQ(to_json(summary_of(summary)), summary);
    EXPECT_EQ(to_json(*parse_summary_line(to_json(summary_of(summary)))), summary);
    EXPECT_EQ(update_metrics(summary_of(summary)), metrics);
    const Json evaluation = {{"loss", 2.0}, {"perplexity", 7.389}, {"tokens", 1000}};
    EXPECT_EQ(to_json(**read_evaluation_line(evaluation.dump())), evaluation);
    EXPECT_EQ(to_json(*parse_evaluation_line(evaluation)), evaluation);
}

TEST(SiteOutputTest, WhatATrainerDoesNotKnowIsLeftOut) {
    EXPECT_EQ(to_json(step_of({{"step", 1}, {"loss", nullptr}, {"mfu", nullptr}})), (Json{{"step", 1}}));
    EXPECT_FALSE(summary_of({{"summary", true}, {"already_finished", true}, {"resumable", false}}).samples);
    EXPECT_EQ(read_evaluation_line(R"({"loss":1.0,"perplexity":2.7,"tokens":0})").error().field, "tokens");
    const auto infinite = read_evaluation_line("{\"loss\":900.5,\"perplexity\":null,\"tokens\":500}").value();
    ASSERT_TRUE(infinite);
    EXPECT_FALSE(infinite->perplexity);
    EXPECT_EQ(infinite->loss, 900.5);
}

TEST(SiteOutputTest, MembersThatNobodyKnowsGoNowhere) {
    const std::string odd("a\0b", 3);
    EXPECT_EQ(to_json(step_of({{"step", 1}, {"loss", 5.0}, {odd, 1}, {"note", "perché"}, {"more", {1, 2}}})),
              (Json{{"step", 1}, {"loss", 5.0}}));
    EXPECT_EQ(to_json(summary_of({{"summary", true}, {odd, odd}})), (Json{{"summary", true}, {"resumable", false}}));
}

TEST(SiteOutputTest, WhatIsNoLineOfOursIsPassedOver) {
    for (const char* text : {"", "no JSON", "[1,2]", "7", "null", "{}", "{\"summary\":1}", "{\"summary\":\"true\"}",
                             "{\"step\":-1}", "{\"step\":\"one\"}", "{\"step\":null}", "{\"step\":1.5}",
                             "{\"step\":18446744073709551615}", "{\"step\":1e999}", "{\"step\":1,\"step\":2}", "\xff"})
        EXPECT_TRUE(is_none(text)) << text;
    EXPECT_TRUE(is_none("{\"step\":1,\"more\":\"" + std::string(1 << 20, 'x') + "\"}")) << "far too long";
    EXPECT_TRUE(is_none("{\"step\":1,\"more\":" + std::string(20, '[') + std::string(20, ']') + "}")) << "far too deep";
}

TEST(SiteOutputTest, AStepsNumbersThatAreNoneAreLeftOut) {
    const Json odd = {{"step", 1},        {"loss", "low"},     {"lr", true},          {"mfu", Json::object()},
                      {"peak_bytes", -1}, {"val_tokens", 1.5}, {"tokens_per_s", 10.5}};
    EXPECT_EQ(to_json(step_of(odd)), (Json{{"step", 1}, {"tokens_per_s", 10.5}}));
}

TEST(SiteOutputTest, AResultThatCannotBeWhatItSaysIsRefusedByItsMember) {
    const auto field_of = [](const std::string& line) {
        const auto training = read_training_line(line);
        const auto evaluation = read_evaluation_line(line);
        if (training.ok() && evaluation.ok()) return std::string("none");
        const Error& error = training.ok() ? evaluation.error() : training.error();
        EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
        return error.field;
    };
    EXPECT_EQ(field_of("{\"summary\":true,\"resumable\":1}"), "resumable");
    EXPECT_EQ(field_of("{\"summary\":true,\"resumable\":\"false\"}"), "resumable");
    EXPECT_EQ(field_of("{\"summary\":true,\"samples\":1.5}"), "samples");
    EXPECT_EQ(field_of("{\"summary\":true,\"tokens\":-1}"), "tokens");
    EXPECT_EQ(field_of("{\"summary\":true,\"tokens\":18446744073709551615}"), "tokens");
    EXPECT_EQ(field_of("{\"summary\":true,\"loss\":[]}"), "loss");
    EXPECT_EQ(field_of("{\"perplexity\":true}"), "perplexity");
    EXPECT_EQ(field_of("{\"perplexity\":0.9}"), "perplexity") << "no model is surer than sure";
    EXPECT_EQ(field_of("{\"perplexity\":-1e308}"), "perplexity");
    EXPECT_EQ(field_of("{\"perplexity\":1,\"tokens\":9007199254740993}"), "tokens");
    EXPECT_EQ(field_of("{\"summary\":true,\"tokens\":9007199254740992}"), "none");
}

TEST(SiteOutputTest, AnExitFileThatIsNoneOfOursCountsAsAFailure) {
    EXPECT_EQ(read_exit_code("{\"exit_code\":0,\"out\":\"trained\"}"), 0);
    EXPECT_EQ(read_exit_code("{\"exit_code\":255}"), 255);
    for (const char* text : {"", "{}", "0", "{\"exit_code\":256}", "{\"exit_code\":-1}", "{\"exit_code\":true}",
                             "{\"exit_code\":1e2}", "{\"exit_code\":18446744073709551615}"})
        EXPECT_EQ(read_exit_code(text), 1) << text;
}

TEST(SiteOutputTest, APushAnswersWithADigestOrWithAnErrorThatSaysWhetherItWasRefused) {
    const std::string digest(64, 'a');
    EXPECT_EQ(read_push_answer("{\"digest\":\"" + digest + "\",\"bytes\":7}\n")->digest, digest);
    const auto refused =
        read_push_answer(R"({"refused":true,"error":{"code":"too-large","detail":"has 8 bytes","field":"body"}})");
    ASSERT_TRUE(refused && refused->error);
    EXPECT_TRUE(refused->is_refused);
    EXPECT_EQ(refused->error->code, ErrorCode::kTooLarge);
    EXPECT_EQ(describe(*refused->error), "body: has 8 bytes");
    const auto later = read_push_answer(R"({"refused":false,"error":{"code":"internal","detail":"broken"}})");
    ASSERT_TRUE(later && later->error);
    EXPECT_FALSE(later->is_refused);
    for (const std::string& text :
         {std::string(), std::string("done"), "{\"digest\":\"" + std::string(64, 'A') + "\"}",
          std::string("{\"digest\":7}"), "[\"" + digest + "\"]",
          "{\"digest\":\"" + digest + "\"}" + std::string(1 << 20, ' '), std::string("{\"refused\":true}"),
          std::string(R"({"refused":true,"error":{"code":"bad","detail":"d"}})"),
          std::string(R"({"refused":1,"error":{"code":"conflict","detail":"d"}})"),
          std::string(R"({"refused":true,"error":{"code":"conflict","detail":7}})"),
          std::string(R"({"refused":true,"error":"conflict"})")})
        EXPECT_FALSE(read_push_answer(text)) << text.substr(0, 100);
}

TEST(SiteOutputTest, ALossOfFewerThanSixtyFourTokensIsDropped) {
    const Json step = {{"step", 1},       {"loss", 2.5},           {"grad_norm", 1.5},
                       {"val_loss", 2.0}, {"val_perplexity", 7.4}, {"lr", 0.1}};
    const auto with = [&](std::int64_t tokens) {
        Json line = step;
        line["loss_tokens"] = line["val_tokens"] = tokens;
        return step_of(line);
    };
    EXPECT_FALSE(with(63).loss || with(63).grad_norm || with(63).val_loss || with(63).val_perplexity);
    EXPECT_EQ(with(63).lr, 0.1);
    EXPECT_TRUE(with(64).loss && with(64).grad_norm && with(64).val_loss && with(64).val_perplexity);
    const auto summary = [](std::int64_t tokens) {
        return summary_of({{"summary", true}, {"tokens", tokens}, {"loss", 2.5}});
    };
    EXPECT_FALSE(summary(63).loss);
    EXPECT_EQ(summary(64).loss, 2.5);
    EXPECT_EQ(read_evaluation_line(R"({"loss":2.0,"perplexity":7.4,"tokens":63})").error().field, "tokens");
    EXPECT_TRUE(read_evaluation_line(R"({"loss":2.0,"perplexity":7.4,"tokens":64})").ok());
}

}  // namespace
}  // namespace atl::dispatch
