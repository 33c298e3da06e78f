// What `report` says of the kernels, and of the ranks that a launcher started; and that `verify` checks those kernels.
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "trainer/program/testing/program_fixture.h"
#include "trainer/train/backend.h"

namespace atl::program {
namespace {

// The one line of a report; `shell` starts each rank, with the program as "$0".
nlohmann::json report(int ranks, const std::string& shell) {
    std::vector<std::string> command = {"sh", "-c", shell, ATOLL_TRAINER};
    if (ranks > 1) command.insert(command.begin(), {ATOLL_MPIRUN, std::to_string(ranks)});
    const auto result = run_command(command);
    EXPECT_TRUE(result.ok() && result->exit_code == 0) << (result.ok() ? result->err : result.error().message);
    const auto lines = lines_of(result.ok() ? result->out : "");
    EXPECT_EQ(lines.size(), 1U) << "rank 0 alone tells";
    return lines.empty() ? nlohmann::json() : lines[0];
}

nlohmann::json ranks_of(int ranks, const std::string& shell) {
    return report(ranks, shell).value("ranks", nlohmann::json::array());
}

TEST(ReportTest, TheKernelsInUseAndTheGemmLibrariesThatAreBuiltInAreNamed) {
    const auto here = report(1, "unset ATOLL_INSTRUCTION_SET; exec $0 report");
    const auto libraries = here["gemm_libraries"].get<std::vector<std::string>>();
    const auto used = std::ranges::find_if(libraries, [&](const std::string& library) {
        return here["kernels"] == "cpu (" + here["cpu"]["instructions"][0].get<std::string>() + ", " + library + ")";
    });
    EXPECT_NE(used, libraries.end()) << here;
    const auto built = train::built_devices();
    EXPECT_EQ(here["devices"], nlohmann::json(std::vector<std::string>(built.begin(), built.end())));
    EXPECT_EQ(here.at("gpu_architectures").empty(), built.size() == 1) << here;
    EXPECT_EQ(here.at("nccl").is_null(), built.size() == 1) << "a build without GPUs has no use for it";
    for (const std::string& library : libraries) {
        EXPECT_TRUE(std::regex_match(library, std::regex(R"((oneDNN|OpenBLAS) \d+\.\d+\.\d+.*)"))) << library;
    }
    const auto narrow = report(1, "ATOLL_INSTRUCTION_SET=baseline exec $0 report");
    EXPECT_EQ(narrow["kernels"], "cpu (baseline, " + libraries.back() + ")") << "OpenBLAS";
    EXPECT_EQ(narrow["bf16_instructions"], "");
    EXPECT_TRUE(std::regex_match(here["bf16_instructions"].get<std::string>(), std::regex("|amx|avx512_bf16"))) << here;
    EXPECT_EQ(narrow["gemm_libraries"], here["gemm_libraries"]);
    const auto unknown = report(1, "ATOLL_INSTRUCTION_SET=avx1024 exec $0 report");
    EXPECT_NE(unknown["kernels"]["error"].get<std::string>().find("'avx1024'"), std::string::npos);
}

TEST(ReportTest, OpenblasComputesWithItsAvx2KernelsUnlessItIsToldOthers) {
    const auto here = report(1, "exec $0 report");
    const auto instructions = here["cpu"]["instructions"].get<std::vector<std::string>>();
    if (std::ranges::find(instructions, "avx2") == instructions.end()) GTEST_SKIP() << "no AVX2 here";
    const auto run = [](const std::vector<std::string>& variables) {
        std::vector<std::string> command = {"env", "-u", "OPENBLAS_CORETYPE", "ATOLL_INSTRUCTION_SET=avx2"};
        command.insert(command.end(), variables.begin(), variables.end());
        command.insert(command.end(), {ATOLL_TRAINER, "report"});
        return run_command(command).value();
    };
    const CommandResult chosen = run({});
    EXPECT_TRUE(std::regex_search(chosen.out, std::regex("\"kernels\":\"cpu \\(avx2, OpenBLAS [0-9.]+ Haswell\\)")))
        << chosen.out;
    EXPECT_EQ(chosen.err, "");
    const CommandResult zen = run({"OPENBLAS_CORETYPE=Zen"});
    EXPECT_TRUE(std::regex_search(zen.out, std::regex("OpenBLAS [0-9.]+ Zen\\)"))) << zen.out;
    const CommandResult old = run({"OPENBLAS_CORETYPE=Prescott"});
    EXPECT_NE(old.out.find("\"kernels\":\"cpu (avx2, oneDNN "), std::string::npos) << old.out;
    EXPECT_NE(old.err.find("takes its Prescott kernels"), std::string::npos) << old.err;
}

TEST(ReportTest, EveryRankSaysWhereItIsAndWhatItMaySee) {
    for (const int count : {2, 4}) {
        const auto ranks = ranks_of(count, "CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec $0 report");
        ASSERT_EQ(ranks.size(), static_cast<std::size_t>(count));
        for (int rank = 0; rank < count; ++rank) {
            const auto& line = ranks[static_cast<std::size_t>(rank)];
            EXPECT_EQ(line["rank"], rank);
            EXPECT_EQ(line["host"], ranks[0]["host"]);
            EXPECT_EQ(line["local_rank"], rank);
            EXPECT_EQ(line["ranks_on_node"], count);
            EXPECT_EQ(line["variables"], (nlohmann::json{{"CUDA_VISIBLE_DEVICES", std::to_string(rank)}}));
            EXPECT_EQ(line["visible_gpus"], 0) << "this build has no GPU backend";
            EXPECT_EQ(line["device"], "cpu");
            EXPECT_EQ(line["threads"], ranks[0]["threads"]) << "none is bound";
            EXPECT_FALSE(line.contains("launcher_says")) << line;
        }
    }
}

TEST(ReportTest, ALauncherThatSaysAnotherLocalRankThanMpiIsShown) {
    const auto ranks = ranks_of(2, "OMPI_COMM_WORLD_LOCAL_RANK=0 exec $0 report");
    ASSERT_EQ(ranks.size(), 2U);
    EXPECT_FALSE(ranks[0].contains("launcher_says"));
    EXPECT_EQ(ranks[1]["local_rank"], 1) << "that of the shared memory counts";
    EXPECT_EQ(ranks[1].value("launcher_says", nlohmann::json()), (nlohmann::json{{"OMPI_COMM_WORLD_LOCAL_RANK", 0}}));
}

TEST(ReportTest, AJobScriptsBindingOfOpenMpThreadsTakesNoCores) {
    const auto cores = [](const std::map<std::string, std::string>& environment) {
        CommandOptions options;
        options.environment = environment;
        const auto result = run_command({ATOLL_TRAINER, "report"}, options);
        EXPECT_TRUE(result.ok() && result->exit_code == 0);
        return result.ok() ? lines_of(result->out).at(0)["cpu"]["cores"] : nlohmann::json();
    };
    const auto all = cores({});
    EXPECT_EQ(cores({{"OMP_PROC_BIND", "true"}}), all);
    EXPECT_EQ(cores({{"OMP_PROC_BIND", "close"}, {"OMP_PLACES", "cores"}}), all);
    EXPECT_EQ(cores({{"GOMP_CPU_AFFINITY", "0"}}), all);
}

TEST(ReportTest, AProcessAloneIsRankZeroOfOne) {
    const auto ranks = ranks_of(1, "unset CUDA_VISIBLE_DEVICES; ROCR_VISIBLE_DEVICES= exec $0 report");
    ASSERT_EQ(ranks.size(), 1U);
    EXPECT_EQ(ranks[0]["ranks_on_node"], 1);
    EXPECT_EQ(ranks[0]["local_rank"], 0);
    EXPECT_EQ(ranks[0]["variables"].value("ROCR_VISIBLE_DEVICES", "unset"), "") << "set, and hides all";
}

TEST(VerifyTest, EveryInstructionSetOfThisMachinePassesTheSameChecks) {
    const auto result = run_command({ATOLL_TRAINER, "verify"});
    ASSERT_TRUE(result.ok() && result->exit_code == 0) << (result.ok() ? result->err : result.error().message);
    std::map<std::string, std::set<std::string>> checks;
    const auto lines = lines_of(result->out);
    EXPECT_EQ(lines.back()["summary"], true);
    EXPECT_EQ(lines.back()["checks"], lines.size() - 1);
    EXPECT_EQ(lines.back()["failed"], 0);
    for (const auto& line : lines) {
        if (line.contains("summary") || line["device"] != "cpu") continue;
        EXPECT_EQ(line["ok"], true) << line;
        EXPECT_LE(line["error"].get<double>(), line["tolerance"].get<double>()) << line;
        const auto instructions = line["instructions"].get<std::string>();
        EXPECT_TRUE(line["kernels"].get<std::string>().starts_with("cpu (" + instructions + ", ")) << line;
        checks[instructions].insert(line["check"]);
    }
    const auto offered = report(1, "exec $0 report")["cpu"]["instructions"].get<std::vector<std::string>>();
    EXPECT_EQ(checks.size(), offered.size());
    for (const std::string& instructions : offered) {
        EXPECT_TRUE(checks[instructions].contains("gradient of lm_head.weight")) << instructions;
        EXPECT_EQ(checks[instructions], checks[offered.front()]) << instructions;
    }
}

}  // namespace
}  // namespace atl::program
