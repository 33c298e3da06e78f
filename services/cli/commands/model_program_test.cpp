#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/http/testing/test_server.h"
#include "shared/model_config/testing/tiny_model.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using http::Method;
using http::Request;
using http::Response;
using json::Json;

const std::string kDigest(64, 'a');

// `atoll model import` and `push` against a made-up store, which keeps what it is asked to do.
class ModelProgramTest : public testing::Test {
  protected:
    void SetUp() override { model_config::write_tiny_model(model_); }
    void write(const fs::path& file, const std::string& text) {
        ASSERT_TRUE(write_file_atomic(model_ / file, text).ok());
    }
    CommandResult run(const std::vector<std::string>& arguments) const {
        std::vector<std::string> all = {ATOLL_PROGRAM,  "--gateway",     server_.url(),
                                        "--token-file", token_.string(), "model"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        return run_command(all).value();
    }
    // That nothing is sent of the directory, and that `said` names why.
    void expect_refused(const std::vector<std::string>& said) {
        for (const char* command : {"import", "push"}) {
            const CommandResult result = run({command, "tiny", model_.string()});
            EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
            for (const std::string& words : said) EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
            const std::lock_guard lock(mutex_);
            EXPECT_EQ(calls_, std::vector<std::string>()) << result.err;
        }
    }

    void add_routes(http::Server& server) {
        const auto admins = http::Access::roles({auth::Role::kAdmin});
        const auto note = [this](const Request& request, const char* what) {
            const std::lock_guard lock(mutex_);
            calls_.emplace_back(what);
            if (!request.body.empty() && request.body.front() == '{') body_ = request.json().value();
        };
        server.route(Method::kGet, "/store/v1/models/:name", admins, [this](const Request& request) {
            ++models_read_;
            if (request.param("name") != "llama")
                return Response::problem(not_found("there is no such model", "model"));
            return Response::json(200, {{"name", "llama"}, {"tags", {{"final", kDigest}}}});
        });
        server.route(Method::kGet, "/store/v1/models", admins, [](const Request&) {
            return Response::json(200, {{"items", Json::array({Json{{"name", "llama"}}})}, {"next", nullptr}});
        });
        server.route(Method::kGet, "/store/v1/models/:name/versions/:version", admins, [](const Request& request) {
            if (request.param("version") == "finl" || request.param("version").starts_with("bbbb"))
                return Response::problem(not_found("no such version"));
            return Response::json(200, {{"digest", kDigest}, {"model", "llama"}});
        });
        server.route(Method::kPost, "/store/v1/models", admins, [note](const Request& request) {
            note(request, "made a model");
            return Response::json(201, Json::object());
        });
        server.route(Method::kPut, "/store/v1/models/:name/tags/:tag", admins, [this, note](const Request& request) {
            note(request, "moved a tag");
            if (is_tagged_meanwhile_) return Response::problem(conflict("the tag is on another version", "tag"));
            return Response::json(200, {{"digest", kDigest}});
        });
        server.route(Method::kPost, "/store/v1/blobs/missing", admins, [note](const Request& request) {
            note(request, "asked for blobs");
            return Response::json(200, {{"missing", Json::array()}});
        });
        server.route(Method::kPost, "/store/v1/models/:name/versions", admins, [this, note](const Request& request) {
            note(request, "made a version");
            if (is_refusing_) return Response::problem(invalid_argument("manifest", "is no model"));
            const Json body = request.json().value();
            const bool is_known = is_stored_before_;
            return Response::json(201, {{"digest", kDigest},
                                        {"size", 100},
                                        {"kind", is_known ? Json("base") : body.at("kind")},
                                        {"parents", is_known ? Json::array() : body.at("parents")},
                                        {"tags", Json::array()}});
        });
    }

    std::mutex mutex_;
    std::vector<std::string> calls_;  // what changes something, or may send something
    Json body_;                       // of the last of them
    std::atomic<bool> is_refusing_ = false;
    std::atomic<bool> is_tagged_meanwhile_ = false;
    std::atomic<bool> is_stored_before_ = false;  // as a base without parents
    std::atomic<int> models_read_ = 0;
    TemporaryDirectory directory_;
    fs::path model_ = directory_.path() / "model";
    http::TestServer server_{[this](http::Server& server) { add_routes(server); }};
    fs::path token_ = [this] {
        auto file = directory_.path() / "token";
        EXPECT_TRUE(write_file_atomic(file, server_.token(auth::Role::kAdmin)).ok());
        return file;
    }();
};

TEST_F(ModelProgramTest, AModelIsMadeWithItsFirstVersionSoThatARefusedOneLeavesNone) {
    is_refusing_ = true;
    const CommandResult refused = run({"import", "tiny", model_.string(), "--description", "for tests"});
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    is_refusing_ = false;
    const CommandResult made = run({"import", "tiny", model_.string(), "--description", "for tests"});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(std::count(calls_.begin(), calls_.end(), "made a model"), 0);
    EXPECT_EQ(body_.at("new_model"), (Json{{"description", "for tests"}}));
}

TEST_F(ModelProgramTest, AParentIsNamedAsAVersionIsAnywhere) {
    EXPECT_EQ(run({"push", "tiny", model_.string(), "--parent", "llama@round3"}).exit_code, 0);
    for (const std::string& given : {std::string("aaaaaaaa"), std::string("AAAAAAAA"), kDigest}) {
        EXPECT_EQ(run({"push", "tiny", model_.string(), "--parent", given}).exit_code, 0) << given;
        const std::lock_guard lock(mutex_);
        EXPECT_EQ(body_.at("parents"), Json::array({kDigest})) << given;
    }
    for (const auto& [given, said] : {std::pair{"bbbbbbbb", "--parent: no version of a model begins with bbbbbbbb"},
                                      {"llama@finl", "--parent: no such version"},
                                      {"lama", "--parent: there is no model lama"}}) {
        const CommandResult unknown = run({"push", "tiny", model_.string(), "--parent", given});
        EXPECT_NE(unknown.exit_code, 0) << given;
        EXPECT_NE(unknown.err.find(said), std::string::npos) << unknown.err;
    }
}

TEST_F(ModelProgramTest, AVersionThatIsThereAlreadyKeepsItsKindAndParentsWhichIsSaid) {
    EXPECT_EQ(run({"push", "tiny", model_.string(), "--kind", "global"}).exit_code, 0);
    is_stored_before_ = true;
    const CommandResult kind = run({"push", "tiny", model_.string(), "--kind", "global", "--tag", "best"});
    EXPECT_EQ(kind.exit_code, 1) << kind.out;
    EXPECT_NE(kind.err.find("--kind: tiny@aaaaaaaaaaaaaaaa holds these files already as base"), std::string::npos)
        << kind.err;
    const CommandResult parent = run({"push", "tiny", model_.string(), "--parent", "llama@round3"});
    EXPECT_NE(parent.err.find("--parent: tiny@aaaaaaaaaaaaaaaa holds these files already, with no parent"),
              std::string::npos)
        << parent.err;
    EXPECT_EQ(run({"push", "tiny", model_.string()}).exit_code, 0) << "nothing else was asked for";
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(std::count(calls_.begin(), calls_.end(), "moved a tag"), 0);
}

TEST_F(ModelProgramTest, ATagThatIsOnAnotherVersionMovesOnlyWhenThatIsSaid) {
    for (const char* command : {"import", "push"}) {
        const CommandResult refused = run({command, "llama", model_.string(), "--tag", "final"});
        EXPECT_NE(refused.exit_code, 0) << refused.out;
        EXPECT_NE(refused.err.find("--tag: llama@final is another version, aaaaaaaaaaaaaaaa"), std::string::npos)
            << refused.err;
        EXPECT_NE(refused.err.find("--move-tag"), std::string::npos) << refused.err;
        const std::lock_guard lock(mutex_);
        EXPECT_EQ(calls_, std::vector<std::string>()) << "nothing travelled";
    }
    const CommandResult moved = run({"push", "llama", model_.string(), "--tag", "final", "--move-tag"});
    EXPECT_EQ(moved.exit_code, 0) << moved.err;
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(body_, (Json{{"digest", kDigest}, {"move", true}}));
}

TEST_F(ModelProgramTest, ATagThatSomebodyTakesMeanwhileIsLeftWhereItIs) {
    is_tagged_meanwhile_ = true;
    const CommandResult raced = run({"import", "llama", model_.string(), "--tag", "v1"});
    EXPECT_EQ(raced.exit_code, 1) << raced.out;
    EXPECT_NE(raced.err.find("is stored, but not as v1, which somebody has put on another version meanwhile"),
              std::string::npos)
        << raced.err;
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(body_.at("move"), false);
    EXPECT_EQ(models_read_, 1);
}

TEST_F(ModelProgramTest, ItIsSaidHowLongTheCheckTook) {
    const CommandResult taken = run({"push", "tiny", model_.string()});
    EXPECT_NE(taken.out.find(" of it sent, checked in "), std::string::npos) << taken.out;
    const Json json = Json::parse(run({"push", "tiny", model_.string(), "--json"}).out);
    EXPECT_TRUE(json.at("check_seconds").is_number());
}

TEST_F(ModelProgramTest, AnAdapterHasAConfigurationOfItsOwn) {
    fs::rename(model_ / "config.json", model_ / "adapter_config.json");
    fs::rename(model_ / "model.safetensors", model_ / "adapter_model.safetensors");
    expect_refused({"is an adapter (adapter_config.json): say of which model, --adapter-of"});
    model_config::write_tiny_model(model_, 320, std::string("\0\0\x80\x7f", 4));  // infinities
    fs::rename(model_ / "model.safetensors", model_ / "adapter_model.safetensors");
    fs::remove(model_ / "config.json");
    {
        const std::lock_guard lock(mutex_);
        calls_.clear();
    }
    const auto push_adapter = [&] { return run({"push", "tiny", model_.string(), "--adapter-of", "llama@final"}); };
    const CommandResult infinite = push_adapter();
    EXPECT_EQ(infinite.exit_code, 2) << infinite.out;
    for (const char* said : {"adapter_model.safetensors", "holds a value that is not finite, at element 0"})
        EXPECT_NE(infinite.err.find(said), std::string::npos) << infinite.err;
    fs::rename(model_ / "adapter_model.safetensors", model_ / "adapter_model.bin");
    const CommandResult torch = push_adapter();
    EXPECT_NE(torch.err.find("atoll-trainer import --from " + model_.string()), std::string::npos) << torch.err;
    fs::rename(model_ / "adapter_model.bin", model_ / "adapter_model.safetensors");
    fs::remove(model_ / "adapter_config.json");
    expect_refused({"has no config.json"});
    const CommandResult no_adapter = push_adapter();
    EXPECT_EQ(no_adapter.exit_code, 2) << no_adapter.out;
    EXPECT_NE(no_adapter.err.find(model_.string() + " has no adapter_config.json, so it is no adapter"),
              std::string::npos)
        << no_adapter.err;
}

TEST_F(ModelProgramTest, NewestIsNoTag) {
    const std::string directory = model_.string();
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{"import", "llama", directory, "--tag", "newest"},
                                               {"push", "llama", directory, "--tag", "newest"},
                                               {"tag", "llama@final", "newest"}}) {
        const CommandResult result = run(arguments);
        EXPECT_EQ(result.exit_code, 2) << result.out;
        EXPECT_NE(result.err.find("'newest' always means the newest one; choose another"), std::string::npos)
            << result.err;
    }
}

