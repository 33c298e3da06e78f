#include "shared/aggregate/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "shared/aggregate/plan.h"
#include "shared/aggregate/reduce.h"
#include "shared/aggregate/settings.h"
#include "shared/aggregate/strategy_table.h"
#include "shared/base/file.h"
#include "shared/base/parallel.h"
#include "shared/delta/control_variate.h"
#include "shared/json/json.h"
#include "shared/model_config/token_counts.h"
#include "shared/safetensors/file.h"

namespace atl::aggregate {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPieceBytes = 1U << 20;  // of the output, made by one thread at a time
constexpr const char* kIndexName = "model.safetensors.index.json";

class LocalFile : public ByteSource {
  public:
    LocalFile(fs::path path, UniqueFd fd, std::uint64_t size)
        : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

    std::uint64_t size() const override { return size_; }

    Status read(std::uint64_t offset, std::span<std::byte> into) const override {
        return read_at(fd_.get(), offset, into, path_);
    }

  private:
    fs::path path_;
    UniqueFd fd_;
    std::uint64_t size_;
};

bool is_hidden(const fs::path& path) {
    return path.filename().string().starts_with(".");
}

// The files that the index names.
Result<std::set<std::string>> read_index(const fs::path& path) {
    const auto wrong = [&](const std::string& why) { return invalid_argument(path.string(), path.string() + why); };
    ATOLL_TRY(const std::string text, read_file(path));
    const auto index = json::parse(text);
    if (!index.ok()) return wrong(": " + index.error().message);
    if (!index->is_object() || !index->contains("weight_map") || !(*index)["weight_map"].is_object())
        return wrong(" has no object weight_map");
    std::set<std::string> names;
    for (const auto& [tensor, file] : (*index)["weight_map"].items()) {
        if (!file.is_string()) return wrong(": weight_map." + tensor + " must be a file's name");
        names.insert(file.get<std::string>());
    }
    return names;
}

struct Piece {
    std::size_t file;
    std::uint64_t offset;
    std::uint64_t size;
};

std::vector<Piece> cut_into_pieces(const Aggregator& aggregator) {
    std::vector<Piece> pieces;
    for (std::size_t file = 0; file < aggregator.files().size(); ++file) {
        if (aggregator.leaves_out(file)) continue;
        for (std::uint64_t at = 0; at < aggregator.files()[file].size; at += kPieceBytes)
            pieces.push_back({file, at, std::min(kPieceBytes, aggregator.files()[file].size - at)});
    }
    return pieces;
}

int thread_count(const WriteOptions& options) {
    return options.threads > 0 ? options.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// A directory beside `target` that is removed unless it was renamed to it.
class UnfinishedDirectory {
  public:
    static Result<UnfinishedDirectory> create(const fs::path& target) {
        const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
        std::error_code error;
        fs::create_directories(parent, error);
        std::string name = (parent / ("." + target.filename().string() + ".XXXXXX")).string();
        if (error || ::mkdtemp(name.data()) == nullptr) return file_error(target, "create a directory beside");
        ::chmod(name.c_str(), 0755);
        return UnfinishedDirectory(name);
    }
    UnfinishedDirectory(UnfinishedDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    ~UnfinishedDirectory() {
        std::error_code ignored;
        if (!path_.empty()) fs::remove_all(path_, ignored);
    }

    const fs::path& path() const { return path_; }

    Status rename_to(const fs::path& target) {
        if (::rename(path_.c_str(), target.c_str()) != 0) {
            if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR)
                return Error{ErrorCode::kConflict, target.string() + " exists; choose another or remove it",
                             target.string()};
            return file_error(target, "rename to");
        }
        path_.clear();
        return {};
    }

  private:
    explicit UnfinishedDirectory(fs::path path) : path_(std::move(path)) {}
    fs::path path_;
};

// What is of one model's training.
bool travels_beside(const fs::path& relative) {
    return relative == model_config::kTokenCountsFile || relative == delta::kControlVariateFile;
}

// What a strategy left for one round is not the next one's.
bool is_state(const fs::path& relative) {
    if (relative.string().starts_with(delta::kControlVariateFolder)) return true;
    return std::ranges::any_of(outer_rows(), [&](const OuterRow& outer) {
        return std::ranges::find(outer.state, relative.begin()->string()) != outer.state.end();
    });
}

Status copy_other_files(const Aggregator& aggregator, const fs::path& from, const fs::path& to) {
    std::set<std::string> averaged;
    for (const auto& file : aggregator.files()) averaged.insert(file.path);
    std::error_code error;
    for (auto entry = fs::recursive_directory_iterator(from, error); !error && entry != fs::end(entry);
         entry.increment(error)) {
        const fs::path relative = entry->path().lexically_relative(from);
        if (is_hidden(relative)) {
            if (entry->is_directory()) entry.disable_recursion_pending();
            continue;
        }
        const bool is_of_one = travels_beside(relative) || is_state(relative);
        if (!entry->is_regular_file() || is_of_one || averaged.contains(relative.string())) continue;
        fs::create_directories((to / relative).parent_path(), error);
        if (!error) fs::copy_file(entry->path(), to / relative, error);
        if (error)
            return Error{ErrorCode::kInternal, "cannot copy " + entry->path().string() + ": " + error.message(),
                         entry->path().string()};
    }
    if (error)
        return Error{ErrorCode::kInternal, "cannot list " + from.string() + ": " + error.message(), from.string()};
    return {};
}

Status rewrite(const fs::path& path, const std::function<void(nlohmann::ordered_json&)>& change) {
    std::error_code error;
    if (!fs::exists(path, error)) return {};
    ATOLL_TRY(const std::string text, read_file(path));
    const auto checked = json::parse(text);
    if (!checked.ok()) return invalid_argument(path.string(), path.string() + ": " + checked.error().message);
    if (!checked->is_object()) return {};
    auto object = nlohmann::ordered_json::parse(text);
    change(object);
    return write_file_atomic(path, object.dump(2) + "\n");
}

// Says of the directory that is being made what its tensors are.
Status say_dtype(const Aggregator& aggregator, safetensors::DType dtype, const fs::path& directory) {
    using safetensors::DType;
    const char* const name = dtype == DType::kF16 ? "float16" : dtype == DType::kBF16 ? "bfloat16" : "float32";
    ATOLL_RETURN_IF_ERROR(rewrite(directory / "config.json", [&](nlohmann::ordered_json& config) {
        config[config.contains("torch_dtype") && !config.contains("dtype") ? "torch_dtype" : "dtype"] = name;
    }));
    std::uint64_t total = 0;
    for (const auto& file : aggregator.files()) {
        if (file.path.find('/') != std::string::npos) continue;  // what a strategy keeps
        ATOLL_TRY(const auto model, safetensors::File::open(directory / file.path));
        for (const auto& tensor : model.header().tensors) total += tensor.end - tensor.begin;
    }
    return rewrite(directory / kIndexName, [&](nlohmann::ordered_json& index) {
        if (index.contains("metadata") && index["metadata"].is_object()) index["metadata"]["total_size"] = total;
    });
}

// A power cut after this loses nothing of the directory.
Status sync_tree(const fs::path& directory) {
    std::error_code error;
    for (auto entry = fs::recursive_directory_iterator(directory, error); !error && entry != fs::end(entry);
         entry.increment(error))
        ATOLL_RETURN_IF_ERROR(sync_path(entry->path()));
    if (error)
        return Error{ErrorCode::kInternal, "cannot list " + directory.string() + ": " + error.message(),
                     directory.string()};
    return sync_path(directory);
}

// The output, cut into pieces that several threads make one after another.
class PieceWriter {
  public:
    PieceWriter(const Aggregator& aggregator, const WriteOptions& options)
        : aggregator_(aggregator), options_(options), pieces_(cut_into_pieces(aggregator)) {}

    Status open(const fs::path& directory) {
        for (std::size_t at = 0; at < aggregator_.files().size(); ++at) {
            const auto& file = aggregator_.files()[at];
            const fs::path path = directory / file.path;
            paths_.push_back(path);
            fds_.emplace_back();
            if (aggregator_.leaves_out(at)) continue;
            std::error_code ignored;  // opening says it
            fs::create_directories(path.parent_path(), ignored);
            UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
            if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(file.size)) != 0)
                return file_error(path, "create");
            total_ += file.size;
            fds_.back() = std::move(fd);
        }
        return {};
    }

