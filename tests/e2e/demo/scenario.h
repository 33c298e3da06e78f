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
    std::string instruction;  // the words of the original experiment's prompt template
    std::string license;
};

const std::vector<Site>& sites();

// The training settings that every model here is trained with: keys of the trainer's run.json.
json::Json training_settings(int steps, int batch_size);

// A small Llama: config.json.
json::Json model_config();

}  // namespace atl::demo
