#include "services/store/db/version_names.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "services/store/domain/version_reference.h"
#include "shared/base/text.h"

namespace atl::store {
namespace {

constexpr const char* kField = "version";
constexpr std::size_t kShownCharacters = 16;  // of a digest, as tables show it

// Finds the digest; each way has its own words for none and for several.
class Resolver {
  public:
    Resolver(pg::Connection& connection, const std::string& model, const std::string& reference)
        : connection_(connection), model_(model), reference_(reference) {}

    Result<std::string> operator()(UnknownVersion) const { return none(); }

    Result<std::string> operator()(ShortBeginning) const {
        return invalid_argument(kField, "model " + model_ + " has no tag " + reference_ +
                                            ", and the beginning of a digest needs " +
                                            std::to_string(kDigestBeginningMin) + " characters or more: this has " +
                                            std::to_string(reference_.size()));
    }

    Result<std::string> operator()(NewestVersion) const {
        ATOLL_TRY(const auto rows, connection_.query("SELECT digest FROM versions WHERE model = $1 AND kind IN ('base',"
                                                     " 'global', 'adapter') ORDER BY sequence DESC LIMIT 1",
                                                     {model_}));
        if (rows.empty()) return not_found("model " + model_ + " has no base or global version", kField);
        return rows.text(0, "digest");
    }

    Result<std::string> operator()(const RoundVersion& wanted) const {
        ATOLL_TRY(const auto rows,
                  connection_.query("SELECT DISTINCT digest FROM round_versions WHERE model = $1 AND kind = 'global'"
                                    " AND round = $2 ORDER BY digest LIMIT 9",
                                    {model_, wanted.round}));
        if (rows.empty())
            return not_found("model " + model_ + " has no global version of round " + std::to_string(wanted.round),
                             kField);
        return only(rows, " has several global versions of round " + std::to_string(wanted.round) +
                              ", of several jobs; give the digest: ");
    }

    Result<std::string> operator()(const DigestBeginning& beginning) const {
        ATOLL_TRY(const auto rows, connection_.query("SELECT digest FROM versions WHERE model = $1 AND"
                                                     " starts_with(digest, $2) ORDER BY digest LIMIT 9",
                                                     {model_, beginning.text}));
        if (rows.empty()) return none();
        return only(rows, " has several versions that begin with " + beginning.text + "; give more of it: ");
    }

  private:
    Error none() const { return not_found("model " + model_ + " has no version or tag " + reference_, kField); }

    Result<std::string> only(const pg::Rows& rows, const std::string& several) const {
        if (rows.size() == 1) return rows.text(0, "digest");
        std::vector<std::string> digests;
        for (int row = 0; row < rows.size(); ++row)
            digests.push_back(rows.text(row, "digest").substr(0, std::max(reference_.size() + 1, kShownCharacters)));
        return invalid_argument(kField, "model " + model_ + several + join(digests));
    }

    pg::Connection& connection_;
    const std::string& model_;
    const std::string& reference_;
};

}  // namespace

Result<std::string> resolve_version(pg::Connection& connection, const std::string& model,
                                    const std::string& reference) {
    return std::visit(Resolver(connection, model, reference), parse_version_reference(reference));
}

}  // namespace atl::store
