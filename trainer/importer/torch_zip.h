#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "shared/base/mapped_file.h"
#include "shared/base/result.h"

namespace atl::importer {

// The members of a zip archive by name: views of its bytes.
using ZipMembers = std::map<std::string, std::span<const std::byte>, std::less<>>;

// Reads an archive of uncompressed members, as torch.save writes it (zip64 too). Read here and not by a library because
// the members are to be mapped: libzip does not say where they lie, and the minizip of Debian 12 misreads zip64
// offsets. kInvalidArgument says what is wrong: no archive or cut off, a compressed or encrypted member, members that
// overlap or lie outside of the archive, a name that comes twice.
Result<ZipMembers> read_stored_zip(std::span<const std::byte> bytes);

// Such an archive in a file, mapped; errors name the file.
class StoredZip {
  public:
    static Result<StoredZip> open(const std::filesystem::path& path);
    const ZipMembers& members() const { return members_; }

  private:
    MappedFile file_;
    ZipMembers members_;
};

}  // namespace atl::importer
