#include "services/cli/rest.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "services/cli/output.h"
#include "shared/base/spelling.h"
#include "shared/config/config.h"
#include "shared/json/printable_line.h"

namespace atl::cli {

using nlohmann::json;

Result<json> get_all(http::Client& client, const std::string& path) {
    json all = json::array();
    std::string after;
    for (;;) {
        ATOLL_TRY(const json page, client.get_json(path + (path.find('?') == std::string::npos ? "?" : "&") +
                                                   "limit=1000" + (after.empty() ? "" : "&after=" + after)));
        for (const json& item : page.value("items", json::array())) all.push_back(item);
        const json next = page.value("next", json());
        if (next.is_null()) return all;
        after = http::percent_encode(next.is_string() ? next.get<std::string>() : next.dump());
    }
}

Error with_near_name(http::Client& client, const std::string& list, const std::string& what, const std::string& name,
                     const Error& error) {
    if (error.code != ErrorCode::kNotFound) return error;
    const auto items = get_all(client, list);
    if (!items.ok()) return error;
    std::vector<std::string> names;
    for (const json& item : *items) names.push_back(text(item, "name"));
    if (std::find(names.begin(), names.end(), name) != names.end()) return error;  // something of it is not there
    return not_found("there is no " + what + " " + name + did_you_mean(name, names), what);
}

Result<json> get_named(http::Client& client, const std::string& list, const std::string& what,
                       const std::string& name) {
    auto found = client.get_json(list + "/" + http::percent_encode(name));
    if (!found.ok()) return with_near_name(client, list, what, name, found.error());
    return found;
}

std::string json_text(const json& value, int indent) {
    return atl::json::printable_json(value.dump(indent, ' ', false, json::error_handler_t::replace));
}

Status print_json(const json& value) {
    std::cout << json_text(value, 2) << "\n";
    return {};
}

Status print_items(const Context& context, const json& items, const std::vector<Column>& header,
                   const std::function<std::vector<std::string>(const json& item)>& row) {
    if (context.json) return print_json(items);
    Table table(header);
    for (const json& item : items) table.add(row(item));
    print(table);
    return {};
}

std::string yaml_text(json object, const std::vector<std::string>& first) {
    std::string text;
    for (const std::string& member : first) {
        if (object.contains(member)) text += config::to_yaml({{member, object.at(member)}});
        object.erase(member);
    }
    return text + config::to_yaml(object);
}

Status print_members(const json& object, const std::vector<std::string>& first) {
    std::vector<std::string> keys = first;
    for (const auto& [key, value] : object.items())
        if (std::find(first.begin(), first.end(), key) == first.end()) keys.push_back(key);
    for (const std::string& key : keys)
        if (const std::string shown = text(object, key); !shown.empty() && shown != "{}" && shown != "[]")
            print_line(key + ": " + shown);
    return {};
}

std::string text(const json& object, const std::string& key) {
    const auto member = object.is_object() ? object.find(key) : object.end();
    if (member == object.end() || member->is_null()) return {};
    if (member->is_string()) return member->get<std::string>();
    if (member->is_number_float()) return human_number(member->get<double>());
    return member->dump();
}

std::string text(const json& object, const std::string& key, const std::string& inner) {
    const auto member = object.is_object() ? object.find(key) : object.end();
    return member == object.end() ? std::string() : text(*member, inner);
}

std::string figure_text(const json& object, const std::string& key, double times, const char* unit) {
    const auto found = object.find(key);
    return found == object.end() ? std::string() : human_number(times * found->get<double>()) + unit;
}

std::string round_text(const json& job) {
    const std::string round = text(job, "round");
    const std::string index = job.contains("index") ? text(job, "index") : round;
    return round + (index == round ? " of " : " (as " + index + " of ") + text(job, "rounds") +
           (index == round ? "" : ")");
}

std::string waiting_text(const json& waiting) {
    if (!waiting.is_object()) return {};
    return "waits since " + text(waiting, "since") + ": " + text(waiting, "reason") + "; next try at " +
           text(waiting, "next_try");
}

std::string wait_text(const json& wait) {
    const std::int64_t others = wait.value("others", std::int64_t{0});
    return text(wait, "reason") + " since " + text(wait, "since") +
           (others == 0   ? ""
            : others == 1 ? ", and one other reason"
                          : ", and " + std::to_string(others) + " others");
}

Status replace_process(const std::vector<std::string>& argv) {
    std::vector<char*> arguments;
    for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments.front(), arguments.data());
    return internal_error("cannot run " + argv.front());
}

}  // namespace atl::cli
