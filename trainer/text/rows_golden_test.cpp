#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "trainer/text/rows.h"

namespace atl::text {
namespace {

using nlohmann::json;

// The rows of a file; null where it is refused.
json rows_of(const InputFile& file, std::size_t block_bytes) {
    json rows = json::array();
    RecordReader reader({file}, {.block_bytes = block_bytes});
    for (;;) {
        const auto block = reader.next();
        if (!block.ok()) return nullptr;
        if (!block->has_value()) return rows;
        const auto keep = [&](const json& row, const std::string&) {
            rows.push_back(row);
            return Status();
        };
        if (!for_each_row(**block, file.path, true, keep).ok()) return nullptr;
    }
}

// tests/numerics/make_text_goldens.py made the files, and says which of them it takes for wrong.
TEST(RowsGoldenTest, TablesAndArraysAreReadAsPythonReadsThem) {
    const std::map<std::string, InputFormat> formats = {{"csv", InputFormat::kCsv},
                                                        {"semicolon", InputFormat::kCsv},
                                                        {"tsv", InputFormat::kTsv},
                                                        {"array", InputFormat::kJsonArray}};
    const json cases = json::parse(read_file(ATOLL_FIXTURES "/texts/goldens.json").value());
    ASSERT_EQ(cases.size(), 400U);
    const TemporaryDirectory directory;
    const InputFile any{directory.path() / "in", {}};
    for (const json& one : cases) {
        ASSERT_TRUE(write_file_atomic(any.path, one["text"].get<std::string>()).ok());
        const InputFile file{any.path, formats.at(one["kind"])};
        for (const std::size_t block_bytes : {1U, 5U, 1U << 20}) {
            const json rows = rows_of(file, block_bytes);
            EXPECT_EQ(rows, one["rows"]) << one["kind"] << " " << one["text"].dump();
        }
    }
}

}  // namespace
}  // namespace atl::text