    Result<Truncation> run() {
        const int threads = thread_count(options_);
        std::vector<std::optional<Room>> rooms(threads);
        ATOLL_RETURN_IF_ERROR(for_each_parallel(pieces_.size(), threads, [&](std::size_t at, int thread) {
            if (!rooms[thread]) rooms[thread].emplace(aggregator_);
            return make(pieces_[at], *rooms[thread]);
        }));
        Truncation total;
        for (auto& room : rooms) {
            if (!room) continue;
            const Truncation one = room->workspace.take_truncation();
            total.left_out.add(one.left_out);
            total.whole.add(one.whole);
        }
        return total;
    }

  private:
    // What a thread works with.
    struct Room {
        explicit Room(const Aggregator& aggregator) : workspace(aggregator), buffer(kPieceBytes) {}
        Aggregator::Workspace workspace;
        std::vector<std::byte> buffer;
    };

    Status make(const Piece& piece, Room& room) {
        const std::span<std::byte> bytes = std::span(room.buffer).first(piece.size);
        ATOLL_RETURN_IF_ERROR(aggregator_.read(piece.file, piece.offset, bytes, room.workspace));
        const std::string_view made(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        ATOLL_RETURN_IF_ERROR(write_at(fds_[piece.file].get(), piece.offset, made, paths_[piece.file]));
        const std::lock_guard lock(mutex_);
        done_ += piece.size;
        if (options_.progress) options_.progress(done_, total_);
        return {};
    }

    const Aggregator& aggregator_;
    const WriteOptions& options_;
    const std::vector<Piece> pieces_;
    std::vector<fs::path> paths_;
    std::vector<UniqueFd> fds_;
    std::uint64_t total_ = 0;
    std::mutex mutex_;
    std::uint64_t done_ = 0;  // under mutex_
};

// Of a change, whose base nobody has here, or of a control variate.
Status check_scales(const Input& input) {
    ATOLL_TRY(const OpenedFile opened, read_header(input, input.files.front()));
    ATOLL_TRY(const delta::Description said, delta::describe(opened.header));
    const std::size_t block_bytes = delta::block_bytes(said.format);
    std::vector<std::byte> blocks;
    for (const safetensors::TensorInfo& tensor : opened.header.tensors) {
        if ((tensor.end - tensor.begin) % block_bytes != 0)
            return invalid_argument(tensor.name, input.name + "/" + input.files.front().path + ": tensor " +
                                                     in_quotes(tensor.name) + " does not consist of whole blocks");
        const std::uint64_t piece = kPieceBytes / block_bytes * block_bytes;
        for (std::uint64_t at = tensor.begin; at < tensor.end; at += blocks.size()) {
            blocks.resize(static_cast<std::size_t>(std::min(piece, tensor.end - at)));
            ATOLL_RETURN_IF_ERROR(input.files.front().bytes->read(opened.header.data_begin + at, blocks));
            for (std::size_t block = 0; block < blocks.size(); block += block_bytes) {
                float scale;
                std::memcpy(&scale, &blocks[block], sizeof scale);
                const std::uint64_t element = (at - tensor.begin + block) / block_bytes * delta::kBlockElements;
                if (!std::isfinite(scale))
                    return non_finite(tensor.name, input.name + "/" + input.files.front().path, element);
            }
        }
    }
    return {};
}

}  // namespace

