#include "trainer/text/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "shared/base/file.h"

namespace atl::text {
namespace {

Error broken(const std::filesystem::path& path, const std::string& what) {
    return invalid_argument(path.string(), path.string() + ": " + what);
}

// Reads and drops.
Status read_past(ByteSource& source, const std::filesystem::path& path, std::uint64_t count) {
    std::vector<char> block(1U << 18);
    while (count > 0) {
        const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(count, block.size()));
        ATOLL_TRY(const std::size_t got, source.read({block.data(), wanted}));
        if (got == 0) return broken(path, "ends before the place to go on from");
        count -= got;
    }
    return {};
}

class PlainFile final : public ByteSource {
  public:
    PlainFile(std::filesystem::path path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

    Result<std::size_t> read(std::span<char> out) override {
        for (;;) {
            const ssize_t got = ::read(fd_.get(), out.data(), out.size());
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) return file_error(path_, "read");
            consumed_ += static_cast<std::uint64_t>(got);
            return static_cast<std::size_t>(got);
        }
    }
    std::uint64_t consumed() const override { return consumed_; }
    Status skip(std::uint64_t count) override {
        if (::lseek(fd_.get(), static_cast<off_t>(count), SEEK_CUR) < 0) return file_error(path_, "seek in");
        consumed_ += count;
        return {};
    }

  private:
    std::filesystem::path path_;
    UniqueFd fd_;
    std::uint64_t consumed_ = 0;
};

class GzipFile final : public ByteSource {
  public:
    GzipFile(std::filesystem::path path, UniqueFd fd)
        : file_(path, std::move(fd)), path_(std::move(path)), buffer_(1U << 18) {
        constexpr int kGzipOnly = 16 + MAX_WBITS;
        check(::inflateInit2(&stream_, kGzipOnly) == Z_OK, "inflateInit2: out of memory");
    }
    ~GzipFile() override { ::inflateEnd(&stream_); }

    Result<std::size_t> read(std::span<char> out) override {
        const std::size_t wanted = std::min<std::size_t>(out.size(), std::numeric_limits<int>::max());
        stream_.next_out = reinterpret_cast<Bytef*>(out.data());
        stream_.avail_out = static_cast<uInt>(wanted);
        while (stream_.avail_out == wanted && wanted > 0) {
            if (stream_.avail_in == 0) {
                ATOLL_TRY(const std::size_t got, file_.read(buffer_));
                if (got == 0 && in_member_) return broken(path_, "broken gzip data: it stops early");
                if (got == 0) return std::size_t{0};
                stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
                stream_.avail_in = static_cast<uInt>(got);
            }
            if (!in_member_) pass_padding();
            if (stream_.avail_in > 0) ATOLL_RETURN_IF_ERROR(inflate_some());
        }
        return wanted - stream_.avail_out;
    }
    std::uint64_t consumed() const override { return file_.consumed(); }
    Status skip(std::uint64_t count) override { return read_past(*this, path_, count); }

  private:
    // Zeros behind a member fill a block of a tape; gzip passes over them, too.
    void pass_padding() {
        for (; stream_.avail_in > 0 && *stream_.next_in == 0; --stream_.avail_in) ++stream_.next_in;
    }
    Status inflate_some() {
        in_member_ = true;
        const int code = ::inflate(&stream_, Z_NO_FLUSH);
        if (code == Z_OK) return {};
        // What follows a member and is no other one is damage: gzread() would take it for the end.
        if (code != Z_STREAM_END)
            return broken(path_,
                          std::string("broken gzip data: ") + (stream_.msg != nullptr ? stream_.msg : ::zError(code)));
        ::inflateReset(&stream_);
        in_member_ = false;
        return {};
    }

    PlainFile file_;
    std::filesystem::path path_;
    std::vector<char> buffer_;
    z_stream stream_{};
    bool in_member_ = false;
};

class ZstdFile final : public ByteSource {
  public:
    ZstdFile(std::filesystem::path path, UniqueFd fd)
        : file_(path, std::move(fd)),
          path_(std::move(path)),
          context_(::ZSTD_createDCtx()),
          buffer_(ZSTD_DStreamInSize()) {
        check(context_ != nullptr, "ZSTD_createDCtx: out of memory");
        // As `zstd -d --long=31`: public dumps are packed with the largest windows. Memory is taken as a frame asks.
        ::ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
    }
    ~ZstdFile() override { ::ZSTD_freeDCtx(context_); }

    Result<std::size_t> read(std::span<char> out) override {
        ZSTD_outBuffer output{out.data(), out.size(), 0};
        while (output.pos == 0 && !out.empty()) {
            if (input_.pos == input_.size) {
                ATOLL_TRY(const std::size_t got, file_.read(buffer_));
                if (got == 0 && in_frame_) return broken(path_, "broken zstd data: it stops early");
                if (got == 0) return std::size_t{0};
                input_ = {buffer_.data(), got, 0};
            }
            const std::size_t code = ::ZSTD_decompressStream(context_, &output, &input_);
            if (::ZSTD_isError(code) != 0) return fault(code);
            in_frame_ = code != 0;
        }
        return output.pos;
    }
    std::uint64_t consumed() const override { return file_.consumed(); }
    Status skip(std::uint64_t count) override { return read_past(*this, path_, count); }

  private:
    Error fault(std::size_t code) const {
        if (::ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation)
            return {ErrorCode::kResourceExhausted,
                    path_.string() +
                        ": there is not the memory for the window that the file was made with (zstd --long), at most 2 "
                        "GiB: `zstd -dc --long=31 FILE | zstd > NEW` makes it anew with one of 8 MiB",
                    path_.string()};
        return broken(path_, std::string("broken zstd data: ") + ::ZSTD_getErrorName(code));
    }

    PlainFile file_;
    std::filesystem::path path_;
    ZSTD_DCtx* context_;
    std::vector<char> buffer_;
    ZSTD_inBuffer input_{nullptr, 0, 0};
    bool in_frame_ = false;
};

// A frame, or one to skip (0x184D2A50 to 5F), with which what pzstd writes begins.
bool is_zstd(const unsigned char (&magic)[4]) {
    return std::memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0 ||
           ((magic[0] & 0xf0) == 0x50 && std::memcmp(magic + 1, "\x2a\x4d\x18", 3) == 0);
}

}  // namespace

Status check_input(const std::filesystem::path& path) {
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) return file_error(path, "open");
    if (S_ISREG(status.st_mode)) return {};
    return invalid_argument("--input", path.string() + " is no regular file" +
                                           (S_ISDIR(status.st_mode) ? "" : ": what a pipe gives must go to one first"));
}

Result<std::unique_ptr<ByteSource>> ByteSource::open(const std::filesystem::path& path) {
    ATOLL_RETURN_IF_ERROR(check_input(path));  // before open(), which waits for the writer of a FIFO
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return file_error(path, "open");
    unsigned char magic[4] = {};
    const ssize_t got = ::pread(fd.get(), magic, sizeof magic, 0);
    if (got < 0) return file_error(path, "read");
    if (got >= 2 && magic[0] == 0x1f && magic[1] == 0x8b)
        return std::unique_ptr<ByteSource>(std::make_unique<GzipFile>(path, std::move(fd)));
    if (got == 4 && is_zstd(magic)) return std::unique_ptr<ByteSource>(std::make_unique<ZstdFile>(path, std::move(fd)));
    return std::unique_ptr<ByteSource>(std::make_unique<PlainFile>(path, std::move(fd)));
}

}  // namespace atl::text
