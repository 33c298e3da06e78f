#include "services/dispatch/domain/job_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "services/dispatch/domain/site_output.h"
#include "services/dispatch/domain/training_settings.h"
#include "shared/run_settings/schedule.h"
#include "shared/service/names.h"

namespace atl::dispatch {
namespace {

using json::Json;
using json::ObjectReader;
using service::required_name;

constexpr std::int64_t kVersionMax = 1'000'000'000;
constexpr std::array<const char*, 4> kRoundSchedules = {"constant", "linear", "cosine", "by_step"};

std::string element(const char* list, std::size_t index) {
    return std::string(list) + "[" + std::to_string(index) + "]";
}

DatasetCopy read_dataset_copy(ObjectReader& reader, JobSource source) {
    const bool is_stored = source == JobSource::kDatabase;
    DatasetCopy data;
    data.facility = required_name(reader, "facility");
    data.dataset = required_name(reader, "dataset");
    data.version = reader.integer_or("dataset_version", 0, is_stored ? 0 : 1, kVersionMax);
    if (!is_stored) return data;
    data.path = reader.required_string("path");
    data.rows = reader.required_integer("rows", 0, INT64_MAX);
    data.seq_len = reader.required_integer("seq_len", 0, INT64_MAX);
    data.validation_tokens = reader.integer_or("validation_tokens", 0, 0, INT64_MAX);
    data.fingerprint = reader.string_or("fingerprint", "");
    return data;
}

// `ranks` says how many train on one node; beside `resources` it may only repeat them. 0: not said.
Result<Resources> parse_ranks_and_resources(std::int64_t ranks, const Json& value, const std::string& path) {
    Resources resources;
    if (!value.is_null()) {
        ATOLL_TRY(resources, parse_resources(value, path + ".resources"));
    }
    if (ranks == 0) return resources;
    const bool says_tasks = value.is_object() && (value.contains("nodes") || value.contains("tasks_per_node"));
    if (!says_tasks) resources.tasks_per_node = ranks;
    if (resources.ranks() != ranks)
        return invalid_argument(path + ".ranks", "resources ask for " + std::to_string(resources.ranks()) +
                                                     " (nodes times tasks_per_node): leave it out");
    return resources;
}

Result<Participant> parse_participant(const Json& value, const std::string& path, JobSource source) {
    ObjectReader reader(value, path);
    Participant participant;
    participant.data = read_dataset_copy(reader, source);
    const std::int64_t ranks = reader.integer_or("ranks", 0, 1, 1'000'000);
    const Json& resources = reader.object_or_null("resources");
    participant.training = reader.object_or_null("training");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(participant.resources, parse_ranks_and_resources(ranks, resources, path));
    ATOLL_RETURN_IF_ERROR(check_own_settings(participant.training, path + ".training"));
    ATOLL_RETURN_IF_ERROR(parse_training_settings(participant.training, path + ".training"));
    return participant;
}

Result<std::vector<Participant>> parse_participants(const Json& list, JobSource source) {
    if (list.empty()) return invalid_argument("participants", "at least one is needed");
    if (list.size() > kParticipantsMax)
        return invalid_argument("participants", "a job has at most " + std::to_string(kParticipantsMax) +
                                                    ", these are " + std::to_string(list.size()));
    std::vector<Participant> participants;
    std::set<std::string> facilities;
    for (std::size_t i = 0; i < list.size(); ++i) {
        ATOLL_TRY(Participant participant, parse_participant(list[i], element("participants", i), source));
        if (!facilities.insert(participant.data.facility).second)
            return invalid_argument(element("participants", i) + ".facility",
                                    participant.data.facility + " takes part twice");
        participants.push_back(std::move(participant));
    }
    return participants;
}

// Which of the job's rounds it is only dispatch says.
Status check_schedule(const Json& training, const std::string& path) {
    for (const char* key : {"schedule_runs", "schedule_run"})
        if (training.is_object() && training.contains(key))
            return invalid_argument(
                path + "." + key,
                "is not a job's to say: \"lr_round_schedule\": \"by_step\" has one schedule go over all "
                "rounds");
    return {};
}

Status check_each_training(const JobSpec& spec) {
    for (std::size_t i = 0; i < spec.participants.size(); ++i) {
        const Participant& one = spec.participants[i];
        ATOLL_RETURN_IF_ERROR(check_schedule(one.training, element("participants", i) + ".training"));
        ATOLL_RETURN_IF_ERROR(check_training_together(settings_of(spec, one), one.training, one.resources.ranks(),
                                                      element("participants", i) + ".training"));
    }
    return {};
}

Result<std::vector<DatasetCopy>> parse_evaluation_copies(const Json& list, JobSource source) {
    if (list.size() > kParticipantsMax)
        return invalid_argument("evaluation.at", "a job evaluates at " + std::to_string(kParticipantsMax) +
                                                     " places at most, these are " + std::to_string(list.size()));
    std::vector<DatasetCopy> copies;
    std::set<std::pair<std::string, std::string>> places;
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string path = element("evaluation.at", i);
        ObjectReader reader(list[i], path);
        DatasetCopy copy = read_dataset_copy(reader, source);
        ATOLL_RETURN_IF_ERROR(reader.finish());
        // A result names its facility and dataset, so that those of two versions could not be told apart.
        if (!places.emplace(copy.facility, copy.dataset).second)
            return invalid_argument(path + ".dataset", copy.dataset + " at " + copy.facility + " stands here twice");
        copies.push_back(std::move(copy));
    }
    return copies;
}

Status parse_evaluation(const Json& value, JobSource source, JobSpec& spec) {
    if (value.is_null()) {
        for (const auto& participant : spec.participants) spec.evaluation_copies.push_back(participant.data);
        return {};
    }
    ObjectReader reader(value, "evaluation");
    const Json& copies = reader.array_or_null("at");
    const bool pauses = reader.boolean_or("pause_when_worse", true);
    if (!value.value("pause_when_worse", Json()).is_null()) spec.pause_when_worse = pauses;
    spec.evaluate_updates = reader.one_of("models", {"all", "global"}, "global") == "all";
    spec.validation_samples = reader.integer_or("val_samples", 0, 0, INT64_MAX);
    if (spec.validation_samples % kLossTokensMin != 0)  // losses of sets that differ by a row would tell that row's
        reader.fail("val_samples", "must be a multiple of " + std::to_string(kLossTokensMin));
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(spec.evaluation_copies, parse_evaluation_copies(copies, source));
    if (copies.is_null())
        for (const auto& participant : spec.participants) spec.evaluation_copies.push_back(participant.data);
    const std::size_t models = spec.evaluate_updates ? spec.participants.size() + 1 : 1;
    const std::size_t most = kEvaluationsMax / models;
    if (spec.evaluation_copies.size() <= most) return {};
    return invalid_argument("evaluation.at", "a round has at most " + std::to_string(kEvaluationsMax) +
                                                 " evaluations; of \"all\" its " + std::to_string(models) +
                                                 " models it takes " + std::to_string(most) + " places, these are " +
                                                 std::to_string(spec.evaluation_copies.size()));
}

Status parse_model(const Json& value, JobSpec& spec) {
    ObjectReader reader(value, "model");
    spec.model = required_name(reader, "name");
    spec.model_version = reader.required_string("version");
    if (!service::is_version_name(spec.model_version)) reader.fail("version", service::kVersionNameRule);
    return reader.finish();
}

std::optional<std::int64_t> optional_integer(ObjectReader& reader, const char* key, std::int64_t max) {
    const std::int64_t value = reader.integer_or(key, 0, 1, max);
    return value == 0 ? std::nullopt : std::optional(value);
}

Json copy_to_json(const DatasetCopy& data) {
    return {{"facility", data.facility},
            {"dataset", data.dataset},
            {"dataset_version", data.version},
            {"path", data.path},
            {"rows", data.rows},
            {"seq_len", data.seq_len},
            {"validation_tokens", data.validation_tokens},
            {"fingerprint", data.fingerprint}};
}

// Shares sum to one, so that one of N updates has 1/N at least. As people write a third: 0.33.
Status check_max_share(const JobSpec& spec) {
    const auto count = static_cast<double>(spec.participants.size());
    if (!spec.strategy.max_share || *spec.strategy.max_share * count >= 0.99) return {};
    const double least = std::ceil(1000 / count) / 1000;
    return invalid_argument("strategy.max_share", "must be at least " + Json(least).dump() +
                                                      ": the shares of the participants (" +
                                                      std::to_string(spec.participants.size()) + ") sum to 1");
}

// An evaluation needs a model.
Status check_update_formats(const JobSpec& spec) {
    if (!spec.evaluate_updates) return {};
    for (const auto& participant : spec.participants) {
        const std::string format = settings_of(spec, participant).value("update_format", "model");
        if (format != "model")
            return invalid_argument("evaluation.models",
                                    "all evaluates each update as a model, which one of the "
                                    "update_format " +
                                        format + " is not: give global, or no update_format");
    }
    return {};
}

Status check_row_weights(const JobSpec& spec) {
    if (!spec.strategy.weighs_rows) return {};
    ATOLL_TRY(const auto training, parse_training_settings(spec.training, "training"));
    if (training.lora_rank == 0) return {};
    return invalid_argument("strategy.row_weights",
                            "weighs the rows of embedding and head, which adapters do not have: leave it out, or train "
                            "without lora_rank");
}

Status check_control_variate(const JobSpec& spec) {
    if (!spec.strategy.control_variate) return {};
    if (spec.participants.size() < 2)
        return invalid_argument("strategy.control_variate",
                                "needs at least two participants: it compares each site's gradients with the others'");
    ATOLL_TRY(const auto training, parse_training_settings(spec.training, "training"));
    if (training.lora_rank > 0)
        return invalid_argument("strategy.control_variate",
                                "needs the gradients of whole models: leave it out, or train without lora_rank");
    if (spec.evaluate_updates)
        return invalid_argument("evaluation.models",
                                "\"all\" would give each site the gradients of every other's texts, which updates have "
                                "beside them with strategy.control_variate: evaluate \"global\"");
    for (const Participant& one : spec.participants)
        if (settings_of(spec, one).value("proximal_mu", 0.0) > 0)
            return invalid_argument("strategy.control_variate",
                                    "cannot be combined with proximal_mu, whose pull would count as a gradient of the "
                                    "data: leave out one of them");
    return {};
}

// As far as the job itself says it.
Status check_product(const JobSpec& spec) {
    if (spec.strategy.name != "product") return {};
    ATOLL_TRY(const auto training, parse_training_settings(spec.training, "training"));
    if (training.lora_rank == 0)
        return invalid_argument("strategy.name",
                                "product takes LoRA adapters: give training.lora_rank, or choose fedavg");
    if (training.lora_freeze_a == run_settings::OnOff::kOn)
        return invalid_argument("strategy.name",
                                "with lora_freeze_a all adapters have one A, and fedavg is exact: choose that");
    const auto ranks = training.lora_rank * static_cast<std::int64_t>(spec.participants.size() + 1);
    if (ranks <= aggregate::kRanksMax) return {};
    return invalid_argument("strategy.name", "product takes adapters whose ranks sum to " +
                                                 std::to_string(aggregate::kRanksMax) +
                                                 " at most; those of the participants and the base sum to " +
                                                 std::to_string(ranks) + ": lower training.lora_rank or choose fedavg");
}

// Only a rate that the job names can fall: the trainer's default is the trainer's.
Status check_rate(const JobSpec& spec) {
    if (spec.lr_round_schedule == RoundSchedule::kConstant || spec.lr_round_schedule == RoundSchedule::kByStep)
        return {};
    for (const auto& participant : spec.participants)
        if (!settings_of(spec, participant).contains("lr"))
            return invalid_argument("training.lr", "is needed with lr_round_schedule \"" +
                                                       std::string(to_string(spec.lr_round_schedule)) + "\"");
    return {};
}

}  // namespace