TEST_F(ModelProgramTest, AVersionIsWhatTheStoreTakesForOne) {
    const CommandResult shown = run({"show", "llama@round3", "--json"});
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_NE(shown.out.find(kDigest), std::string::npos) << shown.out;
    const CommandResult unknown = run({"show", "llama@finl"});
    EXPECT_EQ(unknown.exit_code, 2);
    EXPECT_NE(unknown.err.find("no such version; did you mean final?"), std::string::npos) << unknown.err;
}

TEST_F(ModelProgramTest, NothingOfElsewhereThatALinkNamesIsSent) {
    const fs::path secret = directory_.path() / "secret";
    ASSERT_TRUE(write_file_atomic(secret, "{}").ok());
    const fs::path link = model_ / "special_tokens_map.json";
    fs::create_symlink(secret, link);
    expect_refused({link.string(), secret.string(), "outside the directory", "cp -rL"});
    const CommandResult pushed = run({"push", "tiny", model_.string()});
    EXPECT_EQ(pushed.exit_code, 2) << "nor by push";
    fs::remove(link);
    fs::create_directory_symlink(directory_.path(), model_ / "more");
    expect_refused({"more", "outside the directory"});
    fs::remove(model_ / "more");
    fs::create_symlink("nowhere", link);
    expect_refused({link.string(), "leads nowhere"});
}

