#include "trainer/tokenizer/tokenizer_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "trainer/tokenizer/bpe_parts.h"
#include "trainer/tokenizer/tokenizer.h"

// Ids are those of transformers 5.23.0 (tokenizers 0.23.3), AutoTokenizer.from_pretrained(…,
// split_special_tokens=True), for the same directories.
namespace atl::tokenizer {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

const std::filesystem::path kConfigFixtures = std::filesystem::path(ATOLL_FIXTURES) / "tokenizers";

Json token(const char* content, bool special = false, bool strips = false) {
    return {{"content", content}, {"special", special}, {"normalized", false},
            {"lstrip", strips},   {"rstrip", strips},   {"single_word", false}};
}
const Json kLlamaTokens = {{"0", token("<unk>", true)}, {"1", token("<s>", true)}, {"2", token("</s>", true)}};

class TokenizerConfigTest : public testing::Test {
  protected:
    void take(const char* fixture) {
        for (const auto& file : std::filesystem::directory_iterator(directory_.path()))
            std::filesystem::remove(file.path());
        for (const auto& file : std::filesystem::directory_iterator(kConfigFixtures / fixture))
            std::filesystem::copy_file(file.path(), directory_.path() / file.path().filename());
        config_ = Json::parse(read_file(path("tokenizer_config.json")).value());
    }
    std::filesystem::path path(const char* name) const { return directory_.path() / name; }
    void write(const char* name, const Json& value) const {
        check(write_file_atomic(path(name), value.dump()).ok(), "cannot write a test's file");
    }
    Result<std::unique_ptr<Tokenizer>> open() const {
        write("tokenizer_config.json", config_);
        return Tokenizer::open(directory_.path());
    }
    Ids ids_of(const char* text) const {
        Ids ids;
        const auto tokenizer = open();
        check(tokenizer.ok(), tokenizer.ok() ? "" : tokenizer.error().message);
        check((*tokenizer)->encode(text, ids).ok(), "cannot encode");
        return ids;
    }
    std::optional<std::int32_t> eos() const { return open().value()->eos(); }
    std::string refusal() const {
        const auto tokenizer = open();
        return tokenizer.ok() ? "opened" : tokenizer.error().message;
    }

    TemporaryDirectory directory_;
    Json config_;
};

TEST_F(TokenizerConfigTest, AJsonTokenizerHasTheTokensThatTheConfigAdds) {
    take("llama3");
    EXPECT_EQ(ids_of("the<new>the"), (Ids{83, 265, 27, 267, 86, 29, 83, 265}));
    config_["added_tokens_decoder"] = {{"426", token("<new>")}};
    EXPECT_EQ(ids_of("the<new>the"), (Ids{83, 265, 426, 83, 265}));
    EXPECT_EQ(open().value()->vocab_size(), 427);
    write("added_tokens.json", {{"<tool>y", 426}});
    EXPECT_EQ(ids_of("<tool>y"), (Ids{424, 88})) << "an added_tokens_decoder stands in the place of added_tokens.json";
    config_.erase("added_tokens_decoder");
    EXPECT_EQ(ids_of("<tool>y"), (Ids{426}));
}

TEST_F(TokenizerConfigTest, TheConfigsFlagsWinOverThoseOfTokenizerJson) {
    take("llama3");
    EXPECT_EQ(ids_of("a <tool> b"), (Ids{64, 220, 424, 285}));
    config_["added_tokens_decoder"] = {{"424", token("<tool>", true)}};
    EXPECT_EQ(ids_of("a <tool> b"), (Ids{64, 220, 27, 83, 78, 78, 75, 29, 285})) << "a special one stays text";
    config_["added_tokens_decoder"] = {{"422", token("<|pad|>")}};
    EXPECT_EQ(ids_of("a <|pad|> b"), (Ids{64, 220, 27, 91, 79, 373, 91, 29, 285})) << "what is special stays it";
    config_.erase("added_tokens_decoder");
    write("added_tokens.json", {{"<tool>x", 424}});
    EXPECT_EQ(ids_of("a <tool> b"), (Ids{64, 220, 424, 285})) << "added_tokens.json does not win";
}

// As transformers 5.23 reads each.
TEST_F(TokenizerConfigTest, TheClassDecidesWhatADecoderAndListsAre) {
    const auto parts_of = [](const char* tokenizer_class, nlohmann::json more, nlohmann::json map = nullptr) {
        BpeParts parts;
        parts.vocab = {{"a", 0}};
        parts.added_tokens = {{.id = 1, .content = "<x>", .special = true}, {.id = 2, .content = "<y>"}};
        more["tokenizer_class"] = tokenizer_class;
        const auto config = parse_tokenizer_config({std::move(more), std::move(map), nullptr});
        EXPECT_TRUE(config.ok() && apply_config(*config, parts).ok()) << tokenizer_class;
        return parts;
    };
    const nlohmann::json decoder = {{"added_tokens_decoder", {{"1", {{"content", "<x>"}}}}}};
    for (const char* own : {"LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "CodeGenTokenizer",
                            "GPTNeoXTokenizerFast", "CohereTokenizer", "GPT2Tokenizer", "Qwen2TokenizerFast"}) {
        const BpeParts parts = parts_of(own, decoder);
        ASSERT_EQ(parts.added_tokens.size(), 1U) << own;
        EXPECT_FALSE(parts.added_tokens[0].special) << own;
    }
    EXPECT_EQ(parts_of("PreTrainedTokenizerFast", decoder).added_tokens.size(), 2U);
    EXPECT_TRUE(parts_of("PreTrainedTokenizerFast", decoder).added_tokens[0].special);
    for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
        const nlohmann::json list = {{key, {"<y>"}}};
        for (const char* takes : {"Qwen2Tokenizer", "Qwen2TokenizerFast", "CohereTokenizerFast"})
            EXPECT_TRUE(parts_of(takes, list).added_tokens[1].special) << takes << " " << key;
        EXPECT_FALSE(parts_of("GPT2Tokenizer", list).added_tokens[1].special) << key;
    }
    const nlohmann::json map = {{"additional_special_tokens", {"<y>"}}};
    EXPECT_TRUE(parts_of("Qwen2Tokenizer", nlohmann::json::object(), map).added_tokens[1].special);
    EXPECT_FALSE(parts_of("LlamaTokenizer", nlohmann::json::object(), map).added_tokens[1].special);
}

