#pragma once

#include <map>
#include <set>
#include <string>

#include "shared/json/json.h"

namespace atl::contract {

// Which of the words that an OpenAPI document lists (enum, const) in the answers of its GETs were seen in answers.
class SeenWords {
  public:
    explicit SeenWords(json::Json document) : document_(std::move(document)) {}

    // `path` as described, "/v1/jobs/{id}"; `answer`: a body of status 200.
    void look(const std::string& path, const json::Json& answer);
    // "#/components/schemas/JobState: paused", sorted.
    std::set<std::string> unseen() const;

  private:
    // The schema itself, or what its $ref leads to, with the place in the document that it stands at.
    const json::Json& resolve(const json::Json& schema, std::string& place) const;
    void collect(const json::Json& schema, std::string place, const json::Json& value);
    void expect(const json::Json& schema, std::string place, std::set<std::string>& visited,
                std::set<std::string>& wanted) const;

    json::Json document_;
    std::set<std::string> seen_;
};

}  // namespace atl::contract
