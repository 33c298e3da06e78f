#include <array>
#include <csignal>
#include <exception>
#include <new>
#include <system_error>

#include "shared/log/log.h"
#include "shared/log/warn.h"
#include "trainer/comm/launch.h"
#include "trainer/program/cli.h"
#include "trainer/program/commands.h"

namespace {

using atl::program::CommandEntry;

constexpr bool kOneProcess = true;

constexpr std::array<CommandEntry, 12> kCommands = {{
    {"tokenize", "turns text into rows of token ids",
     "atoll-trainer tokenize --tokenizer model --input corpus.jsonl.gz --template '{{text}}' --seq-len 512 "
     "--batching packing --out data\n"
     "  atoll-trainer tokenize --tokenizer tokenizer --input talks.jsonl --chat-template zephyr --seq-len 2048 --out "
     "data",
     atl::program::make_tokenize_command, kOneProcess},
    {"train", "trains a model; start it with mpirun or srun to use several ranks",
     "mpirun -n 4 atoll-trainer train --model model --data data --out trained --steps 1000 --global-batch-size 64 "
     "--lr 3e-4 --schedule cosine --warmup-steps 50 --sharding full_shard",
     atl::program::make_train_command},
    {"eval", "loss and perplexity of a model on data", "atoll-trainer eval --model trained --data validation",
     atl::program::make_eval_command},
    {"generate", "continues a prompt",
     "atoll-trainer generate --model trained --prompt 'Once upon a time' --max-tokens 50 --temperature 0.8 --top-p "
     "0.95",
     atl::program::make_generate_command},
    {"init", "makes a model with random weights, for pretraining",
     "atoll-trainer init --config config.json --tokenizer tokenizer --seed 1 --out model",
     atl::program::make_init_command, kOneProcess},
    {"config-from", "translates a configuration of DeepSpeed, accelerate or transformers into a run.json",
     "atoll-trainer config-from ds_config.json > run.json\n"
     "  atoll-trainer train --config run.json --model model --data data --out trained --steps 1000",
     atl::program::make_config_from_command, kOneProcess},
    {"import", "makes a model from PyTorch's .bin or Meta's consolidated.*.pth, or an adapter from peft's .bin",
     "atoll-trainer import --from opt-125m --out model --dtype bf16\n"
     "  atoll-trainer import --from llama-2-7b --max-position-embeddings 4096 --out model\n"
     "  atoll-trainer import --from old-adapter --out adapter",
     atl::program::make_import_command, kOneProcess},
    {"merge", "puts an adapter into its model", "atoll-trainer merge --model model --adapter adapter --out merged",
     atl::program::make_merge_command, kOneProcess},
    {"tokenizer-train", "makes a SentencePiece BPE tokenizer from text",
     "atoll-trainer tokenizer-train --input it.jsonl,cs.jsonl --vocab-size 8000 --out tokenizer",
     atl::program::make_tokenizer_train_command, kOneProcess},
    {"plan", "says how much memory a training run needs",
     "atoll-trainer plan --model model --data data --ranks 8 --ranks-per-node 4 --batch-size 4 --sharding full_shard",
     atl::program::make_plan_command, kOneProcess},
    {"report", "says what this machine offers", "atoll-trainer report", atl::program::make_report_command},
    {"verify", "checks kernels and gradients on this machine", "atoll-trainer verify",
     atl::program::make_verify_command, kOneProcess},
}};

// libgomp, which comes with oneDNN, binds the first thread while it is loaded when one of these is set, as job scripts
// often do. Then we would see one core, and our own threads would share it. We use none of libgomp's.
constexpr const char* kBindings[] = {"OMP_PROC_BIND=", "OMP_PLACES=", "GOMP_CPU_AFFINITY="};

[[gnu::no_sanitize("address", "undefined", "thread")]] bool starts_with(const char* text, const char* start) {
    for (; *start != '\0'; ++text, ++start) {
        if (*text != *start) return false;
    }
    return true;
}

// Takes them out of the environment. Runs before any library is initialised, and so without any.
[[gnu::no_sanitize("address", "undefined", "thread")]] void drop_bindings(int, char**, char** environment) {
    char** kept = environment;
    for (char** entry = environment; *entry != nullptr; ++entry) {
        bool binds = false;
        for (const char* name : kBindings) binds = binds || starts_with(*entry, name);
        if (!binds) *kept++ = *entry;
    }
    *kept = nullptr;
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**, char**) = drop_bindings;

// What a user is told of what the standard library throws.
atl::Error explain(const std::exception& error) {
    if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
        return {atl::ErrorCode::kResourceExhausted, "the system gives no more memory (`ulimit -v` may limit it)", ""};
    const auto* const refused = dynamic_cast<const std::system_error*>(&error);
    if (refused != nullptr && refused->code() == std::errc::resource_unavailable_try_again)
        return atl::unavailable("cannot start a thread; give fewer --threads, or raise the limit (`ulimit -u`)");
    return atl::internal_error(error.what());
}

}  // namespace

int main(int argc, char** argv) {
    atl::log::set_up({"atoll-trainer"});
    atl::log::name_command("atoll-trainer");
    // A reader that went away and a file beyond `ulimit -f` are errors of writing, not the end of a training.
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    try {
        return atl::program::run_command_line(argc, argv, kCommands);
    } catch (const std::exception& error) {
        const atl::Error told = explain(error);
        atl::log::warn(told.message);
        atl::comm::abort_run(atl::program::exit_code(told));  // the other ranks must not wait for this one
    }
}