TEST_F(TokenizerConfigTest, ATokenWithARoleIsSpecial) {
    take("llama3");
    const Ids text = {64, 220, 27, 83, 78, 78, 75, 29, 285};
    for (const char* role : {"eos_token", "pad_token", "image_token"}) {
        const Json before = config_;
        config_[role] = "<tool>";
        EXPECT_EQ(ids_of("a <tool> b"), text) << role;
        config_ = before;
    }
    config_["extra_special_tokens"] = {{"image_token", "<tool>"}};
    EXPECT_EQ(ids_of("a <tool> b"), text);
    config_.erase("extra_special_tokens");
    config_["additional_special_tokens"] = {"<tool>"};
    EXPECT_EQ(ids_of("a <tool> b"), (Ids{64, 220, 424, 285})) << "a list gives no role";
    config_["eos_token"] = "<tool>";
    config_["added_tokens_decoder"] = {{"424", token("<tool>")}};
    EXPECT_EQ(ids_of("<tool><tool>x"), (Ids{27, 83, 78, 78, 75, 29, 425}));
}

TEST_F(TokenizerConfigTest, TheEndTokenIsThatOfTheFileThatCounts) {
    take("llama3");
    config_["eos_token"] = "<|end_of_text|>";
    write("special_tokens_map.json", {{"eos_token", {{"content", "<|pad|>"}}}});
    EXPECT_EQ(eos(), 422);
    config_["added_tokens_decoder"] = {{"424", token("<tool>")}};
    EXPECT_EQ(eos(), 421) << "special_tokens_map.json is of before added_tokens_decoder";
    config_["eos_token"] = nullptr;
    EXPECT_EQ(eos(), std::nullopt);
    config_["eos_token"] = token("<tool>");
    EXPECT_EQ(eos(), 424);
}

TEST_F(TokenizerConfigTest, ARolesTokenOfAnotherTypeIsRefusedAsByTransformers) {
    take("llama3");
    const Json before = config_;
    for (const Json& value : {Json{"a"}, Json(5), Json(false)}) {
        config_ = before;
        config_["eos_token"] = value;
        EXPECT_NE(refusal().find("tokenizer_config.json: eos_token: is neither a string nor an object"),
                  std::string::npos)
            << refusal();
        config_ = before;
        config_["image_token"] = value;
        EXPECT_EQ(refusal(), "opened") << "no role that transformers has";
    }
    config_ = before;
    write("special_tokens_map.json", {{"pad_token", 5}});
    EXPECT_NE(refusal().find("special_tokens_map.json: pad_token: "), std::string::npos) << refusal();
}

