#include "services/dispatch/sites/site.h"

#include "services/dispatch/domain/site_trouble.h"
#include "services/dispatch/sites/transport/transport.h"

namespace atl::dispatch {
Error no_work_dir(const Facility& facility, const std::string& said) {
    const std::string why = "the work directory " + facility.work_dir + " of " + facility.name +
                            " is not there: is its file system mounted?";
    return {ErrorCode::kUnavailable, said.empty() ? why : why + " (" + said + ")", {}, Cause::kWorkDirectory};
}

Error no_batch_answer(const Facility& facility, const std::string& said) {
    const std::string advice = is_munge_away(said) ? std::string(" (") + kMungeMend + ")" : "";
    return {ErrorCode::kUnavailable,
            std::string(abilities_of(facility.batch.kind).name) + " of " + facility.name + " does not answer" +
                (said.empty() ? "" : ": " + silence_text(said) + advice),
            {},
            Cause::kBatchSystem};
}

bool is_of_facility(const Error& error) {
    return is_silence(error) || error.cause == Cause::kWorkDirectory;
}

Site::Site(Facility facility, std::string programs)
    : facility_(std::move(facility)),
      programs_(facility_.programs.empty() ? std::move(programs) : facility_.programs) {}

std::string Site::program(const std::string& name) const {
    return programs_.empty() || facility_.image ? name : programs_ + "/" + name;
}

std::string Site::path(const std::string& relative) const {
    return !relative.empty() && relative.front() == '/' ? relative : facility_.work_dir + "/" + relative;
}

std::string Site::task_directory(const std::string& task, std::int64_t attempt) const {
    return facility_.work_dir + "/tasks/" + task + "/" + std::to_string(attempt);
}

std::string Site::model_directory(const std::string& digest) const {
    return facility_.work_dir + "/models/" + digest;
}

Result<std::string> Site::tail(const std::string& file, std::int64_t bytes) {
    ATOLL_TRY(std::vector<std::string> ends, tails({file}, bytes));
    return std::move(ends.front());
}

}  // namespace atl::dispatch
