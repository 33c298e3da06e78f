#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/state_writer.h"
#include "trainer/offload/chunk_stream.h"
#include "trainer/parallel/gather_to_rank0.h"

namespace atl::checkpoint {
namespace {

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Status read_section(parallel::ParameterStore& store, kernels::Backend& backend, const Section& section, std::int64_t at,
                    std::span<std::byte> to) {
    const std::int64_t kept = store.saved_range(section.saved, section.unit).begin;
    return store.read(backend, section.saved, section.unit, section.begin - kept + at, to);
}

// All ranks at once, each its part.
Status save_files(const std::filesystem::path& file, parallel::ParameterStore& store, kernels::Backend& backend,
                  comm::Comm& comm, Content content, const TrainerState& state, const Metadata& of_the_run) {
    auto writer = open_writer(file, store, backend, comm, content, state, of_the_run);
    ATOLL_RETURN_IF_ERROR(comm.agree(parallel::write_outcome(writer.ok() ? Status() : Status(writer.error()))));
    std::vector<std::byte> piece;
    const Status written = writer->write(
        [&](const Section& section, std::int64_t at, std::int64_t count) -> Result<std::span<const std::byte>> {
            piece.resize(static_cast<std::size_t>(tensor::size_bytes(section.dtype, count)));
            ATOLL_RETURN_IF_ERROR(read_section(store, backend, section, at, piece));
            return std::span<const std::byte>(piece);
        });
    return commit(*writer, written, store, comm);
}

}  // namespace

Status save_checkpoint(const std::filesystem::path& file, parallel::ParameterStore& store, kernels::Backend& backend,
                       comm::Comm& comm, const TrainerState& state, const std::string& fingerprint) {
    return save_files(file, store, backend, comm, Content::kState, state, {{kFingerprint, fingerprint}});
}

Status save_optimizer(const std::filesystem::path& file, parallel::ParameterStore& store, kernels::Backend& backend,
                      comm::Comm& comm, const TrainerState& state, const std::string& fingerprint,
                      const std::string& name) {
    return save_files(file, store, backend, comm, Content::kOptimizer, state,
                      {{kFingerprint, fingerprint}, {kName, name}});
}

std::int64_t own_optimizer_bytes(const parallel::ParameterStore& store) {
    std::int64_t bytes = 0;
    for (const Section& section : own_sections(store, Content::kOptimizer)) bytes += section.size_bytes();
    return bytes;
}

struct AsyncSaver::Impl {
    std::filesystem::path file;
    parallel::ParameterStore& store;
    kernels::Backend& backend;
    comm::Comm& comm;
    std::string fingerprint;
    std::unique_ptr<std::byte[]> staging;  // the sections, one behind the other
    std::optional<StateWriter> writer;     // of the state under way
    std::future<Status> written;
    double took_s = 0;               // the thread's until `written` is there
    offload::TransferThread thread;  // last: it uses the others

    Status stage() {
        const double began = now_s();
        std::byte* to = staging.get();
        for (const Section& section : own_sections(store, Content::kState)) {
            const auto size = static_cast<std::size_t>(section.size_bytes());
            ATOLL_RETURN_IF_ERROR(read_section(store, backend, section, 0, {to, size}));
            to += size;
        }
        took_s = now_s() - began;
        return {};
    }

    // What write() asks for comes in the order of the sections.
    Status write() {
        const double began = now_s();
        const std::byte* next = staging.get();
        Status status = writer->write(
            [&](const Section& section, std::int64_t /*at*/, std::int64_t count) -> Result<std::span<const std::byte>> {
                const std::span piece(next, static_cast<std::size_t>(tensor::size_bytes(section.dtype, count)));
                next += piece.size();
                return piece;
            });
        took_s += now_s() - began;
        return status;
    }
};

AsyncSaver::AsyncSaver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AsyncSaver::AsyncSaver(AsyncSaver&&) noexcept = default;
AsyncSaver& AsyncSaver::operator=(AsyncSaver&&) noexcept = default;
AsyncSaver::~AsyncSaver() = default;

Result<AsyncSaver> AsyncSaver::create(const std::filesystem::path& file, parallel::ParameterStore& store,
                                      kernels::Backend& backend, comm::Comm& comm, const std::string& fingerprint) {
    const std::int64_t bytes = store.own_state_bytes();
    std::unique_ptr<std::byte[]> staging(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes)]());
    const Error none{ErrorCode::kResourceExhausted,
                     "there are no " + std::to_string(bytes) + " bytes for a copy of what this rank saves",
                     "--save-async"};
    ATOLL_RETURN_IF_ERROR(comm.agree(staging ? Status() : Status(none)));
    return AsyncSaver(std::unique_ptr<Impl>(
        new Impl{file, store, backend, comm, fingerprint, std::move(staging), std::nullopt, {}, 0, {}}));
}

double AsyncSaver::took_s() const {
    return impl_->took_s;
}

bool AsyncSaver::is_saving() const {
    return impl_->writer.has_value();
}

Status AsyncSaver::begin(const TrainerState& state) {
    Impl& impl = *impl_;
    ATOLL_RETURN_IF_ERROR(wait());
    auto writer = open_writer(impl.file, impl.store, impl.backend, impl.comm, Content::kState, state,
                              {{kFingerprint, impl.fingerprint}});
    const Status staged = writer.ok() ? impl.stage() : Status(writer.error());
    ATOLL_RETURN_IF_ERROR(impl.comm.agree(parallel::write_outcome(staged)));
    impl.writer.emplace(std::move(writer).value());
    impl.written = impl.thread.begin([&impl] { return impl.write(); });
    return {};
}

Status AsyncSaver::progress() {
    if (!is_saving()) return {};
    double busy = impl_->written.wait_for(std::chrono::seconds(0)) == std::future_status::ready ? 0 : 1;
    impl_->comm.all_reduce(std::span(&busy, 1), comm::Reduction::kMax);
    return busy > 0 ? Status() : wait();
}

Status AsyncSaver::wait() {
    if (!is_saving()) return {};
    const Status written = impl_->written.get();
    const Status outcome = commit(*impl_->writer, written, impl_->store, impl_->comm);
    impl_->writer.reset();
    return outcome;
}

}  // namespace atl::checkpoint