TEST_F(ModelProgramTest, OnlyFilesAreSent) {
    ASSERT_EQ(::mkfifo((model_ / "pipe").c_str(), 0600), 0);
    expect_refused({"pipe", "neither a file nor a directory"});
}

TEST_F(ModelProgramTest, LinksWithinTheDirectoryAndIntoTheCacheOfHuggingFaceAreFollowed) {
    fs::rename(model_ / "model.safetensors", model_ / "weights");
    fs::create_symlink("weights", model_ / "model.safetensors");
    EXPECT_EQ(run({"import", "tiny", model_.string()}).exit_code, 0);
    const fs::path cache = directory_.path() / "models--tiny";
    const fs::path snapshot = cache / "snapshots/0123abcd";
    fs::create_directories(snapshot);
    fs::create_directories(cache / "blobs");
    for (const char* file : {"config.json", "model.safetensors"}) {
        fs::copy_file(model_ / file, cache / "blobs" / file);
        fs::create_symlink(fs::path("../../blobs") / file, snapshot / file);
    }
    const CommandResult imported = run({"import", "tiny", snapshot.string()});
    EXPECT_EQ(imported.exit_code, 0) << imported.err;
    // Where `blobs` is a link, whoever made it chose what would be sent.
    fs::rename(cache / "blobs", directory_.path() / "elsewhere");
    fs::create_directory_symlink(directory_.path() / "elsewhere", cache / "blobs");
    const CommandResult refused = run({"import", "tiny", snapshot.string()});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("outside the directory"), std::string::npos) << refused.err;
}

