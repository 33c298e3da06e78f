#include "trainer/importer/torch_zip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "shared/base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace atl::importer {
namespace {

std::string little_endian(std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
    return text;
}

struct Entry {
    std::string name;
    std::string bytes;
    int method = 0;
    int flags = 0;
};

// A zip archive, member by member, its directory and the end.
std::string zip_of(const std::vector<Entry>& entries) {
    std::string archive, directory;
    for (const Entry& entry : entries) {
        const std::string common = little_endian(static_cast<std::uint64_t>(entry.flags), 2) +
                                   little_endian(static_cast<std::uint64_t>(entry.method), 2) + std::string(8, '\0') +
                                   little_endian(entry.bytes.size(), 4) + little_endian(entry.bytes.size(), 4) +
                                   little_endian(entry.name.size(), 2) + std::string(2, '\0');
        directory += "PK\x01\x02" + std::string(4, '\0') + common + std::string(10, '\0') +
                     little_endian(archive.size(), 4) + entry.name;
        archive += "PK\x03\x04" + std::string(2, '\0') + common + entry.name + entry.bytes;
    }
    const std::string count = little_endian(entries.size(), 2);
    return archive + directory + "PK\x05\x06" + std::string(4, '\0') + count + count +
           little_endian(directory.size(), 4) + little_endian(archive.size(), 4) + std::string(2, '\0');
}

Result<ZipMembers> read_zip(const std::string& archive) {
    return read_stored_zip(std::as_bytes(std::span(archive)));
}
std::string zip_error(const std::string& archive) {
    const auto members = read_zip(archive);
    return members.ok() ? "no error" : members.error().message;
}

TEST(TorchZipTest, MembersAreViewsOfTheArchive) {
    const std::string archive = zip_of({{"a/data.pkl", "12345678"}, {"a/data/0", ""}, {"a/data/1", "xy"}});
    const auto members = read_zip(archive).value();
    ASSERT_EQ(members.size(), 3U);
    const auto bytes = members.at("a/data/1");
    EXPECT_EQ(bytes.size(), 2U);
    EXPECT_EQ(reinterpret_cast<const char*>(bytes.data()), archive.data() + archive.find("xy"));
}

TEST(TorchZipTest, CompressedAndEncryptedMembersAreRefusedByName) {
    EXPECT_NE(zip_error(zip_of({{"a/b", "x", 8}})).find("\"a/b\""), std::string::npos);
    EXPECT_NE(zip_error(zip_of({{"a/b", "x", 0, 1}})).find("\"a/b\""), std::string::npos);
    EXPECT_NE(zip_error(zip_of({{"a/b", "x"}, {"a/b", "x"}})).find("\"a/b\""), std::string::npos);
}

TEST(TorchZipTest, MembersThatOverlapAreRefused) {
    // The first member's bytes hold a whole second member.
    const std::string inner = "PK\x03\x04" + std::string(22, '\0') + little_endian(3, 2) + std::string(2, '\0') + "a/b";
    std::string archive = zip_of({{"a/a", inner + "data"}, {"a/b", "data"}});
    EXPECT_EQ(zip_error(archive), "no error");
    archive.replace(archive.rfind("a/b") - 4, 4, little_endian(archive.find(inner), 4));
    EXPECT_NE(zip_error(archive).find("\"a/b\""), std::string::npos) << zip_error(archive);
}

TEST(TorchZipTest, LyingSizesAndPlacesAreRefused) {
    const std::string archive = zip_of({{"a/b", "data"}});
    const std::size_t entry = archive.rfind("PK\x01\x02");
    for (const std::uint64_t size : {5U, 0x7fffffffU, 0xffffffffU}) {
        std::string changed = archive;
        changed.replace(entry + 20, 8, little_endian(size, 4) + little_endian(size, 4));
        EXPECT_NE(zip_error(changed), "no error") << size;
    }
    std::string changed = archive;
    changed.replace(entry + 42, 4, little_endian(1, 4));
    EXPECT_NE(zip_error(changed), "no error");
    changed = archive;
    changed[archive.size() - 12] = 2;  // two members, but the directory has one
    EXPECT_NE(zip_error(changed), "no error");
}

TEST(TorchZipTest, AnArchiveThatIsCutOffAnywhereIsRefused) {
    for (const char* name : {"single", "zip64"}) {
        const std::string file = std::string(ATOLL_FIXTURES) + "/torch/" + name + "/pytorch_model.bin";
        const std::string whole = read_file(file).value();
        ASSERT_EQ(zip_error(whole), "no error");
        for (std::size_t size = 0; size < whole.size(); ++size)
            ASSERT_FALSE(read_zip(whole.substr(0, size)).ok()) << size;
    }
}

// A byte near the end, where the directory is; or the sizes of a member, or where its bytes begin.
void damage(std::string& archive, std::mt19937& random) {
    std::vector<std::size_t> entries, headers;
    for (std::size_t at = 0; (at = archive.find("PK\x01\x02", at)) != std::string::npos; ++at) entries.push_back(at);
    for (std::size_t at = 0; (at = archive.find("PK\x03\x04", at)) != std::string::npos; ++at) headers.push_back(at);
    const auto number = [&](std::size_t end) { return little_endian(random() % end, 4); };
    const std::uint32_t kind = random() % 4;
    if (kind == 0 && !entries.empty()) {
        const std::string size = number(2 * archive.size());
        archive.replace(entries[random() % entries.size()] + 20, 8, size + size);
    } else if (kind == 1 && !headers.empty()) {
        archive.replace(headers[random() % headers.size()] + 28, 2, number(1 << 12), 0, 2);
    } else {
        const std::size_t back = 1 + random() % std::min<std::size_t>(archive.size(), 2000);
        archive[archive.size() - back] = static_cast<char>(random() % 4 == 0 ? 0xff : random());
    }
}

// The fuzzer's function on changed copies of real archives; `torch_zip_fuzz` searches longer and cleverer.
TEST(TorchZipTest, DamagedArchivesAreRefusedOrSound) {
    std::mt19937 random(11);
    int sound = 0;
    for (const char* name : {"single", "zip64"}) {
        const std::string file = std::string(ATOLL_FIXTURES) + "/torch/" + name + "/pytorch_model.bin";
        const std::string whole = read_file(file).value();
        for (int round = 0; round < 5000; ++round) {
            std::string bytes = whole;
            for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) damage(bytes, random);
            LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
            sound += read_zip(bytes).ok();
        }
    }
    EXPECT_GT(sound, 100);  // the changes are small enough to get past the first check
}

}  // namespace
}  // namespace atl::importer
