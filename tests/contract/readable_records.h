#pragma once

#include <map>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/json/json.h"
#include "shared/pg/pg.h"
#include "tests/contract/running_stack.h"

namespace atl::contract {

// One record of each kind that a coordinator may hold, in each of its states. What REST makes cheaply comes by REST;
// the rest (what sites, batch systems and time would do) stands in the database. Nothing of it moves for an hour.
class ReadableRecords {
  public:
    explicit ReadableRecords(const RunningStack& stack) : stack_(stack) {}
    Status make();

    std::vector<std::string> facilities, datasets, models, preparations;
    std::map<std::string, std::string> jobs;  // id by state, which is the job's name, too
    // Of models.front(): what names one of its versions.
    std::vector<std::string> version_names;
    std::vector<std::string> digests;  // of all its versions
    std::vector<std::string> blobs;
    std::map<std::string, std::vector<std::string>> tasks;  // of each job, by its id
    std::vector<std::string> token_ids;
    // What aggregation keeps of rounds: job and round.
    std::vector<std::pair<std::string, std::string>> aggregations;
    std::vector<std::string> dead_letters;
    std::string upload_task = "task-that-handed-in";

  private:
    Result<json::Json> send(http::Method method, const std::string& service, const std::string& path,
                            const json::Json& body) const;
    Status sql(const std::string& schema, const std::string& statement,
               const std::vector<pg::Param>& parameters = {}) const;
    Status make_facilities();
    Status make_models();
    Status make_dataset();
    Status make_preparations();
    Status make_jobs();
    Status set_tasks();
    Status set_rounds();
    Status set_closed_round();
    Status make_tokens();
    Status make_aggregations();
    Status make_rare_records();
    Status set_facilities();

    const RunningStack& stack_;
    TemporaryDirectory directory_{"atoll-records"};
};

}  // namespace atl::contract
