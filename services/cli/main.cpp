#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "services/cli/commands/commands.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/terminal.h"
#include "services/cli/usage.h"
#include "services/stack/layout.h"
#include "shared/log/log.h"

namespace atl::cli {
namespace {

constexpr const char* kAbout =
    R"(Atoll: one language model, trained by many supercomputers, while every text stays where it is.

Examples, in the order of a first federation:
  atoll up                                    start a coordinator on this machine
  atoll facility add leonardo --ssh leonardo --work-dir /scratch/me/atoll
  atoll model import llama ./llama-3.2-1b --tag v1
  atoll dataset register diaries-it …         then tokenise it where it lies: atoll dataset prepare diaries-it …
  atoll job init job.yaml                     a job file to edit
  atoll job submit job.yaml --watch
  atoll model pull italian-czech --out ./model
`atoll help COMMAND`, or COMMAND --help, has an example of its own. (`man atoll` is a function of the C library.)

Exit status: 0; 2 for bad input, also a name or a file that is not there; 3 for not enough of something; 1 for any other
failure.

Environment: ATOLL_CA_FILE, a PEM file of the authority that vouches for the gateway; ATOLL_CLIENT_CERTIFICATE and
ATOLL_CLIENT_KEY, PEM files for a gateway that takes only clients with a certificate (--tls-client-ca).)";

void add_global_flags(CLI::App& program, Context& context) {
    context.state_directory = stack::default_state_directory();
    program.require_subcommand(1);
    program.fallthrough();  // global flags may follow the command
    program.add_option("--state", context.state_directory, "directory of the coordinator's stack on this machine")
        ->envname("ATOLL_STATE")
        ->capture_default_str();
    program
        .add_option("--gateway", context.gateway, "the coordinator's address; default: that of the stack in --state")
        ->check(web_address())
        ->envname("ATOLL_GATEWAY");
    program.add_option("--token-file", context.token_file,
                       "file with a bearer token; default: ATOLL_TOKEN, the token itself; else that of the stack in "
                       "--state, for its own gateway alone");
    program.add_flag("--json", context.json, "answer in JSON");
    program.set_version_flag("--version", std::string("atoll ") + ATOLL_VERSION, "print the version");
}

// The first positional argument of the commands given that is an empty text, which would become another path of the
// API; empty: none is.
std::string find_empty_argument(const CLI::App& command) {
    for (const CLI::Option* option : command.get_options()) {
        const auto& words = option->results();
        if (option->get_positional() && std::find(words.begin(), words.end(), "") != words.end())
            return option->get_name();
    }
    for (const CLI::App* given : command.get_subcommands())
        if (const std::string name = find_empty_argument(*given); !name.empty()) return name;
    return {};
}

// What is of this program alone: the services' clients do not know it.
Error with_next_command(Error error) {
    if (error.code == ErrorCode::kUnavailable && error.message.starts_with("no answer from unix:"))
        error.message += "; `atoll status` says what runs";
    return error;
}

int fail(const Context& context, const Error& error) {
    if (context.json)
        std::cerr << json_text(
                         {{"error",
                           {{"type", to_string(error.code)}, {"message", error.message}, {"field", error.field}}}})
                  << "\n";
    else
        std::cerr << explain(error) << "\n";
    return context.exit_status_of ? context.exit_status_of(error) : exit_status(error);
}

int run(const std::vector<const char*>& given) {
    Context context;
    CLI::App program(kAbout, "atoll");
    add_global_flags(program, context);
    add_stack_commands(program, context);
    add_gateway_command(program, context);
    add_facility_commands(program, context);
    add_dataset_commands(program, context);
    add_job_commands(program, context);
    add_round_commands(program, context);
    add_model_commands(program, context);
    add_site_commands(program, context);
    add_doctor_command(program, context);
    add_event_commands(program, context);
    add_strategy_commands(program, context);
    add_token_commands(program, context);
    add_aggregate_command(program, context);
    const auto is_json = [](const char* word) { return std::string_view(word) == "--json"; };
    const std::vector<std::string> dashed = with_dashes(program, given);
    std::vector<const char*> typed;
    for (const std::string& word : dashed) typed.push_back(word.c_str());
    const auto words = with_help_as_flag(program, std::move(typed));
    if (!words.ok()) {
        context.json = std::any_of(given.begin(), given.end(), is_json);
        return fail(context, words.error());
    }
    const auto argc = static_cast<int>(words->size());
    const char* const* argv = words->data();
    try {
        program.parse(argc, argv);
    } catch (const CLI::Success& help_or_version) {
        return program.exit(help_or_version);
    } catch (const CLI::ParseError& error) {
        context.json = std::any_of(given.begin(), given.end(), is_json);
        return fail(context, explain_usage(program, argc, argv, error.what()));
    }
    if (const std::string name = find_empty_argument(program); !name.empty())
        return fail(context, invalid_argument(name, "is empty"));
    const Status status = context.run ? context.run() : Status();
    return status.ok() ? 0 : fail(context, with_next_command(status.error()));
}

// What was not written is a failure, too: 3 where it is for want of room.
int end_output(PrintableOutput& out, int status) {
    const int error = out.finish();
    if (error == 0) return status;
    std::cerr << "error: standard output could not be written: " << std::strerror(error) << "\n";
    if (status != 0) return status;
    return error == ENOSPC || error == EDQUOT ? 3 : 1;
}

}  // namespace
}  // namespace atl::cli

int main(int argc, char** argv) {
    atl::cli::PrintableOutput out(std::cout);
    const atl::cli::PrintableOutput err(std::cerr);
    try {
        atl::log::set_up({.program = "atoll", .level = "warn"});
        return atl::cli::end_output(out, atl::cli::run({argv, argv + argc}));
    } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << "\n";
        return 1;
    }
}
