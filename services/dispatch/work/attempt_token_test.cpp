#include <gtest/gtest.h>

#include <map>
#include <set>

#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using json::Json;

// What a site is handed.
class AttemptTokenTest : public DispatchServiceTest {};

TEST_F(AttemptTokenTest, TheTokensOfAnAttemptEndWithIt) {
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(reaches(job, "completed"));
    auto connection = connect();
    ASSERT_TRUE(eventually(
        [&] { return connection.query("SELECT 1 FROM tasks WHERE kind = 'clean' AND state = 'done'")->size() == 2; }));
    const auto ended = connection.query("SELECT task_id || '/' || number AS token_id FROM attempts").value();
    EXPECT_GE(ended.size(), 6) << "trainings, evaluations, cleanings";
    for (int i = 0; i < ended.size(); ++i)
        EXPECT_EQ(connection
                      .query("SELECT 1 FROM auth.revocations WHERE token_id = $1 AND expires_at > now()",
                             {ended.text(i, "token_id")})
                      ->size(),
                  1)
            << ended.text(i, "token_id");
}

TEST_F(AttemptTokenTest, ATokenReadsWhatItsTaskNeedsAndNamesNoMoreThanOneVersion) {
    Json request = job_request(1);
    request["evaluation"] = {{"models", "all"}, {"at", {{{"facility", "karolina"}, {"dataset", "cs"}}}}};
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "completed"));
    const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
    std::map<std::string, std::string> kinds;
    for (const Json& round : rounds)
        for (const Json& task : round.at("tasks"))
            kinds[task.at("id")] = task.at("kind").get<std::string>() + " of round " + round.at("round").dump();
    const auto verifier = auth::Verifier::from_pem(keys_.public_pem).value();
    std::set<std::string> scopes;
    for (const std::string& token : lines("tokens")) {
        EXPECT_LT(token.size(), 1000U);
        const auth::TaskScope scope = *verifier.verify(token).value().scope;
        EXPECT_EQ(scope.job, job);
        ASSERT_EQ(scope.read_versions.size(), 1U);
        const bool is_base = scope.read_versions[0] == kBaseDigest;
        EXPECT_TRUE(is_base || scope.read_versions[0] == rounds[1].at("version").get<std::string>());
        scopes.insert(kinds[scope.task] + " reads " + (is_base ? "the base" : "the global model") +
                      (scope.read_updates ? " and the updates of round " + std::to_string(scope.round) : "") +
                      (scope.write_model.empty() ? "" : ", writes " + scope.write_model));
    }
    scopes.erase("evaluate of round 0 reads the base");  // it brings no token where the training has staged it before
    EXPECT_EQ(scopes, (std::set<std::string>{"train of round 1 reads the base, writes fortunes",
                                             "evaluate of round 1 reads the global model and the updates of round 1"}));
}

}  // namespace
}  // namespace atl::dispatch
