#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shared/auth/auth.h"
#include "shared/base/file.h"
#include "shared/http/client/client.h"
#include "shared/json/json.h"

namespace atl::contract {

// Polls until the condition holds; false when it did not within two minutes.
bool eventually(const std::function<bool()>& condition);

// One operation of an OpenAPI document.
struct Operation {
    http::Method method;
    std::string path;  // as described, "/v1/jobs/{id}"
    bool is_public;
    std::vector<std::string> strict_parameters;  // of the query: those that take numbers or certain words only

    std::string name() const;          // "GET /v1/jobs/{id}"
    std::string path_of_none() const;  // with well-formed names of things that do not exist
    // With these in place of its parameters, and of others as path_of_none().
    std::string path_with(const std::map<std::string, std::string>& parameters) const;
};

// Everything that `atoll up` starts, with the programs of this build, until the object dies.
class RunningStack {
  public:
    // With `atoll up`'s supervisor, or without for tests that end and start components themselves.
    Status start(bool is_supervised = false);
    ~RunningStack();

    // The answer through the gateway, of one attempt. `service` empty: the path of the gateway itself.
    http::ClientResponse call(const std::string& service, http::Method method, const std::string& path,
                              const std::string& token, const std::string& body = {}) const;
    // The same at the service itself, past the gateway.
    http::ClientResponse call_directly(const std::string& service, http::Method method, const std::string& path) const;
    // Where the service itself, or the gateway, has its socket, as http::ClientOptions takes it.
    std::string address(const std::string& service) const;
    // Bytes as they are to the gateway; all that it answers until it hangs up.
    std::string send_raw(const std::string& bytes) const;
    // The document that the service serves.
    std::vector<Operation> operations(const std::string& service) const;

    std::filesystem::path state() const { return directory_.path() / "stack"; }
    // The gateway's.
    std::uint16_t port() const { return description_.at("ports").at("gateway"); }
    // Its database, for libpq.
    std::string postgres() const { return description_.at("postgres"); }

    // `atoll` with these arguments, for this stack.
    Status run(std::vector<std::string> arguments) const;

    // A token that the stack's own key signed; a facility's scope names the things of path_of_none().
    std::string token(auth::Role role, std::chrono::seconds life = std::chrono::hours(1)) const;
    std::string token(const auth::TaskScope& scope) const;
    std::string token(const std::string& subject, auth::Role role) const;
    // As the end of the attempt does. The services know it some seconds later.
    Status revoke(const auth::TaskScope& scope) const;

  private:
    std::string sign(auth::Principal principal, std::chrono::seconds life) const;

    TemporaryDirectory directory_{"atoll-contract"};
    bool is_up_ = false;
    json::Json description_;  // stack.json
};

// The one stack of all tests of this program that leave it as they found it, or add to it what disturbs nobody. Started
// when it is first asked for, ended with the program.
RunningStack& shared_stack();

}  // namespace atl::contract