TEST_F(ModelProgramTest, EachJsonFileIsJson) {
    write("special_tokens_map.json", "root:x:0:0");
    expect_refused({"special_tokens_map.json", "is not JSON"});
    write("special_tokens_map.json", "{}");
    write("tokenizer.json", "{}");
    std::filesystem::resize_file(model_ / "tokenizer.json", 65U << 20);
    expect_refused({"tokenizer.json: has 65.0 MiB", "at most 64.0 MiB"});
}

TEST_F(ModelProgramTest, WhatTheTrainerCouldNotReadIsRefusedByItsKey) {
    for (const auto& [member, value, said] :
         {std::tuple<std::string, Json, std::string>{"num_hidden_layers", 1LL << 31, " must be between 1 and 4096"},
          {"hidden_size", 1LL << 40, " must be between"},
          {"vocab_size", 1LL << 62, " must be between"},
          {"num_attention_heads", -1, " must be between"},
          {"intermediate_size", 0, " must be between"},
          {"head_dim", 2.5, " must be an integer"},
          {"vocab_size", "many", " must be an integer"},
          {"model_type", "gpt2", " 'gpt2' is not built"},
          {"partial_rotary_factor", 0.5, " is not a key of a Llama model that Atoll knows"}}) {
        Json config = Json::parse(model_config::kTinyConfig);
        config[member] = value;
        write("config.json", config.dump());
        expect_refused({"config.json: " + member + said});
    }
}

TEST_F(ModelProgramTest, WeightsThatAreNotThoseOfItsConfigurationAreRefusedByTheirTensor) {
    Json config = Json::parse(model_config::kTinyConfig);
    config["hidden_size"] = 16;
    write("config.json", config.dump());
    expect_refused({"model.safetensors", "tensor \"model.embed_tokens.weight\" has the shape [320, 8]", "[320, 16]"});
    model_config::write_tiny_model(model_, 320, std::string("\0\0\x80\x7f", 4));  // infinities
    expect_refused({"model.safetensors", "holds a value that is not finite, at element 0"});
}

// A trainer leaves it out, and an update without a tensor of its base is refused.
TEST_F(ModelProgramTest, ATensorThatNoUpdateWouldHaveIsRefused) {
    std::string untied = model_config::kTinyConfig;
    untied.replace(untied.find("true"), 4, "false");
    std::vector<safetensors::TensorInfo> infos;
    for (const auto& tensor : model_config::tensors_of(model_config::parse_config(untied).value()))
        infos.push_back({.name = tensor.name, .shape = tensor.shape});
    ASSERT_EQ(infos.back().name, model_config::kHeadWeight);
    auto writer = safetensors::Writer::create(model_ / "model.safetensors", infos).value();
    for (const auto& info : infos) {
        const std::string zeros(static_cast<std::size_t>(info.element_count()) * 4, '\0');
        ASSERT_TRUE(writer.append(std::as_bytes(std::span(zeros))).ok());
    }
    ASSERT_TRUE(writer.finish().ok());
    expect_refused({"model.safetensors", "lm_head.weight", "--steps 0"});
}

