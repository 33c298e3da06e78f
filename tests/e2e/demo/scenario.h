#pragma once

#include <string>
#include <vector>

#include "shared/json/json.h"

// Who takes part in the demo, and with which model and settings.
namespace atl::demo {

struct Site {
    std::string facility;
    std::string language;
    std::string dataset;      // and the Debian package that its texts come from
    std::string instruction;  // the words before the text in the original experiment's prompt template
    std::string license;
};

const std::vector<Site>& sites();

// The instruction, then the document's text: what a site's own data set is registered and tokenised with.
std::string prompt_template(const Site& site);

// For a file with the texts of several sites: a row brings its instruction. The same tokens as with each site's own.
inline constexpr const char* kMixedTemplate = "{{instruction}} {{text}}";

// The site's data set as the registry takes it.
json::Json registered_dataset(const Site& site);

// Training settings, keys of the trainer's run.json. The recipe and its rates are those that bench/learning found.
json::Json base_settings(int steps, int batch_size);
json::Json federated_settings(int steps, int batch_size);
json::Json pooled_muon_settings(int steps, int batch_size);
json::Json pooled_adamw_settings(int steps, int batch_size);

// How the coordinator makes the next model of the sites' updates: a job's `strategy`. One site alone has no control
// variate, which is the mean gradient of several.
json::Json strategy(std::size_t participants);

// A small Llama: config.json.
json::Json model_config();

}  // namespace atl::demo
