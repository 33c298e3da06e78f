#include "services/dispatch/admission/job_examination.h"

#include <algorithm>
#include <limits>
#include <set>

#include "services/dispatch/domain/site_output.h"
#include "services/dispatch/domain/training_settings.h"
#include "shared/base/text.h"
#include "shared/delta/delta.h"
#include "shared/model_config/ignored_tensor.h"
#include "shared/prompt/tokenizer_reader.h"
#include "shared/training_memory/cards.h"
#include "shared/training_memory/least_memory.h"

namespace atl::dispatch {
namespace {

using json::Json;
using run_settings::Device;
using run_settings::RunConfig;

constexpr std::uint64_t kMib = 1U << 20;

std::string count_text(std::int64_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string bytes_text(std::int64_t bytes) {
    return human_bytes(static_cast<std::uint64_t>(bytes));
}

// The findings about one participant or evaluation.
class Looker {
  public:
    Looker(std::vector<Finding>& findings, std::string path, std::string facility)
        : findings_(findings), path_(std::move(path)), facility_(std::move(facility)) {}

    void add(const char* name, CheckState state, std::string seen) {
        findings_.push_back({path_, facility_, {name, state, std::move(seen), ""}});
    }
    void fail(const char* name, const Error& error) {
        findings_.push_back({path_, facility_, {name, CheckState::kFail, error.message, ""}, error.field});
    }
    // What is seen where nothing is wrong.
    void judge(const char* name, const Status& status, std::string seen) {
        status.ok() ? add(name, CheckState::kOk, std::move(seen)) : fail(name, status.error());
    }
    const std::string& path() const { return path_; }
    const std::string& facility() const { return facility_; }

  private:
    std::vector<Finding>& findings_;
    std::string path_, facility_;
};

std::string name_of(const DatasetCopy& data) {
    return "version " + std::to_string(data.version) + " of dataset \"" + data.dataset + "\"";
}

void look_at_tokenizer(Looker& look, const JobSpec& spec, const BaseModel& base, const NamedCopy& copy) {
    if (!base.refusal.ok()) return look.add("tokenizer", CheckState::kSkipped, "not known");
    if (base.tokenizer.is_null())
        return look.add("tokenizer", CheckState::kSkipped,
                        "the model has none: the trainer takes the data as they are");
    const std::string made_with = copy.prepared_with.empty() ? "" : "prepared with that of " + copy.prepared_with;
    if (!copy.fits)
        return look.add("tokenizer", CheckState::kSkipped,
                        made_with.empty() ? "not known" : made_with + ", whose settings differ");
    if (*copy.fits) return look.add("tokenizer", CheckState::kOk, made_with.empty() ? "the model's" : made_with);
    const DatasetCopy& data = *copy.data;
    const std::string why =
        copy.tokenizer_reader != prompt::kTokenizerReader
            ? " was prepared by " +
                  std::string(copy.tokenizer_reader < prompt::kTokenizerReader ? "an older" : "a newer") +
                  " release, which reads tokenizers differently; prepare it again: "
            : " was prepared with another tokenizer" +
                  (copy.prepared_with.empty() ? "" : ", that of " + copy.prepared_with) + ", than that of model \"" +
                  spec.model + "\": ";
    look.fail("tokenizer", invalid_argument(copy.path + ".dataset",
                                            name_of(data) + " at " + data.facility + why + "atoll dataset prepare " +
                                                data.dataset + " --facility " + data.facility + " --tokenizer " +
                                                spec.model + "@" + spec.model_version + " …"));
}

void look_at_context(Looker& look, const JobSpec& spec, const BaseModel& base, const NamedCopy& copy) {
    if (!base.config.ok()) return;
    const DatasetCopy& data = *copy.data;
    const std::int64_t most = base.config->length_max();
    const std::string key(base.config->length_max_key());
    if (data.seq_len <= most)
        return look.add(
            "context", CheckState::kOk,
            "rows of " + count_text(data.seq_len, "token") +
                (most < std::numeric_limits<std::int32_t>::max() ? " of at most " + std::to_string(most) : ""));
    look.fail("context",
              invalid_argument(copy.path + ".dataset", name_of(data) + " has rows of " + std::to_string(data.seq_len) +
                                                           " tokens; model \"" + spec.model + "\" takes at most " +
                                                           std::to_string(most) + " (" + key +
                                                           "): prepare it with --seq-len " + std::to_string(most)));
}

void look_at_data(Looker& look, const JobSpec& spec, const BaseModel& base, const NamedCopy& copy) {
    const DatasetCopy& data = *copy.data;
    look.judge("data", copy.found,
               data.dataset + " version " + std::to_string(data.version) + ": " + count_text(data.rows, "row") + ", " +
                   count_text(copy.train_tokens, "token"));
    if (!copy.found.ok()) return;
    look_at_tokenizer(look, spec, base, copy);
    look_at_context(look, spec, base, copy);
}

// Of a facility that was never checked nothing is known: its trainer will say so itself.
void look_at_device(Looker& look, const Participant& one, const StoredFacility& stored, Device device) {
    const Json& devices = stored.devices;
    const std::string wanted(to_string(device));
    if (devices.is_null())
        return look.add("device", CheckState::kSkipped,
                        wanted + ": not known, `atoll facility check " + look.facility() + "` looks");
    const auto built = devices.get<std::vector<std::string>>();
    if (std::find(built.begin(), built.end(), wanted) != built.end())
        return look.add("device", CheckState::kOk, wanted);
    const bool is_own = one.training.is_object() && one.training.contains("device");
    look.fail("device", invalid_argument(is_own ? look.path() + ".training.device" : "training.device",
                                         "the trainer of facility \"" + look.facility() + "\" has no " + wanted +
                                             "; it has: " + join(built, ", ") + " (`atoll facility check " +
                                             look.facility() + "` looks again)"));
}

// What is in the way of everything there passes, or is mended: the job waits.
void look_at_site(Looker& look, const StoredFacility& stored) {
    if (stored.waiting) look.add("site", CheckState::kWarn, "its tasks wait just now: " + stored.waiting->reason);
}

void look_at_resources(Looker& look, const Participant& one, const StoredFacility& stored) {
    const Resources& asked = one.resources;
    const std::string queue = asked.queue.empty() ? stored.facility.batch.default_queue : asked.queue;
    Status checked = check_resources(asked, stored.facility, look.path() + ".resources");
    if (checked.ok() && stored.limits.is_object() && !queue.empty() && !stored.limits.contains(queue))
        checked = invalid_argument(look.path() + ".resources.queue",
                                   "at the last check of facility \"" + look.facility() +
                                       "\" its batch system had no partition for the queue " + queue +
                                       " (`atoll facility check " + look.facility() + "` looks again)");
    look.judge("resources", checked,
               count_text(asked.nodes, "node") + ", " + count_text(asked.ranks(), "rank") +
                   (queue.empty() ? "" : ", queue " + queue) +
                   (asked.time_s > 0 ? ", " + time_text(asked.time_s) : ""));
    const QueueLimits& found = queue_of(stored.facility.batch, asked).found;
    if (const std::string trouble = queue_trouble(found); checked.ok() && !trouble.empty())
        look.add("queue", CheckState::kWarn,
                 queue + (found.found_at.empty() ? "" : ", as seen at " + found.found_at) + ": " + trouble +
                     " (`atoll facility check " + look.facility() + "` looks again)");
}

// A training of one participant whose data are known.
class Training {
  public:
    Training(const JobSpec& spec, const Participant& one, std::string path, RunConfig settings)
        : spec_(spec), one_(one), path_(std::move(path)), settings_(std::move(settings)) {}

    // Errors have the fields of the job.
    Result<std::int64_t> steps() const {
        auto batch = plan_batch(settings_, ranks());
        if (!batch.ok()) return in_job(batch.error());
        auto steps = plan_steps(settings_, rows(), batch->global);
        if (!steps.ok()) return in_job(steps.error());
        return steps;
    }
    std::int64_t step_rows() const {
        const auto batch = plan_batch(settings_, ranks());
        return batch.ok() ? batch->global : 0;
    }
    // As the trainer's own, once it knows its data and its model.
    Status check(const BaseModel& base) const {
        ATOLL_TRY(const std::int64_t steps, this->steps());
        ATOLL_TRY(const auto batch, plan_batch(settings_, ranks()));
        if (const auto group = plan_shard_group(settings_, ranks(), ranks_on_node()); !group.ok())
            return in_job(group.error());
        for (const Status& checked :
             {run_settings::check_micro_step(batch.micro, std::max<std::int64_t>(1, one_.data.seq_len)),
              check_extent(settings_, steps, base.config.ok() ? base.config->num_hidden_layers : INT64_MAX)})
            if (!checked.ok()) return in_job(checked.error());
        return check_step_tokens(batch.global);
    }
    Result<training_memory::LeastMemory> memory(const model_config::ModelConfig& config) const {
        return training_memory::least_memory(config, settings_, ranks(), ranks_on_node(), one_.data.seq_len);
    }
    // What its site keeps of the optimizer from round to round. Of one rank: none has a part of it twice.
    Result<std::int64_t> kept_bytes(const model_config::ModelConfig& config) const {
        ATOLL_TRY(const auto least, training_memory::least_memory(config, settings_, 1, 1, one_.data.seq_len));
        return least.moments;
    }
    std::int64_t rows() const {
        return settings_.train_samples > 0 ? std::min(settings_.train_samples, one_.data.rows) : one_.data.rows;
    }
    const RunConfig& settings() const { return settings_; }
    int ranks_on_node() const { return static_cast<int>(one_.resources.tasks_per_node); }
    std::string field(const std::string& key) const {
        const bool is_own = one_.training.is_object() && one_.training.contains(key);
        return (is_own ? path_ + ".training." : std::string("training.")) + key;
    }

  private:
    int ranks() const { return static_cast<int>(one_.resources.ranks()); }

    Error in_job(const Error& said) const {
        Error error = run_settings::with_keys(said);
        error.field = field(error.field);
        return error;
    }

    // The trainer tells losses of small steps together (kLossTokensMin). Who asks for them is told at once, as far as
    // the dataset's version says it.
    Status check_step_tokens(std::int64_t step_rows) const {
        const std::int64_t seq_len = one_.data.seq_len;
        if (seq_len == 0 || step_rows * seq_len >= kLossTokensMin) return {};
        return invalid_argument(
            field("batch_size"),
            "a step at " + one_.data.facility + " would be of " + std::to_string(step_rows) + " rows of " +
                std::to_string(seq_len) + " tokens; a step's loss is published, so it must be of at least " +
                std::to_string(kLossTokensMin) + " tokens: raise batch_size, or prepare the dataset with longer rows");
    }

    const JobSpec& spec_;
    const Participant& one_;
    std::string path_;
    RunConfig settings_;
};

void look_at_settings(Looker& look, const Training& training, const BaseModel& base) {
    const Status checked = training.check(base);
    const auto steps = training.steps();
    const std::int64_t step_rows = training.step_rows();
    look.judge("settings", checked,
               steps.ok() ? count_text(*steps, "step") + " a round of " + count_text(step_rows, "row") : "");
    if (checked.ok() && step_rows > training.rows())
        look.add("batch", CheckState::kWarn,
                 "a step takes " + count_text(step_rows, "row") + " and there are " + std::to_string(training.rows()) +
                     ": each step sees rows several times; lower " + training.field("batch_size"));
}

// Slurm says 1 of nodes whose memory it was not told.
constexpr std::int64_t kUntoldMib = 1;

// Of the queue's cards, which ranks beyond their number share.
void look_at_card(Looker& look, const Training& training, const Participant& one, const Queue& queue,
                  const training_memory::LeastMemory& least) {
    const std::string need = "a card needs " + bytes_text(device_bytes(least, training.settings())) + " at least";
    const auto card = training_memory::find_card(queue.card);
    if (training.settings().device != Device::kCuda || !card.ok())
        return look.add("memory", CheckState::kSkipped,
                        need + "; what it has is not known, as the facility's queue names no card");
    const std::int64_t ranks = training.ranks_on_node();
    const std::int64_t cards = one.resources.gpus_per_node > 0 ? one.resources.gpus_per_node : ranks;
    const std::int64_t share =
        card->memory_bytes / ((ranks + cards - 1) / cards) - training_memory::kDriverBytes;  // of one rank
    const std::string has = bytes_text(std::max<std::int64_t>(0, share)) + " of a card " + queue.card;
    if (device_bytes(least, training.settings()) <= share)
        return look.add("memory", CheckState::kOk, need + " of " + has);
    look.fail(
        "memory",
        invalid_argument(look.path() + ".resources",
                         need + " (weights " + bytes_text(least.weights) + ", gradients " +
                             bytes_text(least.gradients) + ", optimizer " + bytes_text(least.masters + least.moments) +
                             ", activations " + bytes_text(least.activations) + ") and a rank has " + has +
                             ": take more cards with \"sharding\": \"full_shard\", a smaller batch_size, or "
                             "what `atoll-trainer plan --device cuda --card " +
                             queue.card + "` names"));
}

void look_at_memory(Looker& look, const Training& training, const Participant& one, const StoredFacility& stored,
                    const BaseModel& base) {
    if (!base.config.ok()) return;
    const auto least = training.memory(*base.config);
    if (!least.ok()) return;  // the settings' own failure
    const Queue& queue = queue_of(stored.facility.batch, one.resources);
    if (training.settings().device != Device::kCpu) return look_at_card(look, training, one, queue, *least);
    const std::int64_t need = least->total() * training.ranks_on_node();
    const QueueLimits& node = queue.found;
    // Of a facility without queues no memory can be asked for: that it was is another row's failure.
    const bool is_asked = one.resources.memory_mib > 0 && abilities_of(stored.facility.batch.kind).has_queues;
    const std::int64_t has_mib = is_asked ? one.resources.memory_mib : node.memory_mib_max;
    const std::string seen = "a node needs " + bytes_text(need) + " at least";
    if (has_mib <= kUntoldMib) return look.add("memory", CheckState::kSkipped, seen + "; what it has is not known");
    const std::string has = bytes_text(has_mib * static_cast<std::int64_t>(kMib));
    if (need <= has_mib * static_cast<std::int64_t>(kMib))
        return look.add("memory", CheckState::kOk, seen + " of " + has);
    look.fail("memory", invalid_argument(
                            look.path() + (is_asked ? ".resources.memory" : ".resources"),
                            seen + " (for each of its " + count_text(training.ranks_on_node(), "rank") + ": weights " +
                                bytes_text(least->weights) + ", gradients " + bytes_text(least->gradients) +
                                ", optimizer " + bytes_text(least->masters + least->moments) + ", activations " +
                                bytes_text(least->activations) + ") and " + (is_asked ? "asks for " : "has ") + has +
                                ": take more nodes with \"sharding\": \"full_shard\", \"precision\": \"bf16\", or a "
                                "smaller batch_size"));
}

// Numbers that an update of this model has: of its adapter, where the job trains one. The model's config is known.
double update_elements(const BaseModel& base) {
    return static_cast<double>(base.adapter_bytes > 0 ? base.adapter_parameters
                                                      : training_memory::parameter_count(*base.config));
}

void look_at_kept(Looker& look, const Training& training, const BaseModel& base) {
    if (!base.config.ok()) return;
    const auto bytes = training.kept_bytes(*base.config);
    if (training.settings().keep_optimizer && bytes.ok())
        look.add("kept", CheckState::kOk,
                 "the site keeps the optimizer's moments of two rounds until the job ends, " + bytes_text(*bytes) +
                     " a round");
    if (training.settings().update_format == run_settings::UpdateFormat::kModel) return;
    look.add("rounding_error", CheckState::kOk,
             "the site keeps what rounding its updates loses, of two rounds until the job ends, " +
                 bytes_text(static_cast<std::int64_t>(update_elements(base) * sizeof(float))) + " a round");
}

// Parameters of the model; nothing where they are not known.
double element_count(const BaseModel& base) {
    return base.config.ok() ? static_cast<double>(training_memory::parameter_count(*base.config)) : 0;
}

// A control variate as int8, beside an update and kept at its site.
double variate_bytes(const JobSpec& spec, const BaseModel& base) {
    if (!spec.strategy.control_variate) return 0;
    return element_count(base) / delta::kBlockElements * static_cast<double>(delta::block_bytes(delta::Format::kInt8));
}

// Their mean as BF16, in each global model.
double mean_variate_bytes(const JobSpec& spec, const BaseModel& base) {
    return spec.strategy.control_variate ? 2 * element_count(base) : 0;
}

void look_at_control_variate(Looker& look, const JobSpec& spec, const BaseModel& base) {
    if (!spec.strategy.control_variate || !base.config.ok()) return;
    const auto text = [](double bytes) { return bytes_text(static_cast<std::int64_t>(bytes)); };
    look.add("control_variate", CheckState::kOk,
             "each update brings the mean gradient of its training, " + text(variate_bytes(spec, base)) +
                 ", to whoever may read it; the site keeps that of two rounds until the job ends, and gets the mean of "
                 "all with each model, " +
                 text(mean_variate_bytes(spec, base)));
}

// "every 5 steps and at its end"
std::string interval_text(const RunConfig& settings) {
    const std::string every = value_text(settings, *run_settings::find_option("eval-every", run_settings::kTrain));
    if (every == "0") return "at the end";
    return (every == "epoch" ? "after each epoch"
            : every == "1"   ? "after each step"
                             : "every " + every + " steps") +
           " and at the end";
}

// Whether there are rows to validate on, and enough for a loss that may be told.
void look_at_validation(Looker& look, const Training& training, const NamedCopy& copy) {
    const RunConfig& settings = training.settings();
    if (!settings.given.contains("eval-every")) return;
    const DatasetCopy& data = *copy.data;
    const std::string rows =
        settings.val_samples > 0 ? "at most the first " + std::to_string(settings.val_samples) : std::string("all");
    if (data.validation_tokens >= kLossTokensMin)
        return look.add("validation", CheckState::kOk,
                        interval_text(settings) + " of each training, on " + rows +
                            " of its validation rows, which have " + count_text(data.validation_tokens, "token") +
                            " together");
    const std::string has = data.validation_tokens == 0 ? " has no rows for validation"
                                                        : " has " + count_text(data.validation_tokens, "token") +
                                                              " for validation, and the loss of fewer than " +
                                                              std::to_string(kLossTokensMin) + " is not told";
    look.fail("validation",
              invalid_argument(copy.path + ".dataset", name_of(data) + " at " + data.facility + has + ": leave out " +
                                                           training.field("eval_every") +
                                                           ", or prepare the dataset with --validation-percent "
                                                           "or --validation-input"));
}

void look_at_participant(Looker look, const JobSpec& spec, const Participant& one, const StoredFacility& stored,
                         const BaseModel& base, const NamedCopy& copy) {
    look_at_site(look, stored);
    look_at_resources(look, one, stored);
    // The settings alone were checked with the job's text.
    auto settings = parse_training_settings(settings_of(spec, one), "training");
    if (settings.ok()) settings->control_variate = spec.strategy.control_variate.value_or(0);
    if (!settings.ok()) return look.fail("settings", settings.error());
    look_at_device(look, one, stored, settings->device);
    look_at_data(look, spec, base, copy);
    if (!copy.found.ok()) return;
    const Training training(spec, one, look.path(), *settings);
    look_at_settings(look, training, base);
    look_at_validation(look, training, copy);
    look_at_memory(look, training, one, stored, base);
    look_at_kept(look, training, base);
    if (spec.strategy.weighs_rows)
        look.add("token_counts", CheckState::kOk,
                 "each update says how often the rows of its training held each token, to whoever may read it");
    look_at_control_variate(look, spec, base);
}

// What a round's update of the participant takes, without its header; where nothing is known of the model, a whole one.
double update_bytes(const JobSpec& spec, const Participant& one, const BaseModel& base) {
    const auto whole = static_cast<double>(base.adapter_bytes > 0 ? base.adapter_bytes : base.weight_bytes);
    const std::string format = settings_of(spec, one).value("update_format", "model");
    if (format == "model" || !base.config.ok()) return whole;
    const auto packed = format == "int8" ? delta::Format::kInt8 : delta::Format::kInt4;
    return update_elements(base) / delta::kBlockElements * static_cast<double>(delta::block_bytes(packed));
}

// Every global model goes to whoever trains on it or evaluates it, once; updates come back, and go on to those who
// evaluate all. Where these are adapters, the model that they belong to goes to each facility once beside them.
Travel travel_of(const JobSpec& spec, const BaseModel& base) {
    std::set<std::string> training, evaluating;
    const bool are_adapters = base.adapter_bytes > 0;
    const auto update = static_cast<double>(are_adapters ? base.adapter_bytes : base.weight_bytes);
    const auto model = static_cast<double>(are_adapters ? base.adapter_bytes : base.bytes);
    for (const Participant& one : spec.participants) training.insert(one.data.facility);
    for (const DatasetCopy& copy : spec.evaluation_copies) evaluating.insert(copy.facility);
    Travel travel;
    const auto rounds = static_cast<double>(spec.rounds);
    if (are_adapters) {
        std::set<std::string> all = training;
        all.insert(evaluating.begin(), evaluating.end());
        travel.to_facilities_bytes += static_cast<double>(base.bytes) * static_cast<double>(all.size());
    }
    const double variates = mean_variate_bytes(spec, base);  // of every model but the first
    travel.to_facilities_bytes += (rounds * model + (rounds - 1) * variates) * static_cast<double>(training.size());
    for (const std::string& facility : evaluating) {
        const bool trains = training.contains(facility);
        travel.to_facilities_bytes += trains ? model + variates : (rounds + 1) * model + rounds * variates;
        if (!spec.evaluate_updates) continue;
        const auto others = static_cast<double>(training.size() - (trains ? 1 : 0));
        travel.to_facilities_bytes += rounds * others * (update + variate_bytes(spec, base));
    }
    for (const Participant& one : spec.participants)
        travel.from_facilities_bytes += rounds * (update_bytes(spec, one, base) + variate_bytes(spec, base));
    return travel;
}

}  // namespace

Json to_json(const Finding& finding) {
    Json value = to_json(finding.row);
    value.erase("mend");
    value.update({{"path", finding.path}, {"facility", finding.facility}, {"field", finding.field}});
    return value;
}

Examination examine_job(const JobSpec& spec, const Facilities& facilities, const BaseModel& base,
                        const std::vector<NamedCopy>& copies) {
    Examination examination;
    Looker model(examination.findings, "model", "");
    const std::string reference = spec.model + "@" + spec.model_version;
    if (!base.refusal.ok())
        model.fail("model", base.refusal.error());
    else if (base.config.ok())
        model.add(
            "model", CheckState::kOk,
            reference + ": " + std::string(base.config->architecture.model_type) + ", " + human_bytes(base.bytes));
    else
        model.fail("model", invalid_argument(
                                "model", "the trainer cannot read " + reference + ": " + base.config.error().message));
    if (!base.ignored_tensor.empty())
        model.fail("weights",
                   invalid_argument(
                       "model", reference + ": " + model_config::ignored_tensor_text(base.ignored_tensor, "DIRECTORY") +
                                    "; `atoll model pull` brings it there, `atoll model push` the new one"));
    std::set<std::tuple<std::string, std::string, std::int64_t>> seen;
    for (std::size_t i = 0; i < copies.size(); ++i) {
        const NamedCopy& copy = copies[i];
        const DatasetCopy& data = *copy.data;
        Looker look(examination.findings, copy.path, data.facility);
        const bool is_new = seen.emplace(data.facility, data.dataset, data.version).second;
        if (i < spec.participants.size())
            look_at_participant(look, spec, spec.participants[i], facilities.at(data.facility), base, copy);
        else if (is_new)
            look_at_data(look, spec, base, copy);
    }
    examination.travel = travel_of(spec, base);
    return examination;
}

Status first_failure(const Examination& examination) {
    std::vector<const Finding*> failures;
    for (const Finding& finding : examination.findings)
        if (finding.row.state == CheckState::kFail) failures.push_back(&finding);
    if (failures.empty()) return {};
    std::string message = failures.front()->row.seen;
    if (failures.size() > 1)
        message += " (and " + std::to_string(failures.size() - 1) + " more: `atoll job submit --check` shows all)";
    return invalid_argument(failures.front()->field, std::move(message));
}

}  // namespace atl::dispatch