TEST_F(ModelProgramTest, ATokenizerOfAnotherModelIsRefusedAndNoneAtAllIsSaid) {
    const std::string none = run({"import", "tiny", model_.string()}).err;
    EXPECT_NE(none.find("has no tokenizer"), std::string::npos) << none;
    // Which ids it has: of each kind of file the last that fits, then one more.
    const auto pieces = [](int count) {
        std::string model;
        for (int i = 0; i < count; ++i) model += std::string("\x0a\x03\x0a\x01", 4) + 'x';
        return model;
    };
    const auto vocabulary = [](int last) { return Json{{"a", 0}, {"b", last}}; };
    const auto tokenizer = [&](int last, int added) {
        return Json{{"model", {{"vocab", vocabulary(last)}}}, {"added_tokens", {{{"id", added}}}}}.dump();
    };
    const auto decoder = [](const char* id) {
        return Json{{"added_tokens_decoder", {{"2", {{"content", "</s>"}}}, {id, {{"content", "<new>"}}}}}}.dump();
    };
    struct Case {
        const char* file;
        std::string fits, exceeds;
    };
    for (const Case& kind : {Case{"vocab.json", vocabulary(319).dump(), vocabulary(320).dump()},
                             {"tokenizer.model", pieces(320), pieces(321)},
                             {"tokenizer.json", tokenizer(319, 2), tokenizer(320, 2)},
                             {"tokenizer.json", tokenizer(2, 319), tokenizer(2, 320)},
                             {"added_tokens.json", vocabulary(319).dump(), vocabulary(320).dump()},
                             {"tokenizer_config.json", decoder("319"), decoder("320")}}) {
        write(kind.file, kind.exceeds);
        {
            const std::lock_guard lock(mutex_);
            calls_.clear();
        }
        expect_refused({"the tokenizer has the token 320, but config.json's vocab_size is 320"});
        write(kind.file, kind.fits);
        const CommandResult taken = run({"import", "tiny", model_.string()});
        EXPECT_EQ(taken.exit_code, 0) << kind.file << taken.err;
        EXPECT_EQ(taken.err.find("has the token"), std::string::npos) << taken.err;
    }
    write("added_tokens.json", vocabulary(320).dump());
    EXPECT_EQ(run({"import", "tiny", model_.string()}).exit_code, 0) << "the decoder stands in its place";
    write("tokenizer_config.json", "{}");
    {
        const std::lock_guard lock(mutex_);
        calls_.clear();
    }
    expect_refused({"the tokenizer has the token 320, but config.json's vocab_size is 320"});
    fs::remove(model_ / "tokenizer.json");
    fs::remove(model_ / "vocab.json");
    write("tokenizer.model", "not a protocol buffer");
    EXPECT_NE(run({"import", "tiny", model_.string()}).err.find("is no SentencePiece model"), std::string::npos);
}

TEST_F(ModelProgramTest, OfATokenizerThatTheTrainerCannotReadIsWarned) {
    if (!fs::exists(fs::path(ATOLL_PROGRAM).parent_path() / "atoll-trainer")) GTEST_SKIP() << "there is no trainer";
    const auto warnings = [&] {
        const CommandResult imported = run({"import", "tiny", model_.string()});
        EXPECT_EQ(imported.exit_code, 0) << imported.err;
        return imported.err;
    };
    const Json vocabulary = {{"a", 0}, {"b", 1}};
    write("tokenizer.json", Json{{"model", {{"type", "WordPiece"}, {"vocab", vocabulary}}}}.dump());
    const std::string pieces = warnings();
    EXPECT_NE(pieces.find("no dataset can be prepared for this model, as its tokenizer cannot be read: "),
              std::string::npos)
        << pieces;
    EXPECT_NE(pieces.find("tokenizer.json: model.type: \"WordPiece\" is not supported"), std::string::npos) << pieces;
    write("tokenizer.json",
          Json{{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}}.dump());
    EXPECT_EQ(warnings(), "");
    write("tokenizer_config.json", R"({"eos_token": "<nope>"})");
    EXPECT_NE(warnings().find("<nope>"), std::string::npos);
    fs::remove(model_ / "tokenizer_config.json");
    fs::remove(model_ / "tokenizer.json");
    write("tokenizer.model", std::string("\x0a\x03\x0a\x01", 4) + "x");
    EXPECT_NE(warnings().find("cannot be read"), std::string::npos) << "a model that is cut off";
}

TEST_F(ModelProgramTest, ANameThatSteersATerminalIsRefused) {
    write("a\xE2\x80\xAEtxt.json", "{}");
    const CommandResult result = run({"import", "tiny", model_.string()});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("cannot hold the name"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("\xE2\x80\xAE"), std::string::npos) << "nor is it shown";
}

}  // namespace
}  // namespace atl::cli
