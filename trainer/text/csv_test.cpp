#include "trainer/text/csv.h"

#include <gtest/gtest.h>

namespace atl::text {
namespace {

using Fields = std::vector<std::string>;

Fields record_of(std::string_view text, char delimiter = ',') {
    Fields fields = {"left over", "x", "y", "z"};
    const Status taken = take_csv_record(text, delimiter, fields);
    return taken.ok() ? fields : Fields{"error: " + taken.error().message};
}

TEST(CsvTest, ARecordIsTakenAsPythonTakesIt) {
    EXPECT_EQ(record_of("a,b"), (Fields{"a", "b"}));
    EXPECT_EQ(record_of("\"a,\r\nb\",\"say \"\"hi\"\"\"\nnext"), (Fields{"a,\r\nb", "say \"hi\""}));
    EXPECT_EQ(record_of(",\n"), (Fields{"", ""}));
    EXPECT_EQ(record_of("a,"), (Fields{"a", ""}));
    EXPECT_EQ(record_of("\"\""), (Fields{""}));
    EXPECT_EQ(record_of("5\" disk, \"b\""), (Fields{"5\" disk", " \"b\""})) << "quotes within a field are part of it";
    EXPECT_EQ(record_of("a;b\tc", ';'), (Fields{"a", "b\tc"}));
    EXPECT_EQ(record_of("\nnext"), Fields());
    EXPECT_NE(record_of("\"a\"b").front().find("something follows the closing quote"), std::string::npos);
    EXPECT_NE(record_of("x,\"a\n").front().find("is not closed"), std::string::npos);
}

TEST(CsvTest, RecordsEndWhereTheScannerSaysWhateverThePieces) {
    const std::string text = "a,\"b\n\"\"\r\",c\r\n\n\"x\"\rd,e\"f\n\"\",\n";
    std::vector<std::size_t> ends;  // by taking one record after the other
    for (std::string_view rest = text; !rest.empty();) {
        Fields fields;
        ASSERT_TRUE(take_csv_record(rest, ',', fields).ok());
        ends.push_back(text.size() - rest.size());
    }
    for (std::size_t end = 1; end <= text.size(); ++end)
        for (std::size_t cut = 0; cut <= end; ++cut) {
            CsvScanner scanner(',');
            const std::size_t first = scanner.scan(std::string_view(text).substr(0, cut));
            const std::size_t second = scanner.scan(std::string_view(text).substr(cut, end - cut));
            const std::size_t found = second > 0 ? cut + second : first;
            std::size_t expected = 0;
            for (const std::size_t one : ends) expected = one <= end ? one : expected;
            // Between "\r" and "\n" the record has ended already.
            if (text[end - 1] == '\r' && text[end] == '\n') expected = end;
            EXPECT_EQ(found, expected) << cut << " " << end;
        }
}

TEST(CsvTest, TheFirstLineNamesTheColumnsAndTellsTheDelimiter) {
    const auto table = read_csv_header("id,\"the; text\"", '\0');
    EXPECT_EQ(table->columns, (Fields{"id", "the; text"}));
    EXPECT_EQ(read_csv_header("id;text", '\0')->columns, (Fields{"id", "text"}));
    EXPECT_EQ(read_csv_header("id\ttext", '\0')->delimiter, '\t');
    EXPECT_EQ(read_csv_header("\"a,b\";c", '\0')->columns, (Fields{"a,b", "c"}));
    EXPECT_EQ(read_csv_header("a,b\tc", '\t')->columns, (Fields{"a,b", "c"})) << "a TSV";
    EXPECT_EQ(read_csv_header("text", '\0')->columns, (Fields{"text"}));
    EXPECT_EQ(read_csv_header(",text,", '\0')->columns, (Fields{"", "text", ""})) << "as pandas writes its index";
    EXPECT_NE(read_csv_header("a,secret,secret", '\0').error().message.find("one name twice"), std::string::npos);
    EXPECT_EQ(read_csv_header("a,secret,secret", '\0').error().message.find("secret"), std::string::npos);
    EXPECT_FALSE(read_csv_header("a,\"b", '\0').ok());
}

}  // namespace
}  // namespace atl::text