Result<std::shared_ptr<const ByteSource>> open_file(const fs::path& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info{};
    if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return file_error(path, "open");
    if (!S_ISREG(info.st_mode)) return invalid_argument(path.string(), path.string() + " is not a file");
    return std::shared_ptr<const ByteSource>(
        std::make_shared<LocalFile>(path, std::move(fd), static_cast<std::uint64_t>(info.st_size)));
}

Result<Input> open_directory(const fs::path& directory) {
    std::error_code error;
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
        if (travels_beside(entry.path().filename())) continue;
        if (entry.path().extension() == ".safetensors" && !is_hidden(entry.path()))
            names.insert(entry.path().filename().string());
    }
    const bool is_gone = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    if (error)
        return Error{is_gone ? ErrorCode::kNotFound : ErrorCode::kInternal,
                     "cannot list " + directory.string() + ": " + error.message(), directory.string()};
    if (fs::exists(directory / kIndexName)) {
        ATOLL_TRY(const std::set<std::string> indexed, read_index(directory / kIndexName));
        for (const auto& name : indexed)
            if (!names.contains(name))
                return invalid_argument(name, (directory / name).string() + " is in the index but missing");
        for (const auto& name : names)
            if (!indexed.contains(name))
                return invalid_argument(name, (directory / name).string() + " is not in the index");
    }
    if (names.empty()) ATOLL_RETURN_IF_ERROR(explain_torch_files(directory));
    Input input{directory.string(), {}};
    for (const auto& name : names) {
        ATOLL_TRY(auto bytes, open_file(directory / name));
        input.files.push_back({name, std::move(bytes)});
    }
    if (fs::exists(directory / model_config::kTokenCountsFile)) {
        ATOLL_TRY(input.token_counts, open_file(directory / model_config::kTokenCountsFile));
    }
    if (fs::exists(directory / delta::kControlVariateFile)) {
        ATOLL_TRY(input.control_variate, open_file(directory / delta::kControlVariateFile));
    }
    return input;
}

std::string find_torch_file(const fs::path& directory) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error))
        if (entry.path().extension() == ".safetensors") return {};
    for (const char* name : {"adapter_model.bin", "pytorch_model.bin", "pytorch_model.bin.index.json"})
        if (fs::exists(directory / name, error)) return name;
    return {};
}

