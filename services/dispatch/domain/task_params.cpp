#include "services/dispatch/domain/task_params.h"

#include "services/dispatch/domain/job_spec.h"

namespace atl::dispatch {
namespace {

using json::Json;
using json::ObjectReader;

constexpr std::size_t kTextBytesMax = 1 << 20;  // a prompt template is the longest
constexpr std::size_t kModelsMax = kParticipantsMax + 1;

std::string read_text(ObjectReader& reader, const char* key) {
    std::string text = reader.required_string(key);
    if (text.size() > kTextBytesMax) reader.fail(key, "has more than " + std::to_string(kTextBytesMax) + " bytes");
    return text;
}

Status read(ObjectReader& reader, TrainParams& params) {
    params.base = read_text(reader, "base");
    params.output_model = read_text(reader, "output_model");
    if (const Json& owner = reader.any_or_null("output_owner"); owner.is_string())
        params.output_owner = owner.get<std::string>();
    else if (!owner.is_null())
        reader.fail("output_owner", "must be a string");
    params.dataset = read_text(reader, "dataset");
    params.dataset_version = reader.required_integer("dataset_version", 0, INT32_MAX);
    params.path = read_text(reader, "path");
    params.rows = reader.required_integer("rows", 0, INT64_MAX);
    params.seq_len = reader.required_integer("seq_len", 0, INT64_MAX);
    params.fingerprint = reader.string_or("fingerprint", "");
    const Json& resources = reader.required_object("resources");
    params.state_round = reader.required_integer("state_round", 0, INT32_MAX);
    params.counts_tokens = reader.boolean_or("counts_tokens", false);
    params.control_variate = reader.number_or("control_variate", 0, 0, 1);
    params.participant = reader.required_integer("participant", 0, kParticipantsMax - 1);
    params.training = reader.required_object("training");
    params.model = reader.string_or("model", "");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(params.resources, parse_resources(resources, "resources"));
    return {};
}

Status read(ObjectReader& reader, EvaluateParams& params) {
    params.dataset = read_text(reader, "dataset");
    params.path = read_text(reader, "path");
    params.tokens_max = reader.required_integer("tokens_max", 0, INT64_MAX);
    params.model = reader.string_or("model", "");
    params.quantize = reader.string_or("quantize", "");
    params.samples_max = reader.integer_or("samples_max", 0, 0, INT64_MAX);
    params.fingerprint = reader.string_or("fingerprint", "");
    const Json& models = reader.required_array("models");
    if (models.size() > kModelsMax) reader.fail("models", "has more than " + std::to_string(kModelsMax) + " entries");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    for (std::size_t i = 0; i < models.size(); ++i) {
        ObjectReader model(models[i], "models[" + std::to_string(i) + "]");
        params.models.push_back({read_text(model, "digest"), read_text(model, "which")});
        ATOLL_RETURN_IF_ERROR(model.finish());
    }
    return {};
}

Status read(ObjectReader& reader, PrepareParams& params) {
    params.dataset = read_text(reader, "dataset");
    params.tokenizer_digest = read_text(reader, "tokenizer_digest");
    params.tokenizer = reader.object_or_null("tokenizer");
    params.prompt_template = read_text(reader, "template");
    params.input = read_text(reader, "input");
    params.seq_len = reader.required_integer("seq_len", 2, 1 << 24);
    params.batching = reader.one_of("batching", {"packing", "padding"}, "");
    params.validation_percent = reader.required_integer("validation_percent", 0, 99);
    params.validation_input = reader.string_or("validation_input", "");
    params.input_format = reader.string_or("input_format", "auto");
    params.prepared_for = reader.object_or_null("prepared_for");
    return reader.finish();
}

Status read(ObjectReader& reader, CleanParams& /*none*/) {
    return reader.finish();
}

}  // namespace

TaskParams empty_task_params(TaskKind kind) {
    switch (kind) {
        case TaskKind::kTrain:
            return TrainParams{};
        case TaskKind::kEvaluate:
            return EvaluateParams{};
        case TaskKind::kPrepare:
            return PrepareParams{};
        case TaskKind::kClean:
            break;
    }
    return CleanParams{};
}

Json to_json(const TaskParams& params) {
    Json stored = std::visit(
        Overloaded{[](const TrainParams& train) -> Json {
                       return {{"base", train.base},
                               {"output_model", train.output_model},
                               {"output_owner", train.output_owner ? Json(*train.output_owner) : Json()},
                               {"dataset", train.dataset},
                               {"dataset_version", train.dataset_version},
                               {"path", train.path},
                               {"rows", train.rows},
                               {"seq_len", train.seq_len},
                               {"fingerprint", train.fingerprint},
                               {"resources", to_json(train.resources)},
                               {"state_round", train.state_round},
                               {"participant", train.participant},
                               {"training", train.training}};
                   },
                   [](const EvaluateParams& evaluate) -> Json {
                       Json models = Json::array();
                       for (const auto& model : evaluate.models)
                           models.push_back({{"digest", model.digest}, {"which", model.which}});
                       return {{"dataset", evaluate.dataset},
                               {"path", evaluate.path},
                               {"models", models},
                               {"tokens_max", evaluate.tokens_max},
                               {"fingerprint", evaluate.fingerprint}};
                   },
                   [](const PrepareParams& prepare) -> Json {
                       return {{"dataset", prepare.dataset},     {"tokenizer_digest", prepare.tokenizer_digest},
                               {"tokenizer", prepare.tokenizer}, {"template", prepare.prompt_template},
                               {"input", prepare.input},         {"seq_len", prepare.seq_len},
                               {"batching", prepare.batching},   {"validation_percent", prepare.validation_percent}};
                   },
                   [](const CleanParams&) -> Json { return Json::object(); }},
        params);
    // Only jobs that train adapters have models and quantize, only those that weigh rows counts_tokens, and so on.
    if (const auto* train = std::get_if<TrainParams>(&params)) {
        if (!train->model.empty()) stored["model"] = train->model;
        if (train->counts_tokens) stored["counts_tokens"] = true;
        if (train->control_variate > 0) stored["control_variate"] = train->control_variate;
    }
    if (const auto* evaluate = std::get_if<EvaluateParams>(&params)) {
        if (!evaluate->model.empty()) stored["model"] = evaluate->model;
        if (!evaluate->quantize.empty()) stored["quantize"] = evaluate->quantize;
        if (evaluate->samples_max > 0) stored["samples_max"] = evaluate->samples_max;
    }
    if (const auto* prepare = std::get_if<PrepareParams>(&params)) {
        if (!prepare->validation_input.empty()) stored["validation_input"] = prepare->validation_input;
        if (prepare->input_format != "auto") stored["input_format"] = prepare->input_format;
        if (!prepare->prepared_for.is_null()) stored["prepared_for"] = prepare->prepared_for;
    }
    return stored;
}

Result<TaskParams> parse_task_params(TaskKind kind, const Json& stored) {
    ObjectReader reader(stored);
    TaskParams params = empty_task_params(kind);
    ATOLL_RETURN_IF_ERROR(std::visit([&](auto& of_kind) { return read(reader, of_kind); }, params));
    return params;
}

}  // namespace atl::dispatch