TEST_F(TokenizerConfigTest, AModelHasTheTokensThatTheConfigAdds) {
    take("small");
    EXPECT_EQ(eos(), 2);
    config_["added_tokens_decoder"] = kLlamaTokens;
    config_["added_tokens_decoder"].update({{"480", token("<|im_end|>", true)}, {"481", token("<tool>")}});
    config_["eos_token"] = "<|im_end|>";
    EXPECT_EQ(eos(), 480);
    EXPECT_EQ(ids_of("a <tool> b"), (Ids{263, 399, 481, 283}));
    EXPECT_EQ(ids_of("the<tool>the"), (Ids{287, 481, 403, 266}));
    EXPECT_EQ(ids_of("<tool> the"), (Ids{481, 287}));
    EXPECT_EQ(ids_of("a<|im_end|>b"), (Ids{263, 462, 127, 407, 411, 98, 356, 405, 127, 463, 423}));
    const auto tokenizer = open().value();
    EXPECT_EQ(tokenizer->vocab_size(), 482);
    EXPECT_EQ(tokenizer->decode(Ids{1, 263, 481, 283, 480}), "a<tool> b");
    Ids document;
    check(tokenizer->encode_document("a", document).ok(), "cannot encode");
    EXPECT_EQ(document, (Ids{1, 263, 480}));
    config_["legacy"] = true;
    EXPECT_EQ(ids_of("the<tool>the"), (Ids{287, 481, 287})) << "a space comes before each text";
    EXPECT_EQ(ids_of("<tool> the"), (Ids{481, 287})) << "but no second one";
}

TEST_F(TokenizerConfigTest, OlderFilesBesideAModelCountAsWell) {
    take("small");
    write("added_tokens.json", {{"<|im_end|>", 480}, {"<tool>", 481}});
    write("special_tokens_map.json", {{"eos_token", {{"content", "<|im_end|>"}}}});
    EXPECT_EQ(eos(), 480);
    EXPECT_EQ(ids_of("a <tool> b<|im_end|>"), (Ids{263, 399, 481, 283, 462, 127, 407, 411, 98, 356, 405, 127, 463}));
}

TEST_F(TokenizerConfigTest, ATokenMayTakeTheWhiteSpaceBesideIt) {
    take("small");
    config_["added_tokens_decoder"] = kLlamaTokens;
    config_["added_tokens_decoder"]["480"] = token("<tool>", false, true);
    EXPECT_EQ(ids_of("a  <tool>  <tool> b"), (Ids{263, 480, 480, 423}));
    EXPECT_EQ(ids_of("<tool> the"), (Ids{480, 403, 266}));
    take("qwen");
    config_["added_tokens_decoder"] = {{"423", token("<tool>", false, true)}};
    EXPECT_EQ(ids_of("a  <tool>  \u00a0 b<tool>  <tool> c"), (Ids{64, 423, 65, 423, 423, 66}));
    EXPECT_EQ(ids_of("\u3000<tool>"), (Ids{423}));
    EXPECT_EQ(ids_of(" <tool>x"), (Ids{220, 424}));
}

TEST_F(TokenizerConfigTest, AControlPieceThatIsNotSpecialIsFound) {
    take("small");  // as Phi-3 has it
    config_["added_tokens_decoder"] = kLlamaTokens;
    config_["added_tokens_decoder"]["2"] = {{"content", "</s>"}, {"rstrip", true}};
    config_["added_tokens_decoder"]["480"] = token("<|im_end|>", true);
    config_["eos_token"] = "<|im_end|>";
    EXPECT_EQ(ids_of("a </s> b"), (Ids{263, 399, 2, 423}));
    config_["eos_token"] = "</s>";
    EXPECT_EQ(ids_of("a </s> b"), (Ids{263, 398, 50, 409, 463, 283})) << "the end token stays text";
}

TEST_F(TokenizerConfigTest, AnIdThatTransformersWouldNotGiveIsRefused) {
    for (const char* fixture : {"small", "llama3"}) {
        take(fixture);
        config_["added_tokens_decoder"] = {{"490", token("<new>")}};
        EXPECT_NE(refusal().find("\"<new>\" has the id 490, but transformers gives it 4"), std::string::npos)
            << refusal();
    }
    config_["added_tokens_decoder"] = {{"423", token("<tool>")}};
    EXPECT_NE(refusal().find("\"<tool>\" has the id 423, but transformers gives it 424"), std::string::npos)
        << refusal();
}

