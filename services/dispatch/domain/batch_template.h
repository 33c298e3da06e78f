#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

// A site's own batch script around a job: its interpreter, options, modules, and one line where the job's commands
// stand. That is "{{ command }}" on a line of its own, or a line with StreamFlow's "{{ streamflow_command }}" in it, as
// xFFL's templates have one: srun sh -c "{{ streamflow_command }}". "{{ streamflow_environment }}" and
// "{{ streamflow_workdir }}" are filled, too. Pure.
namespace atl::dispatch {

// kInvalidArgument that names `field`: it has no such line or two, or something to fill in that nobody fills in.
Status check_template(const std::string& text, const std::string& field);

struct TemplateValues {
    std::string header;          // options for the batch system, a line each
    std::string body;            // the job's commands
    std::string exports;         // of its environment, a line each
    std::string work_directory;  // the job's, as a word of a shell
};
// The header stands behind the options that the script begins with. Those that it replaces are taken out, as is what
// would start the command.
std::string fill_template(const std::string& text, const TemplateValues& values);

// The lines that fill_template() replaces where a job says everything itself, in order.
std::vector<std::string> replaced_lines(const std::string& text);

// The wall clock that its options ask for; 0: none.
std::int64_t template_time_s(const std::string& text);

}  // namespace atl::dispatch
