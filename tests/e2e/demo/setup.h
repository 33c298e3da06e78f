#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/e2e/demo/federation.h"

// The steps that the demo and the tests of the running system share.
namespace atl::demo {

// A tokenizer learnt from a corpus and a model of random weights with it.
struct RandomModel {
    std::filesystem::path corpus;     // JSON lines
    json::Json config;                // the model's config.json
    std::filesystem::path tokenizer;  // directory to make
    std::filesystem::path out;        // directory to make; config.json is written beside it
};
Status make_random_model(const std::filesystem::path& programs, const RandomModel& model);

// Makes a directory the version "base" of a model in the store.
Status push_base(const std::filesystem::path& programs, const std::filesystem::path& stack, const std::string& model,
                 const std::filesystem::path& directory);

// The record of a facility on this machine: transport and batch system `local`. `programs`: where its atoll and
// atoll-trainer are; empty: dispatch's own.
json::Json local_facility(const std::string& name, const std::filesystem::path& work_dir,
                          const std::filesystem::path& programs = {});

// What a stack and its facilities work with is made by root and belongs to another user where root started the stack.
Status give_to_stack(const std::filesystem::path& path, const std::filesystem::path& stack);

// An empty directory for a stack and what its facilities work with, in place of what is there. Where only root can get
// there, as in a clone in /root, it is a link to a directory that others can reach.
Status make_reachable(const std::filesystem::path& directory);

// A facility with one data set, whose text is corpus.jsonl in its work directory.
struct SiteSetup {
    json::Json facility;    // as dispatch takes it
    json::Json dataset;     // as the registry takes it
    std::string tokenizer;  // the model whose version "base" holds it
    std::int64_t sequence_length = 0;
    std::int64_t validation_percent = 0;
};
// Registers both and has the facility tokenise; the preparation's id.
Result<std::string> register_site(Coordinator& coordinator, const SiteSetup& site);

}  // namespace atl::demo
