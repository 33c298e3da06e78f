#include "trainer/dataset/dataset.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/safetensors/file.h"

namespace atl::dataset {
namespace {

using Ids = std::vector<std::int32_t>;
using safetensors::DType;

struct TensorData {
    std::string name;
    std::vector<std::int64_t> shape;
    Ids values;
    DType dtype = DType::kI32;
};

class DatasetTest : public testing::Test {
  protected:
    void write(const std::vector<TensorData>& tensors) {
        std::vector<safetensors::TensorInfo> infos;
        for (const auto& tensor : tensors) infos.push_back({tensor.name, tensor.dtype, tensor.shape, 0, 0});
        auto writer = safetensors::Writer::create(path_, infos);
        ASSERT_TRUE(writer.ok()) << writer.error().message;
        for (const auto& tensor : tensors) ASSERT_TRUE(writer->append(std::as_bytes(std::span(tensor.values))).ok());
        ASSERT_TRUE(writer->finish().ok());
    }
    void write_info(const nlohmann::json& changes) {
        nlohmann::json info = {{"schema", 1},       {"tokenizer_sha256", "t"},
                               {"seq_len", 3},      {"batching", "packing"},
                               {"documents", 2},    {"rows", 2},
                               {"tokens", 6},       {"fingerprint", digest::sha256_file(path_).value()},
                               {"vocab_size", 100}, {"future", {1}}};
        info.update(changes);
        ASSERT_TRUE(write_file_atomic(directory_.path() / "data.json", info.dump()).ok());
    }
    Dataset open(const std::filesystem::path& path) {
        auto dataset = Dataset::open(path);
        check(dataset.ok(), dataset.ok() ? "" : dataset.error().message);
        return std::move(dataset).value();
    }
    void expect_refused(const std::filesystem::path& path, const std::string& what) {
        const auto dataset = Dataset::open(path);
        ASSERT_FALSE(dataset.ok()) << what;
        EXPECT_NE(dataset.error().message.find(what), std::string::npos) << dataset.error().message;
        EXPECT_NE(dataset.error().message.find("data."), std::string::npos) << "the file is named";
    }
    static void expect_found(const Status& status, const std::vector<std::string>& names) {
        ASSERT_FALSE(status.ok());
        for (const std::string& name : names)
            EXPECT_NE(status.error().message.find(name), std::string::npos) << name << "\n" << status.error().message;
    }

