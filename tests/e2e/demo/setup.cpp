#include "tests/e2e/demo/setup.h"

#include <unistd.h>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "tests/e2e/demo/process.h"

namespace atl::demo {
namespace {

namespace fs = std::filesystem;

bool is_for_root_alone(const fs::path& directory) {
    if (::geteuid() != 0) return false;
    for (fs::path way = fs::weakly_canonical(directory); way.has_relative_path(); way = way.parent_path())
        if ((fs::status(way).permissions() & fs::perms::others_exec) == fs::perms::none) return true;
    return false;
}

}  // namespace

Status make_random_model(const std::filesystem::path& programs, const RandomModel& model) {
    const std::string trainer = (programs / "atoll-trainer").string();
    const std::string config = model.out.string() + ".config.json";
    ATOLL_RETURN_IF_ERROR(write_file_atomic(config, model.config.dump(2)));
    ATOLL_RETURN_IF_ERROR(run_program({trainer, "tokenizer-train", "--input", model.corpus, "--vocab-size",
                                       model.config.at("vocab_size").dump(), "--out", model.tokenizer}));
    ATOLL_RETURN_IF_ERROR(run_program(
        {trainer, "init", "--config", config, "--tokenizer", model.tokenizer, "--out", model.out, "--seed", "1"}));
    return {};
}

Status push_base(const std::filesystem::path& programs, const std::filesystem::path& stack, const std::string& model,
                 const std::filesystem::path& directory) {
    ATOLL_RETURN_IF_ERROR(run_program({(programs / "atoll").string(), "model", "push", "--state", stack, model,
                                       directory, "--kind", "base", "--tag", "base"}));
    return {};
}

json::Json local_facility(const std::string& name, const std::filesystem::path& work_dir,
                          const std::filesystem::path& programs) {
    return {{"name", name},
            {"transport", {{"kind", "local"}}},
            {"batch", {{"kind", "local"}, {"slots", 1}}},
            {"work_dir", std::filesystem::weakly_canonical(std::filesystem::absolute(work_dir)).string()},
            {"programs", programs.string()}};
}

Status give_to_stack(const fs::path& path, const fs::path& stack) {
    // Not the stack itself, where files come and go and belong to it already.
    ATOLL_RETURN_IF_ERROR(run_program({"find", path, "-path", stack, "-prune", "-o", "-exec", "chown",
                                       "--no-dereference", "--reference=" + stack.string(), "{}", "+"}));
    return {};
}

Status make_reachable(const fs::path& directory) {
    std::error_code error;
    fs::remove_all(fs::weakly_canonical(directory), error);
    fs::remove(directory, error);
    fs::create_directories(directory.parent_path(), error);
    if (is_for_root_alone(fs::absolute(directory).parent_path())) {
        const std::string name = digest::sha256(fs::absolute(directory).string()).substr(0, 12);
        const fs::path elsewhere = fs::path("/var/lib/atoll-dev") / name;
        fs::remove_all(elsewhere, error);
        fs::create_directories(elsewhere, error);
        for (const fs::path& one : {elsewhere.parent_path(), elsewhere})
            if (!error) fs::permissions(one, fs::perms(0755), error);
        if (!error) fs::create_directory_symlink(elsewhere, directory, error);
    } else {
        fs::create_directory(directory, error);
        if (!error && ::geteuid() == 0) fs::permissions(directory, fs::perms(0755), error);
    }
    return error ? internal_error("cannot make " + directory.string() + ": " + error.message()) : Status();
}

Result<std::string> register_site(Coordinator& coordinator, const SiteSetup& site) {
    ATOLL_RETURN_IF_ERROR(coordinator.add_facility(site.facility));
    ATOLL_RETURN_IF_ERROR(coordinator.add_dataset(site.dataset));
    return coordinator.prepare({{"facility", site.facility.at("name")},
                                {"dataset", site.dataset.at("name")},
                                {"tokenizer", {{"model", site.tokenizer}, {"version", "base"}}},
                                {"input", "corpus.jsonl"},
                                {"seq_len", site.sequence_length},
                                {"batching", "packing"},
                                {"validation_percent", site.validation_percent}});
}

}  // namespace atl::demo
