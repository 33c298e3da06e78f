#pragma once

#include "shared/run_settings/run_settings.h"
#include "trainer/program/cli.h"

namespace atl::program {

// The flags of `train`, `eval`, `plan` or `generate` from the one table of options, with --config. They are told to
// `config`; a flag on the command line wins over the same key of the file, wherever it stands.
class ConfigFlags {
  public:
    ConfigFlags(run_settings::RunConfig& config, run_settings::Commands command) : config_(config), command_(command) {}
    std::vector<Flag> flags();
    // Reads --config, then sets the flags: call first in Command::run.
    Status apply();

  private:
    run_settings::RunConfig& config_;
    run_settings::Commands command_;
    std::string file_;
    std::vector<std::pair<const run_settings::Option*, std::string>> texts_;
};

std::unique_ptr<Command> make_train_command();
std::unique_ptr<Command> make_eval_command();
std::unique_ptr<Command> make_plan_command();
std::unique_ptr<Command> make_generate_command();
std::unique_ptr<Command> make_tokenize_command();
std::unique_ptr<Command> make_tokenizer_train_command();
std::unique_ptr<Command> make_init_command();
std::unique_ptr<Command> make_config_from_command();
std::unique_ptr<Command> make_import_command();
std::unique_ptr<Command> make_merge_command();
std::unique_ptr<Command> make_report_command();
std::unique_ptr<Command> make_verify_command();

}  // namespace atl::program