Status explain_torch_files(const fs::path& directory) {
    const std::string name = find_torch_file(directory);
    if (name.empty()) return {};
    return invalid_argument(name, (directory / name).string() + " is PyTorch's: `atoll-trainer import --from " +
                                      directory.string() + " --out DIR` makes safetensors of it");
}

Result<Input> open_update(const StrategySpec& strategy, const fs::path& directory) {
    ATOLL_TRY(Input input, open_directory(directory));
    ATOLL_TRY(const auto made, make_strategy(strategy));
    if (made->is_of_adapters()) {
        ATOLL_TRY(input.lora, read_lora_scale(directory));
    }
    return input;
}

Result<RoundBase> open_base(const StrategySpec& strategy, const fs::path& directory, const fs::path& state) {
    RoundBase start;
    ATOLL_TRY(start.base, open_update(strategy, directory));
    ATOLL_TRY(const auto made, make_strategy(strategy));
    for (const std::string_view name : made->state()) {
        if (!fs::exists(state / name)) continue;
        ATOLL_TRY(start.state[std::string(name)], open_directory(state / name));
    }
    if (strategy.control_variate && fs::exists(directory / delta::kControlVariateFolder)) {
        ATOLL_TRY(start.control_variate, open_directory(directory / delta::kControlVariateFolder));
    }
    return start;
}

// The mean of one model is that model: making it looks at every number.
Status check_finite(std::vector<Input> inputs) {
    for (Input& input : inputs) {
        if (input.control_variate)
            ATOLL_RETURN_IF_ERROR(check_scales({input.name, {{delta::kControlVariateFile, input.control_variate}}}));
        if (is_change(input)) {
            ATOLL_RETURN_IF_ERROR(check_scales(input));
            continue;
        }
        std::vector<Input> one;
        one.push_back(std::move(input));
        ATOLL_TRY(const Aggregator aggregator, Aggregator::plan({}, std::move(one), {1}));
        Aggregator::Workspace workspace(aggregator);
        std::vector<std::byte> bytes(kPieceBytes);
        for (const Piece& piece : cut_into_pieces(aggregator))
            ATOLL_RETURN_IF_ERROR(
                aggregator.read(piece.file, piece.offset, std::span(bytes).first(piece.size), workspace));
    }
    return {};
}

Result<Prepared> measure_inputs(Aggregator& aggregator, const std::vector<Assignment>& assigned,
                                const WriteOptions& options, const std::vector<EarlierNorm>& earlier) {
    const std::vector<Piece> pieces = cut_into_pieces(aggregator);
    const std::size_t count = aggregator.statistics_count();
    std::vector<std::vector<ExactSum>> by_thread(thread_count(options), std::vector<ExactSum>(count));
    std::vector<std::optional<Aggregator::Workspace>> workspaces(thread_count(options));
    ATOLL_RETURN_IF_ERROR(
        for_each_parallel(pieces.size(), thread_count(options), [&](std::size_t at, int thread) -> Status {
            if (count == 0) return {};
            if (!workspaces[thread]) workspaces[thread].emplace(aggregator);
            return aggregator.measure(pieces[at].file, pieces[at].offset, pieces[at].size, by_thread[thread],
                                      *workspaces[thread]);
        }));
    std::vector<double> totals;
    for (std::size_t i = 0; i < count; ++i) {
        ExactSum sum;
        for (const auto& sums : by_thread) sum.add(sums[i]);
        totals.push_back(sum.value());
    }
    return aggregator.prepare(totals, assigned, earlier);
}

Result<Truncation> write_aggregate(const Aggregator& aggregator, const fs::path& first, const fs::path& out,
                                   const WriteOptions& options) {
    if (fs::exists(out) && !fs::is_empty(out))
        return Error{ErrorCode::kConflict, out.string() + " exists; choose another or remove it", out.string()};
    ATOLL_TRY(UnfinishedDirectory directory, UnfinishedDirectory::create(out));
    PieceWriter writer(aggregator, options);
    ATOLL_RETURN_IF_ERROR(writer.open(directory.path()));
    ATOLL_TRY(const Truncation truncation, writer.run());
    ATOLL_RETURN_IF_ERROR(copy_other_files(aggregator, first, directory.path()));
    if (options.dtype) ATOLL_RETURN_IF_ERROR(say_dtype(aggregator, *options.dtype, directory.path()));
    ATOLL_RETURN_IF_ERROR(sync_tree(directory.path()));
    ATOLL_RETURN_IF_ERROR(directory.rename_to(out));
    ATOLL_RETURN_IF_ERROR(sync_path(out.has_parent_path() ? out.parent_path() : fs::path(".")));
    return truncation;
}

}  // namespace atl::aggregate
