#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "shared/base/result.h"
#include "shared/http/client/client.h"

namespace CLI {
class App;
}

namespace atl::cli {

// What every command shares: the global flags, where the stack is, how to answer. Filled by the command line, then
// read by the one command that runs.
struct Context {
    std::filesystem::path state_directory;  // --state; ATOLL_STATE; else default_state_directory()
    std::string gateway;                    // --gateway; ATOLL_GATEWAY; else the stack's
    std::filesystem::path token_file;       // --token-file; else ATOLL_TOKEN (the token itself); else see token()
    mutable std::string piped_token = {};   // what a --token-file gave that can be read only once, as /dev/stdin
    bool json = false;                      // --json: answers are JSON on standard output
    std::function<int(const Error&)> exit_status_of;  // the command's own; empty: exit_status()
    std::function<Status()> run;                      // what the command on the command line does; set by on_run()

    // Before "/store" and the like. The gateway of the stack in --state is reached at its socket, although its URL is
    // given. kUnavailable: that stack does not run.
    Result<std::string> gateway_url() const;
    // The bearer token. Without one given it is that of the stack in --state, which goes to that stack's own gateway
    // and nowhere else. kUnauthenticated says how to give one.
    Result<std::string> token() const;
    // Whose token that is, as it says itself; empty where it cannot be read, which the services then say.
    std::string subject() const;
    // A client of one service through the gateway: client("store")->get_json("/v1/models").
    Result<http::Client> client(const std::string& service) const;
    // One that asks once and waits ten seconds, for who wants to know whether the service answers.
    Result<http::Client> impatient_client(const std::string& service) const;

  private:
    Result<http::ClientOptions> client_options(const std::string& service) const;
};

// Makes `body` what `command` does when it is the one on the command line. Its error becomes the program's.
void on_run(CLI::App& command, Context& context, std::function<Status()> body);

// Reads a whole file: YAML when it ends in .yaml or .yml, JSON when it ends in .json or begins with "{", else YAML. "-"
// is standard input. kInvalidArgument: it cannot be read, is empty or is neither.
Result<nlohmann::json> read_document(const std::filesystem::path& file);

// The path segment for a name or an id.
std::string segment(const std::string& name);

}  // namespace atl::cli
