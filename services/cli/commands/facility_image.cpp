#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "services/cli/commands/commands.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/transfer.h"
#include "services/cli/usage.h"
#include "shared/base/file.h"
#include "shared/digest/digest.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr const char* kPutImageHelp =
    R"(The file goes through the coordinator, part by part. Whoever ends it runs it again: it goes on where it was. What has
come is read at the site as a whole before it gets its name, then its sha256 is pinned in the facility's record. Examples:
  atoll facility put-image leonardo trainer.sif            where the record's image is or, without one, into the
                                                           work directory, under a name of its own
  atoll facility put-image leonardo trainer.sif --path /leonardo/home/me/atoll.sif)";

constexpr std::int64_t kPartBytes = 8 << 20;
constexpr std::chrono::minutes kPartTimeMax{3};  // a site may be slow
constexpr std::chrono::milliseconds kPause{500};

struct PutImageFlags {
    std::string name;
    std::filesystem::path file;
    std::string path;
};

struct ImageFile {
    std::filesystem::path file;
    UniqueFd fd;
    std::int64_t bytes = 0;
    std::string sha256;
};

Result<ImageFile> open_image(const std::filesystem::path& file) {
    ImageFile image{file, UniqueFd(::open(file.c_str(), O_RDONLY | O_CLOEXEC)), 0, ""};
    std::error_code failed;
    if (image.fd.valid()) image.bytes = static_cast<std::int64_t>(std::filesystem::file_size(file, failed));
    if (!image.fd.valid() || failed) return invalid_argument("FILE", "cannot read " + file.string());
    constexpr std::string_view kMagic = "SIF_MAGIC";  // after the launch line
    std::array<char, 32 + kMagic.size()> header{};
    if (image.bytes >= static_cast<std::int64_t>(header.size()))
        ATOLL_RETURN_IF_ERROR(read_at(image.fd.get(), 0, std::as_writable_bytes(std::span(header)), file));
    if (!std::string_view(header.data(), header.size()).ends_with(kMagic))
        return invalid_argument("FILE", file.string() + " is no SIF file, as apptainer build makes");
    ATOLL_TRY(image.sha256, digest::sha256_file(file));
    return image;
}

// Sends what the site lacks, and waits until it has looked at the whole.
Status send_image(http::Client& client, const ImageFile& image, const std::string& address) {
    const auto show = show_progress("copying");
    const auto bytes_total = static_cast<std::uint64_t>(image.bytes);
    std::int64_t offset = 0;
    std::string part;
    for (;;) {
        ATOLL_TRY(const auto answer,
                  client.call(http::Method::kPut, address + "&offset=" + std::to_string(offset), part));
        ATOLL_TRY(const json state, answer.json());
        if (state.value("in_place", false)) return {};
        part.clear();
        const bool is_known = state.value("bytes_total", std::int64_t{0}) == image.bytes;
        const std::int64_t done = is_known ? state.value("bytes_done", std::int64_t{0}) : image.bytes;
        if (is_known && show) show({static_cast<std::uint64_t>(done), bytes_total});
        if (done >= image.bytes) {
            std::this_thread::sleep_for(kPause);
            continue;
        }
        offset = done;
        part.resize(static_cast<std::size_t>(std::min(kPartBytes, image.bytes - offset)));
        ATOLL_RETURN_IF_ERROR(read_at(image.fd.get(), static_cast<std::uint64_t>(offset),
                                      std::as_writable_bytes(std::span(part)), image.file));
    }
}

Status run_put_image(const Context& context, const PutImageFlags& flags) {
    http::ClientOptions options;
    ATOLL_TRY(options.base_url, context.gateway_url());
    options.base_url += "/dispatch";
    ATOLL_TRY(options.token, context.token());
    options.timeout = kPartTimeMax;
    options.attempts_max = 8;
    http::Client client(options);
    ATOLL_TRY(const json facility, get_named(client, "/v1/facilities", "facility", flags.name));
    ATOLL_TRY(const ImageFile image, open_image(flags.file));
    // Another name than an earlier image's, beside it: batch jobs may run in that.
    const std::string before = text(facility, "image", "path");
    const std::string place =
        before.empty() ? text(facility, "work_dir") : std::filesystem::path(before).parent_path().string();
    const std::string path = flags.path.empty() ? place + "/atoll-" + image.sha256.substr(0, 12) + ".sif" : flags.path;
    const std::string resource = "/v1/facilities/" + segment(flags.name);
    ATOLL_RETURN_IF_ERROR(send_image(client, image,
                                     resource + "/image?path=" + http::percent_encode(path) +
                                         "&sha256=" + image.sha256 + "&bytes=" + std::to_string(image.bytes)));
    const json patch = {{"image", {{"path", path}, {"sha256", image.sha256}}}, {"programs", nullptr}};
    ATOLL_TRY(const auto answer, client.call(http::Method::kPatch, resource, patch.dump(), {{{"If-Match", "*"}}, {}}));
    ATOLL_TRY(const json after, answer.json());
    if (context.json) return print_json(after);
    std::cout << path << " is in its place at " << flags.name << ", and its sha256 " << image.sha256
              << " is pinned; `atoll facility check " << flags.name << "` tries it\n";
    if (!before.empty() && before != path)
        std::cout << "the record named " << before << " until now: if it is there, remove it when no job needs it\n";
    return {};
}

}  // namespace

void add_put_image_command(CLI::App& group, Context& context) {
    auto* command = group.add_subcommand("put-image", "copy an image to a facility and pin it")->footer(kPutImageHelp);
    const auto flags = std::make_shared<PutImageFlags>();
    command->add_option("name", flags->name, "the facility")->required();
    command->add_option("file", flags->file, "the image here, a SIF file")->required()->check(CLI::ExistingFile);
    command->add_option("--path", flags->path, "its place at the site, absolute; default: in the work directory");
    on_run(*command, context, [&context, flags] { return run_put_image(context, *flags); });
}

}  // namespace atl::cli
