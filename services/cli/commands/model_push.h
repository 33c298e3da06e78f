#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "services/cli/context.h"

// What `model push` and `model import` share.
namespace atl::cli {

struct PushOptions {
    std::string model;
    std::filesystem::path directory;
    std::string kind = "base";
    bool names_kind = false;  // somebody said it, and not the default
    std::string tag;
    bool move_tag = false;  // from the version that it names
    std::string description;
    std::vector<std::string> parents;
    std::string adapter_of;  // the model that the directory is an adapter of; empty: it is a model
};

void add_push_options(CLI::App& command, PushOptions& given);

// Before a long upload: kInvalidArgument names the model's name or the tag that the store would refuse.
Status check_names(const PushOptions& given);

// kInvalidArgument: the directory is to be a base and is an adapter of one.
Status check_is_model(const PushOptions& given);

// Uploads the directory as a version of the model, makes the model if need be, tags it and says so.
Status push_model(const Context& context, const PushOptions& given);

// Adds `model import`.
void add_import_command(CLI::App& group, Context& context);

}  // namespace atl::cli
