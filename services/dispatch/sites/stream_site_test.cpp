#include "services/dispatch/sites/stream_site.h"

#include <gtest/gtest.h>

#include <thread>

#include "services/dispatch/testing/stream_check.h"
#include "shared/digest/digest.h"
#include "shared/store_client/seal.h"
#include "shared/store_client/transfer.h"

namespace atl::dispatch {
namespace {

namespace fs = std::filesystem;
using json::Json;

constexpr std::uint64_t kModelBytes = 20U << 20;

// A store, and a site on this machine whose programs reach nothing: whoever starts them is noted in "started".
class StreamSiteTest : public testing::Test {
  protected:
    void SetUp() override {
        program("exit 1");
        ASSERT_TRUE(write_file_atomic(file("atoll-trainer"), "#!/bin/sh\n", 0755).ok());
        make_shards(file("model"), kModelBytes, random_);
        version_ = store_.add_version(file("model"));
        size_ = manifest_of(file("model")).size_bytes();
        fs::create_directories(attempt() / "out");
    }
    void program(const std::string& body) {
        const std::string text = "#!/bin/sh\necho $1 >>" + file("started") + "\n" + body + "\n";
        ASSERT_TRUE(write_file_atomic(file("atoll"), text, 0755).ok());
    }
    StreamSite site() {
        Facility facility;
        facility.name = "leonardo";
        facility.batch.kind = BatchKind::kLocal;
        facility.work_dir = file("work");
        return StreamSite(facility, transport_, directory_.path().string(), turns_);
    }
    StageOrder order() { return {{version_}, "job", "atoll-of-job-1", store_.url(), store_.token()}; }
    Status stage() {
        for (;;) {
            const auto moving = site().stage(order());
            if (!moving.ok()) return moving.error();
            if (!moving->moving) return {};
        }
    }
    // However often the connection breaks.
    void stage_patiently() {
        for (Status staged = unavailable(""); !staged.ok();) {
            staged = stage();
            ASSERT_TRUE(staged.ok() || is_silence(staged.error())) << staged.error().message;
        }
    }
    Result<PushAnswer> push() {
        const Json meta = {{"parents", {version_}}, {"job", "job1"}, {"round", 3}, {"metrics", {{"loss", 1.5}}}};
        for (;;) {
            auto answer = site().push({attempt().string(), "m", store_.url(), store_.token(), meta});
            if (!answer.ok() || !answer->moving) return answer;
        }
    }
    void make_update(std::uint64_t bytes = kModelBytes) {
        make_shards(attempt() / "out", bytes, random_);
        ASSERT_TRUE(store_client::write_seal(attempt() / "seal.json", attempt() / "out", 2).ok());
    }
    void expect_refused(const std::string& why) {
        const auto answer = push();
        ASSERT_TRUE(answer.ok() && answer->error) << (answer.ok() ? answer->digest : answer.error().message);
        EXPECT_TRUE(answer->is_refused);
        EXPECT_NE(answer->error->message.find(why), std::string::npos) << answer->error->message;
        EXPECT_TRUE(store_.created().is_null());
    }
    static store_client::Manifest manifest_of(const fs::path& directory) {
        return store_client::scan_directory(directory, 2).value();
    }
    void expect_staged() {
        const Status same = store_client::verify_directory(staged(), manifest_of(file("model")), 2);
        EXPECT_TRUE(same.ok()) << same.error().message;
        EXPECT_FALSE(fs::exists(partial()));
    }
    std::string file(const std::string& name) const { return (directory_.path() / name).string(); }
    fs::path staged() const { return file("work/models/" + version_); }
    fs::path partial() const { return file("work/models/." + version_ + ".stream.partial"); }
    fs::path attempt() const { return file("work/tasks/t/1"); }

