#include "services/dispatch/admission/facility_access.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

auth::Principal person(const std::string& subject, auth::Role role = auth::Role::kOperator) {
    auth::Principal principal;
    principal.subject = subject;
    principal.role = role;
    return principal;
}

const auth::Principal kAdmin = person("root", auth::Role::kAdmin);

Facility of(const std::string& owner, std::vector<std::string> allow = {}) {
    Facility facility;
    facility.name = "leonardo";
    facility.transport = {TransportKind::kSsh, "login", ""};
    facility.owner = owner;
    facility.allow = std::move(allow);
    return facility;
}

TEST(FacilityAccessTest, AnAccountIsForItsOwnerForAdminsAndForWhomTheOwnerSays) {
    const auto may_use = [](const Facility& facility, const auth::Principal& principal) {
        const Status said = require_use(facility, principal, "facility");
        if (!said.ok()) {
            EXPECT_EQ(said.error().code, ErrorCode::kPermissionDenied);
            EXPECT_NE(said.error().message.find("\"leonardo\""), std::string::npos) << said.error().message;
        }
        return said.ok();
    };
    for (const Facility& facility : {of("ada"), of("ada", {"bo"}), of("ada", {"*"}), of("")}) {
        EXPECT_TRUE(may_use(facility, kAdmin));
        EXPECT_TRUE(may_use(facility, person("ada")));
    }
    EXPECT_FALSE(may_use(of("ada"), person("bo")));
    EXPECT_TRUE(may_use(of("ada", {"cy", "bo"}), person("bo")));
    EXPECT_FALSE(may_use(of("ada", {"cy"}), person("bo")));
    EXPECT_TRUE(may_use(of("ada", {"*"}), person("bo")));
    EXPECT_TRUE(may_use(of(""), person("bo"))) << "as it was before there were owners";
    EXPECT_FALSE(may_use(of("", {"cy"}), person("bo")));
}

TEST(FacilityAccessTest, AFacilityIsChangedByItsOwnerAndByAdmins) {
    Facility other_programs = of("ada");
    other_programs.programs = "/opt/bin";
    EXPECT_TRUE(require_change(of("ada"), other_programs, person("ada")).ok());
    EXPECT_TRUE(require_change(of("ada"), other_programs, kAdmin).ok());
    EXPECT_FALSE(require_change(of("ada"), other_programs, person("bo")).ok());
    EXPECT_FALSE(require_change(of("ada", {"*"}), of("ada"), person("bo")).ok()) << "to use it is not to change it";
    EXPECT_FALSE(require_change(of(""), of("", {"*"}), person("bo")).ok()) << "the admins'";
    EXPECT_FALSE(may_change(of("ada"), person("ada", auth::Role::kViewer)));
    EXPECT_FALSE(require_change(of("ada"), of("bo"), person("ada")).ok()) << "an admin gives it away";
    EXPECT_TRUE(require_change(of("ada"), of("bo"), kAdmin).ok());
    EXPECT_TRUE(require_remove(of("ada"), person("ada")).ok());
    EXPECT_FALSE(require_remove(of("ada"), person("bo")).ok());
    EXPECT_FALSE(require_remove(of(""), person("bo")).ok());
}

TEST(FacilityAccessTest, HowAFacilityIsReachedAnAdminAloneSays) {
    Facility local = of("ada");
    local.transport = {TransportKind::kLocal, "", ""};
    Facility configured = of("ada");
    configured.transport.config_file = "/tmp/ssh_config";
    Facility elsewhere = of("ada");
    elsewhere.transport.host = "bo@login";
    Facility streamed = of("ada");
    streamed.transport.data = DataPath::kSsh;
    for (const Facility& reached : {local, configured, elsewhere, streamed}) {
        EXPECT_FALSE(require_change(of("ada"), reached, person("ada")).ok());
        EXPECT_TRUE(require_change(of("ada"), reached, kAdmin).ok());
    }
    Facility trusted = of("ada");
    trusted.transport.host_key = "ssh-ed25519 AAAA";
    EXPECT_TRUE(require_change(of("ada"), trusted, person("ada")).ok());
    Facility launched = local;
    launched.launcher = "env sh {ranks}";
    EXPECT_FALSE(require_change(local, launched, person("ada")).ok()) << "it runs on the coordinator's machine";
    Facility shared = local;
    shared.allow = {"*"};
    EXPECT_TRUE(require_change(local, shared, person("ada")).ok());
}

TEST(FacilityAccessTest, EachPathOfAnInputOnThisMachineIsInTheFacilitysDirectory) {
    Facility facility = of("ada");
    facility.transport.kind = TransportKind::kLocal;
    facility.work_dir = "/site";
    for (const char* input : {"raw/a.csv", "raw/*,raw/b", "/site/raw/a.csv,raw"})
        EXPECT_TRUE(require_input(facility, person("ada"), input, "input").ok()) << input;
    for (const char* input : {"/etc/passwd", "raw/a.csv,/etc/passwd", "/site/raw,/site-2/raw"}) {
        EXPECT_EQ(require_input(facility, person("ada"), input, "input").error().field, "input") << input;
        EXPECT_TRUE(require_input(facility, kAdmin, input, "input").ok()) << input;
    }
}

}  // namespace
}  // namespace atl::dispatch
