#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "shared/pg/pg.h"

// What the API shows of jobs and preparations, as JSON.
namespace atl::dispatch {

// kNotFound: no such job.
Result<json::Json> job_view(pg::Connection& connection, const std::string& id);
// job_view() as text, with what was last shown kept beside the rows that it was made of: those are read each time, as
// any replica may have changed them, and only if they differ is it made anew. Thread-safe.
class JobAnswers {
  public:
    Result<std::string> show(pg::Connection& connection, const std::string& id);

  private:
    struct Answer {
        pg::Rows rows;
        std::string text;
    };
    std::mutex mutex_;
    std::map<std::string, Answer> answers_;  // by job
};

// Newest first, those before the id `after` if given; without their specs.
Result<std::vector<json::Json>> job_list(pg::Connection& connection, const std::string& after, std::int64_t limit);
inline constexpr std::size_t kRoundsBytesMax = std::size_t{1} << 20;  // of a page, but for its last round
// The rounds after the number `after` (-1: all), with their tasks, metrics and evaluations: {items, next}. A page has
// `limit` rounds at most, and ends once it has kRoundsBytesMax. kNotFound: no such job.
Result<json::Json> rounds_view(pg::Connection& connection, const std::string& job, std::int64_t after,
                               std::int64_t limit);

Result<json::Json> preparation_view(pg::Connection& connection, const std::string& id);
// Newest first, those before the id `after` if given.
Result<std::vector<json::Json>> preparation_list(pg::Connection& connection, const std::string& after,
                                                 std::int64_t limit);

}  // namespace atl::dispatch