    TemporaryDirectory directory_;
    std::mt19937_64 random_{testing::UnitTest::GetInstance()->random_seed() + 7U};
    FileStore store_;
    StreamTurns turns_{2};
    std::shared_ptr<WatchedTransport> transport_ = std::make_shared<WatchedTransport>(make_local_transport());
    std::string version_;
    std::uint64_t size_ = 0;
};

TEST_F(StreamSiteTest, AVersionArrivesWithAllItsFilesAndNothingOfItIsComputedOrAskedForAtTheSite) {
    const Status status = stage();
    ASSERT_TRUE(status.ok()) << status.error().message;
    expect_staged();
    EXPECT_EQ(transport_->bytes(), size_);
    EXPECT_TRUE(fs::exists(file("work/models/" + version_ + ".pins/job")));
    EXPECT_FALSE(fs::exists(file("started")));
    EXPECT_EQ(transport_->said().find(store_.token()), std::string::npos) << "a token has no use there";
    ASSERT_TRUE(stage().ok());
    EXPECT_EQ(transport_->bytes(), size_) << "it is there";
    EXPECT_EQ(site().stage(order()).value().bytes, static_cast<std::int64_t>(size_)) << "brought for this attempt";
    StageOrder another = order();
    another.attempt = "atoll-of-job-2";
    EXPECT_EQ(site().stage(another).value().bytes, 0);
    while (site().clean("job", {"t"}).value()) continue;
    EXPECT_FALSE(fs::exists(staged()));
}

TEST_F(StreamSiteTest, WhatLiesInTheWayOfAVersionIsNoLink) {
    fs::create_directories(file("somebody's"));
    fs::create_directories(file("work"));
    fs::create_directory_symlink(file("somebody's"), file("work/models"));
    const Status refused = stage();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable) << "it can be mended";
    EXPECT_NE(refused.error().message.find("work/models is a link"), std::string::npos) << refused.error().message;
    EXPECT_TRUE(fs::is_empty(file("somebody's")));
    fs::remove(file("work/models"));
    fs::create_directory(file("work/models"));
    fs::permissions(file("work/models"), fs::perms::all);
    ASSERT_TRUE(stage().ok());
    expect_staged();
    EXPECT_EQ(fs::status(file("work/models")).permissions() & (fs::perms::group_write | fs::perms::others_write),
              fs::perms::none)
        << "nobody else makes names there";
}

TEST_F(StreamSiteTest, WhatLiesInTheWayOfAVersionOnItsWayIsNoLinkEither) {
    fs::create_directories(file("somebody's"));
    fs::create_directories(file("work/models"));
    fs::create_directory_symlink(file("somebody's"), partial());
    const Status refused = stage();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable) << "it can be mended";
    EXPECT_NE(refused.error().message.find(".stream.partial is a link"), std::string::npos) << refused.error().message;
    EXPECT_TRUE(fs::is_empty(file("somebody's")));
    fs::remove(partial());
    ASSERT_TRUE(stage().ok());
    expect_staged();
}

TEST_F(StreamSiteTest, WhereTheConnectionBreaksItGoesOnAtTheByteWhereItWas) {
    for (int i = 0; i < 10; ++i) transport_->marks.push_back(random_() % size_);
    std::sort(transport_->marks.begin(), transport_->marks.end());
    stage_patiently();
    expect_staged();
    EXPECT_EQ(transport_->bytes(), size_) << "no byte travels twice";
    EXPECT_TRUE(transport_->marks.empty());
}

TEST_F(StreamSiteTest, WhatACrashHasSpoiltIsSentAgain) {
    transport_->marks = {3U << 20};
    ASSERT_FALSE(stage().ok());
    const fs::path shard = partial() / "model-00001-of-00002.safetensors";
    const auto there = fs::file_size(shard);
    ASSERT_GT(there, 1U << 20);
    {
        std::fstream tail(shard, std::ios::in | std::ios::out | std::ios::binary);
        tail.seekp(static_cast<std::streamoff>(there - 100000));
        tail << std::string(100000, '\0');
    }
    ASSERT_TRUE(stage().ok());
    expect_staged();
    EXPECT_GT(transport_->bytes(), size_);
    EXPECT_LE(transport_->bytes(), size_ + store_client::kChunkBytes);
}

TEST_F(StreamSiteTest, WhatCannotHaveBeenSentIsRemovedAndSentAnew) {
    transport_->marks = {3U << 20};
    ASSERT_FALSE(stage().ok());
    std::ofstream(partial() / "config.json", std::ios::app) << "more";
    const Status longer = stage();
    ASSERT_FALSE(longer.ok());
    EXPECT_EQ(longer.error().code, ErrorCode::kUnavailable);
    EXPECT_FALSE(fs::exists(partial()));
    ASSERT_TRUE(stage().ok());
    expect_staged();
}

TEST_F(StreamSiteTest, ASiteWhereNothingArrivesOrThatNamesAnotherVersionHoldsItselfUpAlone) {
    transport_->alter = [](const RemoteScript& script, Result<CommandResult> result) {
        if (!script.source && result.ok()) result->out = result->out.substr(0, 65);  // no file has a byte
        return result;
    };
    EXPECT_NE(stage().error().message.find("does not arrive"), std::string::npos) << stage().error().message;
    EXPECT_FALSE(is_of_facility(stage().error()));
    transport_->alter = [&](const RemoteScript&, Result<CommandResult> result) {
        result->out = version_ + "\n";
        for (const auto& file : manifest_of(file("model")).files)
            result->out += std::to_string(file.size) + " " + file.path + "\n";
        return result;
    };
    EXPECT_NE(stage().error().message.find("gets no name"), std::string::npos) << stage().error().message;
    fs::remove_all(staged());
    for (const std::string said : {"another\n", "\n", "x 7\n\xff\xfe", "99999999999999999999999 config.json\n"}) {
        transport_->alter = [&](const RemoteScript&, Result<CommandResult> result) {
            if (result.ok()) result->out = said;
            return result;
        };
        EXPECT_FALSE(stage().ok()) << said;
    }
    EXPECT_FALSE(fs::exists(staged()));
}

