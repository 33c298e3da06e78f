#include "services/dispatch/domain/image_spec.h"

#include <algorithm>

#include "shared/base/text.h"
#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

using json::Json;
using json::ObjectReader;

constexpr std::size_t kImageWordBytesMax = 1000;
constexpr std::size_t kImageWordsMax = 100;

// One line without control characters: it goes into a batch script.
bool is_plain_line(const std::string& text) {
    return !text.empty() && text.size() <= kImageWordBytesMax &&
           std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

bool is_place(const std::string& text) {
    return is_plain_line(text) && text.front() == '/';
}

// The runtime takes several binds between commas.
bool is_bind(const std::string& text) {
    return is_place(text) && text.find(',') == std::string::npos;
}

// Each of these gives every container a /dev/shm of its own, through which the ranks of a node could not share memory.
bool hides_shared_memory(const std::string& option) {
    const std::string name = option.substr(0, option.find('='));
    return name == "-c" || name == "-C" || name == "--contain" || name == "--containall" || name == "--ipc" ||
           name == "-i";
}

Result<std::vector<std::string>> parse_words(const Json& value, const std::string& field,
                                             bool (*is_good)(const std::string&), const char* what) {
    std::vector<std::string> words;
    if (value.size() > kImageWordsMax)
        return invalid_argument(field, "has more than " + std::to_string(kImageWordsMax) + " entries");
    for (const auto& word : value) {
        if (!word.is_string() || !is_good(word.get<std::string>())) return invalid_argument(field, what);
        words.push_back(word.get<std::string>());
    }
    return words;
}

}  // namespace

Result<std::optional<ImageSpec>> parse_image_spec(const Json& value, const std::string& field) {
    if (value.is_null()) return std::optional<ImageSpec>();
    ObjectReader reader(value, field);
    ImageSpec image;
    image.path = reader.required_string("path");
    if (!is_place(image.path)) reader.fail("path", "must be an absolute path of an image at the site");
    image.sha256 = reader.string_or("sha256", "");
    if (!image.sha256.empty() && !digest::is_sha256(image.sha256))
        reader.fail("sha256", "must be 64 digits of 0-9 and a-f, as sha256sum");
    image.runtime = reader.string_or("runtime", "");
    if (!image.runtime.empty() && image.runtime != "singularity" && image.runtime != "apptainer")
        reader.fail("runtime", "must be singularity or apptainer");
    image.gpu = reader.one_of("gpu", {"none", "nv", "rocm"}, "none");
    const Json& binds = reader.array_or_null("binds");
    const Json& options = reader.array_or_null("options");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(image.binds, parse_words(binds, field + ".binds", is_bind,
                                       "each must be an absolute path, as /project or /project:/data:ro"));
    ATOLL_TRY(image.options,
              parse_words(options, field + ".options", is_plain_line, "each must be one word or option"));
    for (const std::string& option : image.options)
        if (hides_shared_memory(option))
            return invalid_argument(field + ".options", in_quotes(option) +
                                                            " gives each rank a /dev/shm of its own; ranks of one "
                                                            "node share memory through it");
    return std::optional(image);
}

Json to_json(const ImageSpec& image) {
    Json value = {{"path", image.path}, {"gpu", image.gpu}, {"binds", image.binds}, {"options", image.options}};
    if (!image.sha256.empty()) value["sha256"] = image.sha256;
    if (!image.runtime.empty()) value["runtime"] = image.runtime;
    return value;
}

}  // namespace atl::dispatch
