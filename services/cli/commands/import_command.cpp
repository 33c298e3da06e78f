#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "services/cli/commands/model_directory.h"
#include "services/cli/commands/model_push.h"
#include "services/cli/commands/trainer_program.h"
#include "shared/base/file.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kImportHelp =
    R"(Checks a Hugging Face model directory (config.json, *.safetensors) and stores it as a base model. Examples:
  atoll model import llama-2-7b ./Llama-2-7b-hf --tag v1
PyTorch's files (pytorch_model*.bin) and Meta's (params.json, consolidated.*.pth) are converted by atoll-trainer first:
  atoll model import opt-125m ./opt-125m --dtype bf16
  atoll model import llama-2-7b ./llama-2-7b --max-position-embeddings 4096 --converted /scratch/llama-2-7b)";

struct ImportOptions {
    PushOptions push;
    fs::path converted;  // empty: a temporary directory
    std::string dtype, tokenizer, max_position_embeddings, rope_factor;
};

bool needs_conversion(const fs::path& directory) {
    std::error_code error;
    if (fs::exists(directory / "model.safetensors", error) || fs::exists(directory / "model.safetensors.index.json"))
        return false;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
        const std::string name = entry.path().filename().string();
        if (name.ends_with(".bin") || name.ends_with(".pth")) return true;
    }
    return false;
}

Status convert(const ImportOptions& given, const fs::path& out) {
    std::vector<std::string> command = {"import", "--from", given.push.directory.string(), "--out", out.string()};
    const auto add = [&](const char* flag, const std::string& value) {
        if (!value.empty()) command.insert(command.end(), {flag, value});
    };
    add("--dtype", given.dtype);
    add("--tokenizer", given.tokenizer);
    add("--max-position-embeddings", given.max_position_embeddings);
    add("--rope-factor", given.rope_factor);
    return run_trainer(command, given.push.directory.string());
}

// A flag that would be passed over in silence.
Status check_unconverted(const ImportOptions& given) {
    for (const auto& [flag, value] : {std::pair{"--dtype", given.dtype},
                                      {"--tokenizer", given.tokenizer},
                                      {"--max-position-embeddings", given.max_position_embeddings},
                                      {"--rope-factor", given.rope_factor},
                                      {"--converted", given.converted.string()}})
        if (!value.empty())
            return invalid_argument(flag, "only for models that are converted; " + given.push.directory.string() +
                                              " has no PyTorch files to convert");
    return {};
}

Status run_import(const Context& context, const ImportOptions& given) {
    ATOLL_RETURN_IF_ERROR(check_names(given.push));
    const fs::path& from = given.push.directory;
    ATOLL_RETURN_IF_ERROR(check_files_to_send(from));
    ATOLL_RETURN_IF_ERROR(check_is_model(given.push));
    PushOptions push = given.push;
    std::unique_ptr<TemporaryDirectory> temporary;
    if (needs_conversion(from)) {
        if (given.converted.empty()) temporary = std::make_unique<TemporaryDirectory>("atoll-import");
        push.directory = temporary ? temporary->path() / "model" : given.converted;
        ATOLL_RETURN_IF_ERROR(convert(given, push.directory));
    } else {
        ATOLL_RETURN_IF_ERROR(check_unconverted(given));
    }
    return push_model(context, push);
}

}  // namespace

void add_import_command(CLI::App& group, Context& context) {
    auto* import = group.add_subcommand("import", "store a model from elsewhere as a base")->footer(kImportHelp);
    const auto given = std::make_shared<ImportOptions>();
    add_push_options(*import, given->push);
    import->add_option("--converted", given->converted,
                       "where a converted model is kept; default: a temporary directory ($TMPDIR), removed afterwards");
    import->add_option("--dtype", given->dtype, "of a converted model: fp32, fp16 or bf16; default: that of the files");
    import->add_option("--tokenizer", given->tokenizer, "directory with a converted model's tokenizer")
        ->check(CLI::ExistingDirectory);
    import->add_option("--max-position-embeddings", given->max_position_embeddings,
                       "a converted model's context, where Meta's params.json does not say it");
    import->add_option("--rope-factor", given->rope_factor, "how far Meta's use_scaled_rope stretches the context");
    on_run(*import, context, [&context, given] { return run_import(context, *given); });
}

}  // namespace atl::cli