bool JobSpec::pauses_when_worse() const {
    if (pause_when_worse) return *pause_when_worse;
    return std::all_of(participants.begin(), participants.end(), [&](const Participant& one) {
        return std::any_of(evaluation_copies.begin(), evaluation_copies.end(), [&](const DatasetCopy& copy) {
            return copy.facility == one.data.facility && copy.dataset == one.data.dataset;
        });
    });
}

Json settings_of(const JobSpec& spec, const Participant& participant, std::int64_t round) {
    Json settings = merge_training_settings(spec.training, participant.training);
    if (validates(settings) && spec.validation_samples > 0) settings.emplace("val_samples", spec.validation_samples);
    if (spec.lr_round_schedule == RoundSchedule::kByStep)
        settings.update({{"schedule_runs", spec.rounds}, {"schedule_run", round}});
    else if (settings.contains("lr"))
        settings["lr"] = settings.at("lr").get<double>() * rate_factor(spec.lr_round_schedule, round, spec.rounds);
    return settings;
}

const char* to_string(RoundSchedule schedule) {
    return kRoundSchedules[static_cast<std::size_t>(schedule)];
}

double rate_factor(RoundSchedule schedule, std::int64_t round, std::int64_t rounds) {
    using run_settings::LrSchedule;
    const auto kind = schedule == RoundSchedule::kLinear   ? LrSchedule::kLinear
                      : schedule == RoundSchedule::kCosine ? LrSchedule::kCosine
                                                           : LrSchedule::kConstant;
    return run_settings::Schedule{.kind = kind, .peak = 1, .steps = rounds}.rate(round);
}