TEST_F(TokenizerConfigTest, AJsonBesideAModelTellsItsAddedTokens) {
    take("small");
    Json tokens = Json::array();
    for (const auto& [id, content] : {std::pair(480, "<|im_end|>"), {481, "<tool>"}}) {
        tokens.push_back(token(content, id == 480));
        tokens.back()["id"] = id;
    }
    write("tokenizer.json", {{"added_tokens", tokens}, {"post_processor", nullptr}});
    config_["eos_token"] = "<|im_end|>";
    EXPECT_EQ(ids_of("a<tool>b"), (Ids{263, 481, 423}));
    EXPECT_EQ(eos(), 480);
    config_["eos_token"] = "</s>";
    config_["added_tokens_decoder"] = kLlamaTokens;
    EXPECT_EQ(ids_of("a<tool>b"), (Ids{263, 462, 403, 402, 402, 404, 463, 423}))
        << "ignored if tokenizer_config.json has an added_tokens_decoder";
}

TEST_F(TokenizerConfigTest, TheClassDecidesWhoseAddPrefixSpaceCounts) {
    take("gpt2");
    const Ids with = {287, 423, 287}, without = {83, 264, 423, 83, 264};
    for (const bool in_json : {true, false}) {
        Json tokenizer = Json::parse(read_file(path("tokenizer.json")).value());
        tokenizer["pre_tokenizer"]["add_prefix_space"] = in_json;
        write("tokenizer.json", tokenizer);
        for (const bool in_config : {true, false}) {
            config_["add_prefix_space"] = in_config;
            for (const char* name : {"GPT2Tokenizer", "GPT2TokenizerFast", "Qwen2TokenizerFast"}) {
                config_["tokenizer_class"] = name;
                if (in_config && name[0] == 'Q') continue;
                EXPECT_EQ(ids_of("the<tool>the"), in_config ? with : without) << name << in_json << in_config;
            }
            config_["tokenizer_class"] = "PreTrainedTokenizerFast";
            EXPECT_EQ(ids_of("the<tool>the"), in_json ? with : without) << in_json << in_config;
        }
        config_.erase("add_prefix_space");
        config_["tokenizer_class"] = "GPT2Tokenizer";
        EXPECT_EQ(ids_of("the<tool>the"), without) << "its default is none";
    }
    config_["added_tokens_decoder"] = {{"420", token("</s>", true)}};
    EXPECT_EQ(ids_of("a<tool>b"), (Ids{64, 27, 83, 78, 78, 75, 29, 65}))
        << "this class reads added tokens only from added_tokens_decoder";
}

TEST_F(TokenizerConfigTest, WithoutAPrefixSpaceNothingIsTakenFromDecodedTexts) {
    for (const char* fixture : {"small", "saved"}) {
        take(fixture);
        config_["tokenizer_class"] = "LlamaTokenizer";
        const Ids ids = {403, 266, 399, 316, 326, 315};  // "the weights" without a space before it
        const Ids spaced = {287, 399, 316, 326, 315};
        EXPECT_EQ(ids_of("the weights"), spaced) << fixture;
        EXPECT_EQ(open().value()->decode(spaced), "the weights") << fixture;
        const std::string before = open().value()->sha256();
        config_["add_prefix_space"] = false;
        EXPECT_EQ(ids_of("the weights"), ids) << fixture;
        EXPECT_EQ(ids_of(" the weights"), spaced) << fixture;
        EXPECT_EQ(open().value()->decode(ids), "the weights") << fixture;
        EXPECT_EQ(open().value()->decode(spaced), " the weights") << fixture;
        EXPECT_NE(open().value()->sha256(), before) << fixture;
    }
}

TEST_F(TokenizerConfigTest, OfAModelAndAJsonThatDifferTheJsonCounts) {
    take("saved");
    std::filesystem::copy_file(kConfigFixtures / "small/tokenizer.model", path("tokenizer.model"));
    config_["tokenizer_class"] = "LlamaTokenizer";
    Json tokenizer = Json::parse(read_file(path("tokenizer.json")).value());
    const Json same = tokenizer;
    EXPECT_EQ(open().value()->file().filename(), "tokenizer.json") << "the steps are those of the class";
    config_["legacy"] = true;
    EXPECT_EQ(open().value()->file().filename(), "tokenizer.model");
    config_["legacy"] = false;
    tokenizer["pre_tokenizer"] = nullptr;
    tokenizer["normalizer"] = {{"type", "Prepend"}, {"prepend", "\u2581"}};
    write("tokenizer.json", tokenizer);
    EXPECT_EQ(open().value()->file().filename(), "tokenizer.model") << "the steps are those of transformers 4";
    tokenizer["model"]["vocab"]["<newer>"] = 480;
    write("tokenizer.json", tokenizer);
    EXPECT_EQ(open().value()->file().filename(), "tokenizer.json");
    tokenizer["normalizer"] = {{"type", "Lowercase"}};
    write("tokenizer.json", tokenizer);
    EXPECT_NE(refusal().find("\"Lowercase\" is not supported"), std::string::npos) << refusal();
    tokenizer = same;
    tokenizer["normalizer"] = {{"type", "Lowercase"}};
    write("tokenizer.json", tokenizer);
    config_["tokenizer_class"] = "PreTrainedTokenizerFast";
    EXPECT_EQ(open().value()->file().filename(), "tokenizer.model") << "of the same vocabulary, and not built here";
    write("tokenizer.json", {{"model", {{"type", "Unigram"}, {"vocab", Json::array()}}}});
    EXPECT_EQ(open().value()->file().filename(), "tokenizer.model");
}

