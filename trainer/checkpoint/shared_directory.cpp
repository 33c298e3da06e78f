// Whether all ranks see one directory.
#include <sys/utsname.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "shared/base/file.h"
#include "shared/base/id.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/parallel/gather_to_rank0.h"

namespace atl::checkpoint {
namespace {

constexpr int kTokenBytes = 8;
// A file of another machine appears in a shared directory at once, or when that directory is looked at anew.
constexpr std::chrono::seconds kPatience(5);

std::string machine_name() {
    utsname names{};
    uname(&names);
    return names.nodename;
}

// Under no name but its own: the others compare what is in it.
Status write_whole(const std::filesystem::path& file, const std::string& text) {
    std::ofstream stream(file);
    stream << text << std::flush;
    return stream ? Status() : Status(file_error(file, "write"));
}

bool appears(const std::filesystem::path& file, const std::string& token) {
    using std::chrono::steady_clock;
    for (const auto until = steady_clock::now() + kPatience;;) {
        const auto text = read_file(file);
        if (text.ok() && *text == token) return true;
        if (steady_clock::now() > until) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

}  // namespace

Status check_directory_is_shared(const std::filesystem::path& out, comm::Comm& comm) {
    if (comm.size() == 1) return {};
    std::string token = random_hex(kTokenBytes);
    comm.broadcast(std::as_writable_bytes(std::span(token)), 0);
    // Named as what a killed process leaves, which the next run removes.
    const std::filesystem::path file = checkpoint_file(out).parent_path() / (".saving." + token);
    const Status written = comm.rank() == 0 ? write_whole(file, token) : Status();
    ATOLL_RETURN_IF_ERROR(comm.agree(parallel::write_outcome(written)));
    const Status seen = comm.agree(
        appears(file, token)
            ? Status()
            : invalid_argument("--out", "rank " + std::to_string(comm.rank()) + " on " + machine_name() +
                                            " does not see what rank 0 wrote into " + file.parent_path().string() +
                                            ": name a directory that all ranks share, as each writes its part of a "
                                            "state there"));
    std::error_code error;
    if (comm.rank() == 0) std::filesystem::remove(file, error);
    return seen;
}

}  // namespace atl::checkpoint
