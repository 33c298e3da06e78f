#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "services/dispatch/domain/resources.h"
#include "shared/json/json.h"

namespace atl::dispatch {

enum class TaskKind { kTrain, kEvaluate, kPrepare, kClean };

// Trains a round's base model on one participant's data and hands in the update.
struct TrainParams {
    std::string base;                              // digest; of an adapter where there is a `model`
    std::string output_model;                      // name of the model that the update is a version of
    std::optional<std::string> output_owner = {};  // whose it must be; unset: not known
    std::string dataset;
    std::int64_t dataset_version = 0;
    std::string path;       // of the data; relative to the facility's work directory
    std::int64_t rows = 0;  // of its training split
    std::int64_t seq_len = 0;
    std::string fingerprint = {};                // of both splits; empty: not known
    Resources resources = {};                    // of its batch job; as many ranks train
    std::int64_t participant = 0;                // its index in the job: a round lists its updates in this order
    json::Json training = json::Json::object();  // becomes run.json
    // The round from whose end on goes what the site keeps from round to round, told as ATOLL_STATE_ROUND; 0: it begins
    // anew, and nothing is told.
    std::int64_t state_round = 0;
    bool counts_tokens = false;  // its update says how often it saw each token
    // Its update brings a control variate, and this part of what the base's has more than its own of the round before
    // goes into its gradients; 0: it has none.
    double control_variate = 0;
    std::string model = {};  // digest of the model that the adapter `base` is trained on; empty: `base` is a model
};

struct EvaluatedModel {
    std::string digest;
    std::string which;  // "base", "global", or the facility that handed it in
};

struct EvaluateParams {
    std::string dataset;
    std::string path;
    // In the order of the trainer's results: the base or a round's global model, then the updates of that round.
    std::vector<EvaluatedModel> models;
    std::int64_t tokens_max = 0;   // of its dataset version; 0: not known
    std::string fingerprint = {};  // of both splits; empty: not known
    std::string model = {};        // digest of the model that all of them are adapters of; empty: they are models
    std::string quantize = {};     // as the adapters are trained on it; empty: as it is
    std::int64_t samples_max = 0;  // rows of the validation split that count, the first ones; 0: all
};

// Tokenises raw text at a facility and registers the result as a version of the dataset.
struct PrepareParams {
    std::string dataset;
    std::string tokenizer_digest;  // of the model version whose tokenizer is used
    json::Json tokenizer = {};     // that version and tokenizer_files() of it, as the registry keeps them; null: none
    std::string prompt_template;
    std::string input;                  // absolute, or relative to the facility's work directory
    std::string input_format = "auto";  // as PreparationSpec has it
    std::int64_t seq_len = 0;
    std::string batching;
    std::int64_t validation_percent = 0;
    std::string validation_input;  // as PreparationSpec has them
    json::Json prepared_for = {};  // the dataset as it was when this was ordered (DatasetInfo::identity)
};

struct CleanParams {};

// In the order of TaskKind.
using TaskParams = std::variant<TrainParams, EvaluateParams, PrepareParams, CleanParams>;

TaskParams empty_task_params(TaskKind kind);

// As a task's row keeps them. kInvalidArgument names the member that is missing, unknown, too large or of another type.
json::Json to_json(const TaskParams& params);
Result<TaskParams> parse_task_params(TaskKind kind, const json::Json& stored);

// A visitor made of lambdas, one for each alternative of a variant.
template <class... Functions>
struct Overloaded : Functions... {
    using Functions::operator()...;
};

}  // namespace atl::dispatch