    TemporaryDirectory directory_;
    std::filesystem::path path_ = directory_.path() / "data.safetensors";
};

TEST_F(DatasetTest, ABareFileGivesItsRowsWithTheIdsAsLabels) {
    write({{"input_ids", {2, 3}, {1, 2, 3, 4, 5, 6}}});
    const Dataset dataset = open(path_);
    EXPECT_EQ(dataset.rows(), 2);
    EXPECT_EQ(dataset.seq_len(), 3);
    Batch batch;
    ASSERT_TRUE(dataset.read(RowOrder(2, false, 0), 1, 2, batch).ok());
    EXPECT_EQ(batch.input_ids, (Ids{4, 5, 6, 1, 2, 3})) << "the epoch's last row, then the next one's first";
    EXPECT_EQ(batch.labels, batch.input_ids);
    EXPECT_TRUE(batch.segment_ids.empty());
}

TEST_F(DatasetTest, LabelsAndSegmentsComeFromTheFile) {
    write({{"input_ids", {1, 4}, {1, 2, 3, 4}},
           {"labels", {1, 4}, {-100, 2, -100, 4}},
           {"segment_ids", {1, 4}, {1, 1, 2, 2}}});
    const Dataset dataset = open(path_);
    Batch batch;
    ASSERT_TRUE(dataset.read(RowOrder(1, true, 0), 0, 1, batch).ok());
    EXPECT_EQ(batch.labels, (Ids{-100, 2, -100, 4}));
    EXPECT_EQ(batch.segment_ids, (Ids{1, 1, 2, 2}));
}

TEST_F(DatasetTest, SegmentZeroIsPadding) {
    write({{"input_ids", {1, 5}, {1, 2, 3, 4, 0}}, {"segment_ids", {1, 5}, {1, 1, 2, 2, 0}}});
    const Dataset dataset = open(path_);
    Batch batch;
    ASSERT_TRUE(dataset.read(RowOrder(1, true, 0), 0, 1, batch).ok());
    EXPECT_EQ(batch.labels, (Ids{1, 2, 3, 4, -100}));
}

// Two ranks reading their halves of each step see what one rank sees, and a cursor in the middle goes on the same way.
TEST_F(DatasetTest, PositionsGiveTheSameRowsForAnyNumberOfRanksAndAfterAResume) {
    Ids values(40);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
    write({{"input_ids", {20, 2}, values}});
    const Dataset dataset = open(path_);
    const RowOrder order(20, true, 9);
    Batch whole;
    ASSERT_TRUE(dataset.read(order, 0, 48, whole).ok());
    Ids from_ranks;
    for (std::int64_t step = 0; step < 6; ++step) {
        for (std::int64_t rank = 0; rank < 4; ++rank) {
            Batch part;
            const Dataset resumed = open(path_);
            ASSERT_TRUE(resumed.read(RowOrder(20, true, 9), step * 8 + rank * 2, 2, part).ok());
            from_ranks.insert(from_ranks.end(), part.input_ids.begin(), part.input_ids.end());
        }
    }
    EXPECT_EQ(from_ranks, whole.input_ids);
}

TEST_F(DatasetTest, TheFirstRowsAloneAreUsedWhenTheOrderHasFewer) {
    write({{"input_ids", {4, 1}, {0, 1, 2, 3}}});
    Batch batch;
    ASSERT_TRUE(open(path_).read(RowOrder(2, true, 1), 0, 10, batch).ok());
    for (const std::int32_t id : batch.input_ids) EXPECT_LT(id, 2);
}

TEST_F(DatasetTest, TokensOutsideTheVocabularyAreNamedByRowAndColumn) {
    write({{"input_ids", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"labels", {2, 3}, {-100, 2, 3, 4, 7, 6}}});
    const Dataset dataset = open(path_);
    EXPECT_TRUE(dataset.check_tokens(8, 0, 2).ok());
    EXPECT_TRUE(dataset.check_tokens(4, 0, 1).ok()) << "another rank's rows";
    expect_found(dataset.check_tokens(6, 0, 2), {"6", "row 1", "column 2"});
    expect_found(dataset.check_tokens(7, 0, 2), {"label", "7", "row 1", "column 1"});
    write({{"input_ids", {1, 2}, {1, -100}}});
    EXPECT_FALSE(open(path_).check_tokens(8, 0, 1).ok());
    write({{"input_ids", {1, 2}, {1, 2}}, {"labels", {1, 2}, {1, -1}}});
    EXPECT_FALSE(open(path_).check_tokens(8, 0, 1).ok());
}

TEST_F(DatasetTest, EveryRowOfALongFileIsChecked) {
    const std::int64_t rows = 70'000;  // more than is read at once
    Ids values(static_cast<std::size_t>(3 * rows), 1);
    values[static_cast<std::size_t>(3 * 69'000 + 2)] = 9;
    write({{"input_ids", {rows, 3}, values}});
    const Dataset dataset = open(path_);
    EXPECT_TRUE(dataset.check_tokens(9, 0, 69'000).ok());
    EXPECT_TRUE(dataset.check_tokens(9, 69'001, rows).ok());
    expect_found(dataset.check_tokens(9, 0, rows), {"9", "row 69000", "column 2"});
}

TEST_F(DatasetTest, AFileThatHasBecomeShorterIsAnErrorThatNamesIt) {
    write({{"input_ids", {2, 3}, {1, 2, 3, 4, 5, 6}}});
    const Dataset dataset = open(path_);
    std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 4);
    Batch batch;
    EXPECT_TRUE(dataset.read(RowOrder(2, false, 0), 0, 1, batch).ok());
    const Status status = dataset.read(RowOrder(2, false, 0), 1, 1, batch);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("data.safetensors"), std::string::npos);
    EXPECT_FALSE(dataset.check_tokens(100, 0, 2).ok());
}

TEST_F(DatasetTest, ADirectoryIsReadWithItsInfo) {
    write({{"input_ids", {2, 3}, {1, 2, 3, 4, 5, 6}}});
    write_info(nlohmann::json::object());
    const Dataset dataset = open(directory_.path());
    EXPECT_EQ(dataset.info().documents, 2);
    EXPECT_EQ(dataset.info().batching, "packing");
    EXPECT_EQ(dataset.sha256().value(), dataset.info().fingerprint);
    EXPECT_TRUE(dataset.check_tokenizer("t", 0).ok());
    EXPECT_TRUE(dataset.check_tokenizer("", 0).ok());
    EXPECT_EQ(dataset.check_tokenizer("u", 0).error().code, ErrorCode::kConflict);
    const Error older = dataset.check_tokenizer("u", 2).error();
    EXPECT_EQ(older.code, ErrorCode::kConflict);
    EXPECT_NE(older.message.find("was prepared by an older version"), std::string::npos) << older.message;
    write({{"input_ids", {2, 3}, {1, 2, 3, 4, 5, 7}}});
    EXPECT_NE(dataset.sha256().value(), dataset.info().fingerprint);
}

TEST_F(DatasetTest, FilesThatLieAreRefusedByName) {
    expect_refused(path_, "data.safetensors");
    expect_refused(directory_.path(), "data.json");
    write({{"ids", {2, 3}, {1, 2, 3, 4, 5, 6}}});
    expect_refused(path_, "\"input_ids\"");
    write({{"input_ids", {3}, {1, 2, 3}}});
    expect_refused(path_, "shape");
    write({{"input_ids", {0, 3}, {}}});
    expect_refused(path_, "rows");
    write({{"input_ids", {1, 1}, {1, 2}, DType::kI64}});
    expect_refused(path_, "I64");
    write({{"input_ids", {1, 2}, {1, 2}}, {"labels", {2, 1}, {1, 2}}});
    expect_refused(path_, "\"labels\"");
    write({{"input_ids", {1, 2}, {1, 2}}, {"label", {1, 2}, {1, 2}}});
    expect_refused(path_, "mean labels?");
    write({{"input_ids", {1, 2}, {1, 2}}, {"attention_mask", {1, 2}, {1, 0}}});
    expect_refused(path_, "\"attention_mask\"");
    write({{"input_ids", {1, 2}, {1, 2}}, {"segment_ids", {1, 1}, {1}}});
    expect_refused(path_, "\"segment_ids\"");
    write({{"input_ids", {2, 3}, {1, 2, 3, 4, 5, 6}}});
    write_info({{"rows", 3}});
    expect_refused(directory_.path(), "data.json");
    write_info({{"rows", "2"}});
    expect_refused(directory_.path(), "rows");
    write_info({{"schema", 2}});
    expect_refused(directory_.path(), "schema");
    const std::string bytes = read_file(path_).value();
    ASSERT_TRUE(write_file_atomic(path_, bytes.substr(0, bytes.size() - 1)).ok());
    expect_refused(path_, "data.safetensors");
}

}  // namespace
}  // namespace atl::dataset
