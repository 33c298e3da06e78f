#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/dispatch/domain/facility.h"

namespace atl::dispatch {

// What every job.sh needs to know.
struct JobPlace {
    std::string operation;
    std::string directory;  // the attempt's, absolute
    std::string trainer;    // atoll-trainer at the site
    const Facility* facility = nullptr;
};

struct TrainJob {
    std::string model;    // directory of the staged base
    std::string data;     // directory of the training split
    json::Json settings;  // run.json
    std::int64_t ranks = 1;
    std::string continued;  // directory of the attempt whose out.state this one takes over; empty: none
};

struct EvaluateJob {
    std::vector<std::string> models;  // directories
    std::string data;                 // directory of the validation split
};

struct TokenizeJob {
    std::string tokenizer;  // directory holding a tokenizer
    std::string input;      // absolute
    std::string prompt_template;
    std::int64_t seq_len = 0;
    std::string batching;
    std::int64_t validation_percent = 0;
};

// Shell lines that export the facility's environment.
std::string export_environment(const Facility& facility);

// A batch script for any batch system: it marks `started`, runs the trainer with stdout.jsonl and stderr.log, and
// writes exit.json atomically at the end, whatever happens to the trainer.
std::string train_script(const JobPlace& place, const TrainJob& job);
std::string evaluate_script(const JobPlace& place, const EvaluateJob& job);
std::string tokenize_script(const JobPlace& place, const TokenizeJob& job);

}  // namespace atl::dispatch
