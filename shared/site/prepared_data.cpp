#include "shared/site/prepared_data.h"

#include "shared/digest/digest.h"
#include "shared/json/json.h"

namespace atl::site {
namespace {

constexpr std::int64_t kCountMax = 1LL << 53;
constexpr int kDepthMax = 8;

std::string required_digest(json::ObjectReader& reader, const char* key) {
    std::string text = reader.required_string(key);
    if (!digest::is_sha256(text)) reader.fail(key, "must be 64 hexadecimal digits");
    return text;
}

nlohmann::json counts_of(const PreparedSplit& split) {
    return {{"documents", split.documents}, {"rows", split.rows}, {"tokens", split.tokens}};
}

}  // namespace

Result<PreparedSplit> read_data_json(std::string_view text, const std::string& file) {
    if (text.size() > kDataJsonBytesMax) return invalid_argument(file, "has more than 64 KiB");
    const auto value = json::parse(text, kDepthMax);
    if (!value.ok()) return invalid_argument(file, value.error().message);
    json::ObjectReader reader(*value, file);
    PreparedSplit split;
    split.tokenizer_sha256 = required_digest(reader, "tokenizer_sha256");
    split.tokenizer_reader = reader.integer_or("tokenizer_reader", 0, 0, INT32_MAX);
    split.fingerprint = required_digest(reader, "fingerprint");
    split.batching = reader.one_of("batching", {"packing", "padding"}, "");
    split.seq_len = reader.required_integer("seq_len", 1, kCountMax);
    split.documents = reader.required_integer("documents", 0, kCountMax);
    split.without_end = reader.integer_or("without_end", 0, 0, split.documents);
    split.rows = reader.required_integer("rows", 0, kCountMax);
    split.longer = reader.integer_or("longer", 0, 0, split.documents);
    split.tokens = reader.required_integer("tokens", 0, kCountMax);
    split.tokens_truncated = reader.integer_or("tokens_truncated", 0, 0, kCountMax);
    split.bytes = reader.integer_or("bytes", 0, 0, kCountMax);
    split.split = reader.string_or("split", "");
    split.text_template = reader.string_or("template", "");
    reader.allow_unknown();
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return split;
}

std::string joint_fingerprint(const PreparedSplit& train, const PreparedSplit& validation) {
    return digest::sha256(train.fingerprint + "\n" + validation.fingerprint + "\n");
}

Result<nlohmann::json> describe_version(const PreparedSplit& train, const PreparedSplit& validation) {
    const auto differs = [](const char* key) {
        return invalid_argument(key, std::string("train and validation were prepared with another ") + key);
    };
    if (train.tokenizer_sha256 != validation.tokenizer_sha256) return differs("tokenizer_sha256");
    if (train.tokenizer_reader != validation.tokenizer_reader) return differs("tokenizer_reader");
    if (train.seq_len != validation.seq_len) return differs("seq_len");
    if (train.batching != validation.batching) return differs("batching");
    // Their perplexities would be those of rows that were trained on.
    if (train.split == "validation") return invalid_argument("split", "the data to train on are the validation split");
    if (validation.split == "train") return invalid_argument("split", "the data to validate on are the training split");
    if (validation.rows > 0 && train.fingerprint == validation.fingerprint)
        return invalid_argument("fingerprint", "train and validation are the same rows");
    return nlohmann::json{{"tokenizer_sha256", train.tokenizer_sha256},
                          {"tokenizer_reader", train.tokenizer_reader},
                          {"seq_len", train.seq_len},
                          {"batching", train.batching},
                          {"train", counts_of(train)},
                          {"validation", counts_of(validation)},
                          {"fingerprint", joint_fingerprint(train, validation)},
                          {"statistics",
                           {{"without_end", train.without_end + validation.without_end},
                            {"longer", train.longer + validation.longer},
                            {"tokens_truncated", train.tokens_truncated + validation.tokens_truncated},
                            {"bytes", train.bytes + validation.bytes}}}};
}

}  // namespace atl::site