TEST_F(StreamSiteTest, TheStoresWordAboutAVersionIsToldFromItsTrouble) {
    version_ = std::string(64, '0');
    EXPECT_EQ(stage().error().code, ErrorCode::kNotFound);
    version_ = store_.add_version(file("model"));
    store_.set_refusal(http::Response::empty(503));
    EXPECT_EQ(stage().error().code, ErrorCode::kUnavailable);
    EXPECT_FALSE(is_of_facility(stage().error()));
    store_.set_refusal(http::Response::empty(401));
    EXPECT_EQ(stage().error().code, ErrorCode::kInternal) << "nothing about the version";
    store_.set_refusal({});
    const auto chunk = manifest_of(file("model")).find("config.json")->chunks.at(0);
    ASSERT_TRUE(write_file_atomic(store_.blob(chunk.sha256), std::string(chunk.size, 'x')).ok());
    EXPECT_EQ(stage().error().code, ErrorCode::kNotFound) << "not its bytes: " << stage().error().message;
}

TEST_F(StreamSiteTest, AProgramThatIsNotThereIsNoticedBeforeAnythingTravels) {
    fs::remove(file("atoll-trainer"));
    EXPECT_NE(stage().error().message.find("there is no atoll-trainer"), std::string::npos);
    EXPECT_EQ(transport_->bytes(), 0U);
}

TEST_F(StreamSiteTest, AnUpdateIsHandedInAsItWasSealedWithoutAProgramOrATokenOfTheSite) {
    make_update();
    const auto answer = push();
    ASSERT_TRUE(answer.ok() && !answer->error) << (answer.ok() ? answer->error->message : answer.error().message);
    const auto manifest = manifest_of(attempt() / "out");
    EXPECT_EQ(answer->digest, store_client::manifest_digest(manifest));
    const Json created = store_.created();
    EXPECT_EQ(created.at("kind"), "update");
    EXPECT_EQ(created.at("model"), "m");
    EXPECT_EQ(created.at("parents"), Json({version_}));
    EXPECT_EQ(created.at("job"), "job1");
    EXPECT_EQ(created.at("round"), 3);
    EXPECT_EQ(created.at("metrics"), Json({{"loss", 1.5}}));
    EXPECT_EQ(transport_->bytes(), manifest.size_bytes());
    EXPECT_FALSE(fs::exists(file("started")));
    EXPECT_EQ(transport_->said().find(store_.token()), std::string::npos);
    ASSERT_TRUE(push().ok()) << "an answer was lost";
    EXPECT_EQ(transport_->bytes(), manifest.size_bytes());
}

TEST_F(StreamSiteTest, AnUpdateGoesOnAtTheByteWhereItsConnectionBroke) {
    make_update();
    const std::uint64_t size = manifest_of(attempt() / "out").size_bytes();
    for (int i = 0; i < 10; ++i) transport_->marks.push_back(random_() % size);
    std::sort(transport_->marks.begin(), transport_->marks.end());
    auto answer = push();
    while (!answer.ok() && is_silence(answer.error())) answer = push();
    ASSERT_TRUE(answer.ok() && !answer->error);
    EXPECT_EQ(transport_->bytes(), size);
    EXPECT_TRUE(transport_->marks.empty());
}

TEST_F(StreamSiteTest, AnUpdateThatIsNotWhatWasSealedIsRefusedAndNothingElse) {
    make_update(1 << 20);
    transport_->alter_data = [](std::string bytes) {
        bytes.back() = static_cast<char>(bytes.back() + 1);
        return bytes;
    };
    expect_refused("is not what was sealed: it differs at byte 0");
    transport_->alter_data = [](const std::string& bytes) { return bytes + "more"; };
    expect_refused("");
    transport_->alter_data = [](const std::string& bytes) { return bytes.substr(1); };
    expect_refused("");
    EXPECT_EQ(store_.blobs_taken(), 0) << "the store was sent nothing";
    transport_->alter_data = {};
    fs::resize_file(attempt() / "out/model-00002-of-00002.safetensors", 7);
    expect_refused("not as they were sealed");
}

TEST_F(StreamSiteTest, MoreThanWasAskedForIsRefused) {
    make_update(1 << 20);
    transport_->alter = [](const RemoteScript& script, Result<CommandResult> result) {
        if (script.sink) script.sink("more");
        return result;
    };
    expect_refused("sends more of the update than it was asked for");
}

