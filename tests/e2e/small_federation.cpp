#include "tests/e2e/small_federation.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <random>
#include <utility>

#include "tests/e2e/demo/corpus.h"
#include "tests/e2e/demo/process.h"
#include "tests/e2e/demo/setup.h"

namespace atl::e2e {
namespace {

namespace fs = std::filesystem;
using demo::run_program;
using json::Json;

constexpr int kSequenceLength = 32;

// Sentences of invented words; the seed is the language.
std::vector<std::string> invented_documents(unsigned seed, int count) {
    std::mt19937 random(seed);
    std::vector<std::string> words(60);
    for (std::string& word : words)
        for (unsigned syllable = 0; syllable < 2 + random() % 2; ++syllable) {
            word += static_cast<char>('a' + random() % 20);
            word += "aeiou"[random() % 5];
        }
    std::vector<std::string> documents;
    for (int i = 0; i < count; ++i) {
        std::string text;
        for (unsigned word = 0; word < 12 + random() % 12; ++word) text += words[random() % words.size()] + " ";
        documents.push_back(text + std::to_string(i));
    }
    return documents;
}

Json tiny_config() {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"vocab_size", 320},
            {"hidden_size", 32},
            {"intermediate_size", 64},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 2},
            {"num_key_value_heads", 2},
            {"hidden_act", "silu"},
            {"max_position_embeddings", 64},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 10000.0},
            {"tie_word_embeddings", false},
            {"torch_dtype", "float16"},
            {"initializer_range", 0.02},
            {"bos_token_id", 1},
            {"eos_token_id", 2}};
}

}  // namespace

std::string SmallFederation::program(const std::string& name) {
    return std::string(ATOLL_PROGRAMS) + "/" + name;
}

SmallFederation::SmallFederation(FederationOptions options)
    : options_(std::move(options)), directory_(options_.directory) {
    if (directory_.empty()) directory_ = temporary_.emplace("atoll-e2e").path();
    if (options_.programs.empty()) options_.programs = ATOLL_PROGRAMS;
}

SmallFederation::~SmallFederation() {
    if (!is_up_) return;
    const auto ended = run_program({options_.programs / "atoll", "down", "--state", path("stack")});
    if (!ended.ok()) std::fprintf(stderr, "%s\n", ended.error().message.c_str());
}

Status SmallFederation::up() {
    // Unsupervised: tests end components and start them again themselves.
    std::vector<std::string> command = {options_.programs / "atoll", "up", "--no-supervise", "--state", path("stack")};
    if (!is_up_) command.insert(command.end(), {"--port-base", "0"});  // later the ports that it had
    const bool is_first = !std::exchange(is_up_, true);
    if (is_first && ::geteuid() == 0) fs::permissions(directory_, fs::perms(0711));  // another user runs root's stack
    ATOLL_RETURN_IF_ERROR(run_program(command));
    if (is_first) ATOLL_RETURN_IF_ERROR(demo::give_to_stack(directory_, path("stack")));
    ATOLL_TRY(address_, demo::read_stack(path("stack")));
    coordinator_.emplace(address_);
    return {};
}

Status SmallFederation::set_up() {
    ATOLL_RETURN_IF_ERROR(up());
    ATOLL_RETURN_IF_ERROR(make_base());
    for (const std::string& facility : options_.facilities) ATOLL_RETURN_IF_ERROR(register_site(facility));
    return {};
}

Status SmallFederation::make_base() {
    std::vector<std::string> documents = invented_documents(1, 100);
    for (std::string& document : invented_documents(2, 100)) documents.push_back(std::move(document));
    ATOLL_RETURN_IF_ERROR(demo::write_jsonl(path("public.jsonl"), documents));
    ATOLL_RETURN_IF_ERROR(demo::make_random_model(
        ATOLL_PROGRAMS, {path("public.jsonl"), tiny_config(), path("tokenizer"), path("base")}));
    return demo::push_base(ATOLL_PROGRAMS, path("stack"), "tiny", path("base"));
}

Status SmallFederation::register_site(const std::string& facility) {
    const auto work = path("site-" + facility) / "work";
    const unsigned language = facility == options_.facilities.front() ? 1U : 2U;
    ATOLL_RETURN_IF_ERROR(demo::write_jsonl(work / "corpus.jsonl", invented_documents(language, 300)));
    ATOLL_RETURN_IF_ERROR(demo::give_to_stack(path("site-" + facility), path("stack")));
    const auto own = options_.templates.find(facility);
    const Json dataset = {{"name", "text-" + facility},
                          {"language", "it"},
                          {"license", "CC0-1.0"},
                          {"template", own == options_.templates.end() ? "{{text}}" : own->second}};
    ATOLL_TRY(const std::string id,
              demo::register_site(*coordinator_, {demo::local_facility(facility, work, options_.site_programs), dataset,
                                                  "tiny", kSequenceLength, 10}));
    return coordinator_->await_preparation(id, std::chrono::seconds(180));
}

Json SmallFederation::job_spec(const std::string& name, int rounds) const {
    Json participants = Json::array();
    for (const std::string& facility : options_.facilities)
        participants.push_back({{"facility", facility}, {"dataset", "text-" + facility}});
    return {{"name", name},
            {"model", {{"name", "tiny"}, {"version", "base"}}},
            {"rounds", rounds},
            {"strategy", {{"name", "fedavg"}, {"weighting", "tokens"}}},
            // The peak of a rank is measured where none is told, for longer than these steps take.
            {"training", {{"steps", 4}, {"batch_size", 8}, {"lr", 1e-2}, {"peak_tflops", 1}}},
            {"participants", participants}};
}

Status SmallFederation::kill_component(const std::string& component) {
    ATOLL_TRY(const std::string record, read_file(path("stack") / "run" / (component + ".pid")));
    const int pid = std::atoi(record.c_str());
    check(pid > 1, "no process id is recorded for " + component);
    if (::kill(pid, SIGKILL) != 0) return internal_error("cannot kill " + component);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return {};
}

CommandResult SmallFederation::run_atoll(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), program("atoll"));
    arguments.insert(arguments.end(), {"--state", path("stack").string()});
    return run_command(arguments, {}).value();
}

Result<int> SmallFederation::count_versions(const std::string& model, const std::string& kind) {
    http::ClientOptions options;
    options.base_url = address_.gateway;
    options.token = address_.token;
    http::Client client(options);
    ATOLL_TRY(const Json page, client.get_json("/store/v1/models/" + model + "/versions?limit=1000"));
    int count = 0;
    for (const Json& version : page["items"]) count += version["kind"] == kind ? 1 : 0;
    return count;
}

}  // namespace atl::e2e