TEST_F(TokenizerConfigTest, AddBosTokenCountsOnlyWithoutATokenizerJson) {
    const auto prompt = [&] { return open().value()->encode_prompt("a").value(); };
    take("llama3");
    config_["add_bos_token"] = false;
    EXPECT_EQ(prompt(), (Ids{420, 64}));
    take("qwen");
    config_["add_bos_token"] = true;
    EXPECT_EQ(prompt(), (Ids{64}));
    take("opt");
    EXPECT_EQ(prompt(), (Ids{2, 359}));
    config_["add_bos_token"] = false;
    EXPECT_EQ(prompt(), (Ids{359}));
    take("small");
    EXPECT_EQ(prompt(), (Ids{1, 263}));
    const Json begin = {{"type", "TemplateProcessing"},
                        {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}}};
    for (const bool in_config : {true, false}) {
        config_["add_bos_token"] = in_config;
        write("tokenizer.json", {{"added_tokens", Json::array()}, {"post_processor", begin}});
        EXPECT_EQ(prompt(), (Ids{1, 263}));
        write("tokenizer.json", {{"added_tokens", Json::array()}, {"post_processor", nullptr}});
        EXPECT_EQ(prompt(), (Ids{263}));
    }
}

TEST_F(TokenizerConfigTest, ATiktokenModelGivesWayToATokenizerJsonAndIsCalledWhatItIs) {
    take("llama3");
    check(write_file_atomic(path("tokenizer.model"), "IQ== 0\nIg== 1\n").ok(), "cannot write");
    EXPECT_EQ(open().value()->file().filename(), "tokenizer.json");
    EXPECT_EQ(ids_of("a <tool> b"), (Ids{64, 220, 424, 285}));
    std::filesystem::remove(path("tokenizer.json"));
    EXPECT_NE(refusal().find("tokenizer.model is in tiktoken's format"), std::string::npos) << refusal();
    check(write_file_atomic(path("tokenizer.model"), "no model").ok(), "cannot write");
    EXPECT_NE(refusal().find("not a SentencePiece model"), std::string::npos) << refusal();
}

TEST_F(TokenizerConfigTest, OfAMergeThatStandsTwiceTheLastCounts) {
    take("opt");
    const char* text = "the la weights travel between";
    EXPECT_EQ(ids_of(text), (Ids{340, 159, 88, 203, 101, 109, 103, 165, 143, 160, 348, 139, 144, 101, 38}));
    std::string merges = read_file(path("merges.txt")).value();
    const std::size_t at = merges.find('\n') + 1;
    std::size_t end = at;
    for (int line = 0; line < 5; ++line) end = merges.find('\n', end) + 1;
    merges += merges.substr(at, end - at);
    check(write_file_atomic(path("merges.txt"), merges).ok(), "cannot write");
    EXPECT_EQ(ids_of(text), (Ids{340, 159, 91, 359, 203, 101, 109, 103, 165, 143, 160, 348, 139, 144, 101, 38}));
}

TEST_F(TokenizerConfigTest, NothingIsFoundWithinASpecialTokenThatStaysText) {
    take("llama3");
    config_["added_tokens_decoder"] = {{"426", token("|>")}, {"427", token("d|>x")}, {"428", token("<|pad|>zz")}};
    EXPECT_EQ(ids_of("x|>y"), (Ids{87, 426, 88}));
    EXPECT_EQ(ids_of("x<|pad|>y"), (Ids{87, 27, 91, 79, 373, 91, 29, 88}));
    EXPECT_EQ(ids_of("<|pad|>x"), (Ids{27, 91, 79, 373, 91, 29, 87}));
    EXPECT_EQ(ids_of("<|pad|>zz<|pad|>zx"), (Ids{428, 27, 91, 79, 373, 91, 29, 89, 87}));
}

}  // namespace
}  // namespace atl::tokenizer