TEST_F(StreamSiteTest, ASealThatIsNoneRefusesTheUpdateWithItsReason) {
    make_update(1 << 20);
    for (const std::string& seal :
         {std::string("{"), std::string("7"), std::string("{\"manifest\":{\"schema\":1,\"files\":[]}}"),
          std::string(R"({"manifest":{"schema":1,"files":[{"path":"../../etc/passwd","size":1,"chunks":[]}]}})"),
          std::string(100000, '['), std::string(5U << 20, ' ')}) {
        ASSERT_TRUE(write_file_atomic(attempt() / "seal.json", seal).ok());
        expect_refused("");
    }
    EXPECT_EQ(transport_->bytes(), 0U);
}

TEST_F(StreamSiteTest, AnUpdateThatItsBatchJobDidNotSealIsSealedAtTheSiteOrRefusedByItsProgram) {
    make_update(1 << 20);
    fs::rename(attempt() / "seal.json", attempt() / "kept");
    program(
        R"(echo '{"refused":true,"error":{"code":"invalid-argument","detail":"w has NaN","field":"model"}}'; exit 2)");
    expect_refused("w has NaN");
    program("cp kept seal.json");
    const auto answer = push();
    ASSERT_TRUE(answer.ok() && !answer->error);
    EXPECT_EQ(read_file(file("started")).value(), "seal\nseal\n");
    fs::remove_all(attempt());
    fs::create_directories(file("work/tasks/t"));
    EXPECT_TRUE(push()->is_refused) << "what was trained is gone";
}

TEST_F(StreamSiteTest, TheStoresRefusalOfAnUpdateIsOneAndItsTroubleIsNone) {
    make_update(1 << 20);
    for (const int trouble : {503, 413}) {
        store_.set_refusal(http::Response::empty(trouble));
        const auto answer = push();
        ASSERT_TRUE(answer.ok() && answer->error);
        EXPECT_FALSE(answer->is_refused) << trouble << ": a proxy's";
    }
    store_.set_refusal(http::Response::problem({ErrorCode::kTooLarge, "has more bytes than a version may", "update"}));
    const auto answer = push();
    ASSERT_TRUE(answer.ok() && answer->error);
    EXPECT_TRUE(answer->is_refused);
}

TEST_F(StreamSiteTest, OneTaskOfAFacilityHasItsTurnAndSaysWhereItIs) {
    {
        const auto turn = turns_.take("leonardo");
        const auto moving = site().stage(order());
        ASSERT_TRUE(moving.ok() && moving->moving);
        EXPECT_EQ(moving->moving->bytes_done, 0);
        EXPECT_EQ(moving->moving->bytes_total, static_cast<std::int64_t>(size_));
        EXPECT_GT(moving->moving->next_in_ms.value_or(0), 0);
        make_update(1 << 20);
        EXPECT_TRUE(site().push({attempt().string(), "m", store_.url(), store_.token(), Json::object()})->moving);
        EXPECT_TRUE(turn->is_wanted());
    }
    EXPECT_EQ(transport_->bytes(), 0U);
    EXPECT_TRUE(stage().ok());
    const auto turn = turns_.take("leonardo");
    EXPECT_TRUE(stage().ok()) << "what is there needs no turn";
}

TEST(StreamTurnsTest, AFacilityHasOneAndAllFacilitiesHaveSoMany) {
    StreamTurns turns(2);
    auto one = turns.take("a");
    ASSERT_NE(one, nullptr);
    EXPECT_FALSE(one->is_wanted());
    EXPECT_EQ(turns.take("a"), nullptr);
    EXPECT_TRUE(one->is_wanted());
    one->in_hand() = {"digest", "bytes"};
    auto two = turns.take("b");
    ASSERT_NE(two, nullptr);
    EXPECT_FALSE(two->is_wanted());
    EXPECT_EQ(turns.take("c"), nullptr) << "workers are left for looks";
    one.reset();
    one = turns.take("a");
    ASSERT_NE(one, nullptr);
    EXPECT_EQ(one->in_hand().bytes, "bytes");
    EXPECT_FALSE(one->is_wanted());
}

TEST(SliceTest, AStepBeginsWithLittleAndGoesOnAtThePaceThatItFound) {
    Slice slice;
    EXPECT_EQ(slice.bytes(), 256U << 10);
    slice.note(256U << 10, std::chrono::milliseconds(100));
    EXPECT_GT(slice.bytes(), 30U << 20);
    EXPECT_LE(slice.bytes(), 50U << 20) << "20 seconds of it";
    slice.note(1000, std::chrono::seconds(10));
    EXPECT_EQ(slice.bytes(), 256U << 10);
    EXPECT_FALSE(slice.is_over());
    EXPECT_LE(slice.session_time(), std::chrono::seconds(50)) << "a step ends within a minute";
}

}  // namespace
}  // namespace atl::dispatch
