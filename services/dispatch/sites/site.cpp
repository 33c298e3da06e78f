#include "services/dispatch/sites/site.h"

namespace atl::dispatch {

Site::Site(Facility facility, std::string programs)
    : facility_(std::move(facility)),
      programs_(facility_.programs.empty() ? std::move(programs) : facility_.programs) {}

std::string Site::program(const std::string& name) const {
    return programs_.empty() ? name : programs_ + "/" + name;
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

}  // namespace atl::dispatch
