#include "services/dispatch/sites/transport/transport.h"

#include <gtest/gtest.h>

#include "services/dispatch/sites/transport/frame.h"

namespace atl::dispatch {
namespace {

TEST(LocalTransportTest, ArgumentsInputOutputAndStatusArriveAsTheyAre) {
    const auto transport = make_local_transport();
    const std::string odd = "it's $HOME \"`x`\"\nsecond line";
    const auto result = transport->run({"printf '%s|' \"$@\"; cat; echo problem >&2; exit 42", {odd, ""}, "in\nput"});
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->out, odd + "||in\nput");
    EXPECT_EQ(result->err, "problem\n");
    EXPECT_EQ(result->exit_code, 42);
}

TEST(LocalTransportTest, EmptyOutputIsNotUnknown) {
    const auto result = make_local_transport()->run({":", {}, {}});
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->out, "");
    EXPECT_EQ(result->exit_code, 0);
}

TEST(LocalTransportTest, ARealStatus255IsKnown) {
    EXPECT_EQ(make_local_transport()->run({"exit 255", {}, {}})->exit_code, 255);
}

TEST(LocalTransportTest, ATimeoutIsUnknown) {
    const auto result = make_local_transport()->run({"sleep 30", {}, {}, std::chrono::milliseconds(200)});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
}

TEST(LocalTransportTest, AStopIsSilenceToo) {
    std::stop_source stopped;
    stopped.request_stop();
    const auto ended = make_local_transport(stopped.get_token())->run({"sleep 60", {}, {}, std::chrono::hours(1)});
    EXPECT_TRUE(is_silence(ended.error())) << "we have ended it ourselves";
    EXPECT_FALSE(is_silence(unavailable("the store is away")));
}

TEST(SilenceTest, ASiteThatIsBusyHasAnswered) {
    for (const auto cause :
         {Cause::kNoConnection, Cause::kAuthentication, Cause::kHostKey, Cause::kBusy, Cause::kLoginsSpent}) {
        EXPECT_EQ(no_answer("why", cause).cause, cause);
        EXPECT_EQ(is_silence(no_answer("why", cause)), cause != Cause::kBusy) << to_string(cause);
    }
    EXPECT_FALSE(is_silence(unavailable("the store is away")));
    EXPECT_FALSE(is_silence(invalid_argument("transport", "no such host")));
}

TEST(FrameTest, BannersAroundTheAnswerAreDropped) {
    CommandResult raw;
    raw.exit_code = 0;
    raw.out = "Welcome!\n\n@@atoll-begin-N\nanswer\n@@atoll-end-N 3\nGoodbye\n";
    const auto result = unframe(raw, "N");
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->out, "answer");
    EXPECT_EQ(result->exit_code, 3);
}

TEST(FrameTest, WithoutItsClosingMarkAnAnswerIsUnknown) {
    CommandResult raw;
    raw.exit_code = 255;
    raw.out = "\n@@atoll-begin-N\nhalf an ans";
    EXPECT_EQ(unframe(raw, "N").error().code, ErrorCode::kUnavailable);
}

TEST(FrameTest, WhatIsTakenAsItComesIsTheSameHoweverItIsCut) {
    const std::string printed = "Welcome!\n\n@@atoll-begin-N\n\n@@atoll-end\n@@atoll-end-N 3\nGoodbye\n";
    for (std::size_t piece = 1; piece <= printed.size(); ++piece) {
        std::string taken;
        StreamedFrame frame("N", [&](std::string_view bytes) {
            taken += bytes;
            return true;
        });
        for (std::size_t at = 0; at < printed.size(); at += piece)
            frame.take(std::string_view(printed).substr(at, piece));
        CommandResult raw;
        raw.out = frame.rest();
        const auto result = unframe(raw, "N");
        ASSERT_TRUE(result.ok()) << piece;
        EXPECT_EQ(result->out, "");
        EXPECT_EQ(result->exit_code, 3);
        EXPECT_EQ(taken, "\n@@atoll-end") << piece;
    }
    StreamedFrame endless("N", [](std::string_view) { return true; });
    for (int i = 0; i < 1000; ++i) endless.take(std::string(1000, 'x'));
    EXPECT_EQ(endless.rest(), "") << "a site that never begins is kept in no memory";
    EXPECT_FALSE(unframe({}, "N").ok());
}

TEST(LocalTransportTest, InputAndOutputOfAnyLengthGoThrough) {
    const auto transport = make_local_transport();
    int pieces = 0;
    std::size_t bytes = 0;
    RemoteScript script{"cat; exit 7", {}, "a line\n"};
    script.source = [&] { return ++pieces <= 100 ? std::string(100000, 'x') : std::string(); };
    script.sink = [&](std::string_view some) {
        bytes += some.size();
        return true;
    };
    const auto result = transport->run(script);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->exit_code, 7);
    EXPECT_EQ(bytes, 10000007U);
}

TEST(FrameTest, WhatALockedAccountsShellSaysIsQuoted) {
    CommandResult raw;
    raw.exit_code = 1;
    raw.out = "\nThis account is currently not available.\n";
    EXPECT_NE(unframe(raw, "N").error().message.find("exit status 1: This account is currently not available."),
              std::string::npos)
        << unframe(raw, "N").error().message;
}

TEST(FrameTest, BytesThatAreNoTextDoNotReachAMessage) {
    CommandResult raw;
    raw.exit_code = 255;
    raw.err = "no route\nhost \xff\x1b[31munreachable\n";
    const std::string message = unframe(raw, "N").error().message;
    EXPECT_TRUE(message.ends_with("host \xef\xbf\xbd[31munreachable")) << message;
}

TEST(FrameTest, OfALongLineAMessageHasTheBeginning) {
    CommandResult raw;
    raw.exit_code = 255;
    raw.err = "no route\nunreachable: " + std::string(1 << 20, 'x') + "\n";
    const std::string message = unframe(raw, "N").error().message;
    EXPECT_NE(message.find("unreachable: xxx"), std::string::npos) << message.substr(0, 1000);
    EXPECT_LT(message.size(), 1000U);
}

TEST(FrameTest, AProgramCutShortOnItsWayDoesNothing) {
    const RemoteScript script{"echo ran; echo again", {"a"}, "input"};
    const FramedScript framed = frame(script, "N");
    const std::size_t program = framed.stream.size() - script.input.size();
    // Without its last newline it is still whole.
    for (std::size_t length = 0; length + 1 < program; ++length) {
        CommandOptions options;
        options.input = framed.stream.substr(0, length);
        const auto result = run_command({"sh", "-c", framed.bootstrap}, options);
        ASSERT_TRUE(result.ok());
        const bool answered = unframe(*result, "N").ok();
        const bool ran = result->out.find("ran\n") != std::string::npos;
        const bool ran_half = ran && result->out.find("again\n") == std::string::npos;
        EXPECT_FALSE(answered || ran_half) << "cut after " << length << " bytes";
    }
}

}  // namespace
}  // namespace atl::dispatch
