#include "tests/e2e/demo/slurm_site.h"

#include "services/stack/layout.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "tests/e2e/demo/process.h"

namespace atl::demo {
namespace {

constexpr const char* kScript = ATOLL_SLURM_SCRIPTS "/cluster.sh";
constexpr const char* kImageScript = ATOLL_SLURM_SCRIPTS "/image.sh";
constexpr std::uint16_t kPorts = 14;  // cluster.sh says which of them it uses
constexpr std::uint16_t kPortFirst = 7420;
constexpr std::uint16_t kPortLast = 7900;

bool are_free(std::uint16_t first) {
    for (std::uint16_t port = first; port < first + kPorts; ++port)
        if (!stack::port_is_free(port)) return false;
    return true;
}

}  // namespace

Result<SlurmSite> SlurmSite::start(const std::string& name) {
    std::uint16_t port = kPortFirst;
    while (!are_free(port) && port < kPortLast) port += kPorts;
    ATOLL_RETURN_IF_ERROR(run_program({kScript, "up", name, "--port", std::to_string(port)}));
    return SlurmSite(name, "/var/tmp/atoll-clusters/" + name);
}

Status SlurmSite::remove(const std::string& name) {
    ATOLL_RETURN_IF_ERROR(run_program({kScript, "purge", name}));
    return {};
}

Status SlurmSite::copy_in(const std::filesystem::path& file, const std::string& place) const {
    ATOLL_TRY(const std::string bytes, read_file(file));
    const std::string target = work_dir() + "/" + place;
    const std::string directory = std::filesystem::path(target).parent_path();
    const bool is_program = (std::filesystem::status(file).permissions() & std::filesystem::perms::owner_exec) !=
                            std::filesystem::perms::none;
    ATOLL_RETURN_IF_ERROR(run_program({"ssh", "-F", ssh_config(), name_,
                                       "mkdir -p '" + directory + "' && cat >'" + target + "' && chmod " +
                                           (is_program ? "700" : "600") + " '" + target + "'"},
                                      bytes));
    return {};
}

Result<std::string> SlurmSite::why_no_image() const {
    ATOLL_TRY(const std::string said, run_program({kImageScript, "why-not", user()}));
    return std::string(trim(said));
}

Result<std::filesystem::path> SlurmSite::build_image(const std::filesystem::path& programs) const {
    std::filesystem::path image = root_ / "scratch/trainer.sif";
    ATOLL_RETURN_IF_ERROR(run_program({kImageScript, "build", user(), programs, image}));
    return image;
}

json::Json SlurmSite::record() const {
    return {{"name", name_},
            {"transport", {{"kind", "ssh"}, {"host", name_}, {"config_file", ssh_config()}}},
            {"batch", {{"kind", "slurm"}, {"queues", {{"main", {{"partition", "main"}}}}}, {"default_queue", "main"}}},
            {"work_dir", work_dir()}};
}

json::Json SlurmSite::facility_with_image(const std::string& place) const {
    json::Json facility = record();
    facility["image"] = {{"path", work_dir() + "/" + place}};
    return facility;
}

json::Json SlurmSite::facility_with_programs(const std::string& place) const {
    json::Json facility = record();
    facility["programs"] = work_dir() + "/" + place;
    return facility;
}

}  // namespace atl::demo
