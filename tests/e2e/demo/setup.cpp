#include "tests/e2e/demo/setup.h"

#include "shared/base/file.h"
#include "tests/e2e/demo/process.h"

namespace atl::demo {

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
            {"work_dir", std::filesystem::absolute(work_dir).string()},
            {"programs", programs.string()}};
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