Result<JobSpec> parse_job_spec(const Json& value, JobSource source) {
    ObjectReader reader(value);
    JobSpec spec;
    spec.name = required_name(reader, "name");
    const Json& model = reader.required_object("model");
    if (source == JobSource::kDatabase) spec.adapter_of = reader.string_or("adapter_of", "");
    spec.output_model = reader.string_or("output_model", spec.name);
    if (!service::is_name(spec.output_model)) reader.fail("output_model", service::kNameRule);
    if (source == JobSource::kRequest)  // old ones may be called "newest"
        for (const auto& [key, name] : {std::pair{"name", spec.name}, {"output_model", spec.output_model}})
            if (const Status fit = service::check_name(name, key); !fit.ok()) reader.fail(key, fit.error().message);
    if (source == JobSource::kDatabase)
        if (const Json& owner = reader.any_or_null("output_owner"); owner.is_string())
            spec.output_owner = owner.get<std::string>();
    const Json& participants = reader.required_array("participants");
    spec.rounds = reader.required_integer("rounds", 1, 10'000);
    const Json& strategy = reader.object_or_null("strategy");
    const Json& training = reader.object_or_null("training");
    const std::string schedule =
        reader.one_of("lr_round_schedule", {"constant", "linear", "cosine", "by_step"}, "constant");
    spec.lr_round_schedule = static_cast<RoundSchedule>(
        std::find(kRoundSchedules.begin(), kRoundSchedules.end(), schedule) - kRoundSchedules.begin());
    const Json& evaluation = reader.object_or_null("evaluation");
    spec.attempts_max = reader.integer_or("attempts_max", 3, 1, 100);
    spec.round_deadline_s = reader.integer_or("round_deadline_s", kRoundDeadline_s, 1, 100'000'000);
    spec.quorum = optional_integer(reader, "quorum", 1'000'000);
    spec.grace_s = reader.integer_or("grace_s", kGrace_s, 0, 100'000'000);
    spec.evaluation_grace_s = reader.integer_or("evaluation_grace_s", kGrace_s, 0, 100'000'000);
    spec.quarantine_after = reader.integer_or("quarantine_after", 2, 1, 1'000'000);
    ATOLL_RETURN_IF_ERROR(reader.finish());

    ATOLL_RETURN_IF_ERROR(parse_model(model, spec));
    ATOLL_TRY(spec.participants, parse_participants(participants, source));
    if (spec.quorum && *spec.quorum > static_cast<std::int64_t>(spec.participants.size()))
        return invalid_argument("quorum", "is larger than the number of participants");
    ATOLL_TRY(spec.strategy, aggregate::parse_strategy(strategy));
    if (source == JobSource::kRequest) ATOLL_RETURN_IF_ERROR(check_max_share(spec));
    ATOLL_RETURN_IF_ERROR(parse_training_settings(training, "training"));
    spec.training = merge_training_settings({}, training);
    ATOLL_RETURN_IF_ERROR(check_schedule(spec.training, "training"));
    if (source == JobSource::kRequest) ATOLL_RETURN_IF_ERROR(check_product(spec));
    if (source == JobSource::kRequest) ATOLL_RETURN_IF_ERROR(check_row_weights(spec));
    ATOLL_RETURN_IF_ERROR(check_each_training(spec));
    ATOLL_RETURN_IF_ERROR(check_rate(spec));
    ATOLL_RETURN_IF_ERROR(parse_evaluation(evaluation, source, spec));
    ATOLL_RETURN_IF_ERROR(check_update_formats(spec));
    if (source == JobSource::kRequest) ATOLL_RETURN_IF_ERROR(check_control_variate(spec));
    return spec;
}

Json to_json(const JobSpec& spec) {
    Json participants = Json::array();
    for (const auto& participant : spec.participants) {
        Json item = copy_to_json(participant.data);
        item["ranks"] = participant.resources.ranks();
        item["resources"] = to_json(participant.resources);
        if (!participant.training.is_null()) item["training"] = participant.training;
        participants.push_back(std::move(item));
    }
    Json copies = Json::array();
    for (const auto& copy : spec.evaluation_copies) copies.push_back(copy_to_json(copy));
    Json value = {{"name", spec.name},
                  {"model", {{"name", spec.model}, {"version", spec.model_version}}},
                  {"output_model", spec.output_model},
                  {"participants", std::move(participants)},
                  {"rounds", spec.rounds},
                  {"strategy", aggregate::to_json(spec.strategy)},
                  {"training", spec.training},
                  {"lr_round_schedule", to_string(spec.lr_round_schedule)},
                  {"evaluation", {{"at", std::move(copies)}, {"models", spec.evaluate_updates ? "all" : "global"}}},
                  {"attempts_max", spec.attempts_max},
                  {"round_deadline_s", spec.round_deadline_s},
                  {"grace_s", spec.grace_s},
                  {"evaluation_grace_s", spec.evaluation_grace_s},
                  {"quarantine_after", spec.quarantine_after}};
    if (!spec.adapter_of.empty()) value["adapter_of"] = spec.adapter_of;
    if (spec.output_owner) value["output_owner"] = *spec.output_owner;
    if (spec.quorum) value["quorum"] = *spec.quorum;
    if (spec.validation_samples > 0) value["evaluation"]["val_samples"] = spec.validation_samples;
    if (spec.pause_when_worse) value["evaluation"]["pause_when_worse"] = *spec.pause_when_worse;
    return value;
}

}  // namespace atl::dispatch
