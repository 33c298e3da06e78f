#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "shared/base/result.h"

// SHA-256 by OpenSSL; digests are 64 lower-case hexadecimal characters.
namespace atl::digest {

//   digest::Sha256 hash;
//   while (read_block(block)) hash.update(block);
//   const std::string hex = hash.finish();
class Sha256 {
  public:
    Sha256();
    ~Sha256();
    Sha256(Sha256&&) noexcept;
    void update(std::string_view bytes);
    std::string finish();  // once

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

std::string sha256(std::string_view bytes);
// Reads in blocks; on_read, if given, gets the bytes of each.
Result<std::string> sha256_file(const std::filesystem::path& path,
                                const std::function<void(std::int64_t bytes)>& on_read = {});
bool is_sha256(std::string_view text);

}  // namespace atl::digest
