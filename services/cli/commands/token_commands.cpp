#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "services/cli/commands/commands.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/usage.h"
#include "services/stack/stack.h"
#include "services/stack/stack_user.h"
#include "shared/base/file.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr const char* kTokenHelp =
    R"(A token is who somebody is and what they may do: admin (all), operator (data, models, jobs of their own), viewer (look),
metrics (only /metrics, for Prometheus).
Examples:
  atoll token issue ada --role operator --days 30 --out ada.token
  atoll token list
  atoll token revoke 01jd3v7e…
A lost token's id: atoll token show --token-file lost.token. One that `atoll up` made is replaced so: revoke it, remove
tokens/NAME.token in the state directory, and type atoll up.)";

constexpr const char* kRotateHelp =
    R"(Everything goes on meanwhile. Tokens that the old key has signed hold until --drop-old: give people new ones between
the two. Sites need none: dispatch makes theirs, and what a transfer under way loses is tried again. Where the stack was
started otherwise, by hand: put the new public key before the old one into the public key file of every service, wait 15
seconds, replace dispatch's private key; later take the old public key out. Examples:
  atoll token rotate-key
  atoll token rotate-key --drop-old)";

struct IssueOptions {
    std::string subject;
    std::string role = "operator";
    int days = 90;
    std::filesystem::path out;
};

Status run_issue(const Context& context, const IssueOptions& given) {
    if (!given.out.empty() && std::filesystem::exists(given.out))
        return invalid_argument("--out", given.out.string() + " exists already; it stays as it is");
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    const json order = {{"subject", given.subject}, {"role", given.role}, {"days", given.days}};
    // A token that cannot be kept is not made.
    if (!given.out.empty()) ATOLL_RETURN_IF_ERROR(write_file_atomic(given.out, "", 0600));
    auto answer = client.post_json("/v1/tokens", order);
    if (!answer.ok() && !given.out.empty()) (void)std::filesystem::remove(given.out);
    ATOLL_TRY(json issued, std::move(answer));
    if (!given.out.empty()) {
        ATOLL_RETURN_IF_ERROR(write_file_atomic(given.out, text(issued, "token"), 0600));
        issued.erase("token");
    }
    if (context.json) return print_json(issued);
    if (given.out.empty()) std::cout << text(issued, "token") << "\n";
    std::cerr << "token " << text(issued, "id") << " of " << given.subject << ", " << given.role << " until "
              << text(issued, "expires_at")
              << (given.out.empty() ? ": it is shown only once\n" : ": in " + given.out.string() + "\n");
    return {};
}

Status run_list(const Context& context) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json tokens, get_all(client, "/v1/tokens"));
    return print_items(
        context, tokens,
        {"id", cut("subject"), "role", droppable("by"), droppable("issued"), "expires", droppable("revoked"), "state"},
        [](const json& token) -> std::vector<std::string> {
            return {text(token, "id"),         text(token, "subject"),   text(token, "role"),
                    text(token, "issued_by"),  text(token, "issued_at"), text(token, "expires_at"),
                    text(token, "revoked_at"), text(token, "state")};
        });
}

Status run_show(const Context& context) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(json token, client.get_json("/v1/token"));
    if (context.json) return print_json(token);
    token["expires_at"] = utc_time(token.value("expires_unix_s", std::int64_t{0}));
    token.erase("expires_unix_s");
    return print_members(token, {"id", "subject", "role", "expires_at"});
}

Status run_revoke(const Context& context, const std::string& id) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json tokens, get_all(client, "/v1/tokens"));  // first: it may be our own token
    ATOLL_TRY(const auto answer, client.call(http::Method::kDelete, "/v1/tokens/" + segment(id)));
    ATOLL_RETURN_IF_ERROR(answer.check());
    const bool is_listed =
        std::any_of(tokens.begin(), tokens.end(), [&](const json& token) { return text(token, "id") == id; });
    if (context.json) return print_json({{"revoked", id}, {"listed", is_listed}});
    if (is_listed)
        std::cout << "token " << id << " is revoked: within 15 seconds no service takes it\n";
    else
        print_line("no token with the id " + id +
                   " was issued here (`atoll token list`): check that it is the right one. Should there be one, as of "
                   "those in tokens/ that `atoll up` makes, no service takes it from now on");
    return {};
}

Status run_rotate_key(Context& context, bool drop_old) {
    ATOLL_RETURN_IF_ERROR(stack::become_owner(context.state_directory));
    const stack::Report report = [&context](const std::string& line) {
        if (!context.json) std::cout << line << std::endl;
    };
    ATOLL_RETURN_IF_ERROR(drop_old ? stack::drop_old_keys(context.state_directory, report)
                                   : stack::rotate_key(context.state_directory, report));
    return context.json ? print_json({{drop_old ? "dropped" : "rotated", true}}) : Status();
}

}  // namespace

void add_token_commands(CLI::App& program, Context& context) {
    auto* group = program.add_subcommand("token", "tokens of people and programs")->footer(kTokenHelp);
    group->require_subcommand(1);
    auto* issue = group->add_subcommand("issue", "make a token for somebody (admin)");
    const auto given = std::make_shared<IssueOptions>();
    issue->add_option("subject", given->subject, "who gets it; jobs are of whoever submits them")->required();
    issue->add_option("--role", given->role, "admin, operator, viewer or metrics")
        ->check(CLI::IsMember({"admin", "operator", "viewer", "metrics"}))
        ->capture_default_str();
    issue->add_option("--days", given->days, "how long it holds")->check(CLI::Range(1, 365))->capture_default_str();
    issue->add_option("--out", given->out, "a new file for it, which only you can read; default: standard output");
    set_example(*issue, "atoll token issue ada --role operator --days 30 --out ada.token");
    on_run(*issue, context, [&context, given] { return run_issue(context, *given); });
    auto* list = group->add_subcommand("list", "the tokens that were issued here (admin)");
    set_example(*list, "atoll token list");
    on_run(*list, context, [&context] { return run_list(context); });
    auto* show = group->add_subcommand("show", "whose token it is that you use");
    set_example(*show, "atoll token show --token-file ada.token");
    on_run(*show, context, [&context] { return run_show(context); });
    auto* revoke = group->add_subcommand("revoke", "end a token before its time (admin)");
    const auto id = std::make_shared<std::string>();
    revoke->add_option("id", *id, "the token's id: atoll token list, atoll token show")->required();
    set_example(*revoke, "atoll token revoke 01jd3v7e8m2k4t6w8y0a2c4e6g");
    on_run(*revoke, context, [&context, id] { return run_revoke(context, *id); });
    auto* rotate =
        group->add_subcommand("rotate-key", "replace the key that signs tokens, of the stack on this machine")
            ->footer(kRotateHelp);
    const auto drop_old = std::make_shared<bool>(false);
    rotate->add_flag("--drop-old", *drop_old, "end the tokens of the keys before it");
    on_run(*rotate, context, [&context, drop_old] { return run_rotate_key(context, *drop_old); });
}

}  // namespace atl::cli
