#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <ostream>

#include "shared/base/testing/sanitizers.h"
#include "shared/safetensors/safetensors.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

namespace fs = std::filesystem;

using Flags = std::vector<std::string>;

Flags operator+(Flags flags, const Flags& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
}

// The files of a saved state, one a rank.
class StateFilesTest : public ProgramTest {
  protected:
    const Flags run_ = {"--steps", "4", "--global-batch-size", "4", "--deterministic"};
    const Flags stopping_ = run_ + Flags{"--time-limit", kAtOnce};
    const Flags resuming_ = run_ + Flags{"--resume"};

    std::vector<std::string> names(const std::string& directory) const {
        std::vector<std::string> all;
        for (const auto& entry : fs::directory_iterator(path(directory)))
            all.push_back(entry.path().filename().string());
        std::ranges::sort(all);
        return all;
    }
    std::vector<std::string> state_names() const { return names("out.state"); }
    // The file of rank 1, of two.
    std::string other_file() const {
        const auto all = state_names();
        EXPECT_EQ(all.size(), 2U);
        return path("out.state/" + all.front());
    }
    static safetensors::Header header_of(const std::string& file) {
        const std::string bytes = read_file(file).value();
        const auto length = safetensors::header_length(bytes.substr(0, 8), bytes.size()).value();
        return safetensors::parse_header(bytes.substr(8, length), bytes.size()).value();
    }
    // That a state which two ranks saved is refused with these words, by as many ranks.
    void expect_refused(const std::string& file, const std::string& words) const {
        for (const int ranks : {1, 2}) {
            const auto result = train("out", resuming_, ranks);
            EXPECT_EQ(result.exit_code, 2) << result.err;
            EXPECT_NE(result.err.find(fs::path(file).filename().string()), std::string::npos) << result.err;
            EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
        }
    }
};

TEST_F(StateFilesTest, EveryRankWritesAnEqualPartOfIt) {
    for (const char* sharding : {"none", "shard_optimizer", "full_shard"}) {
        std::map<std::string, std::int64_t> whole, parts;
        ASSERT_EQ(train("out", stopping_).exit_code, 0);
        for (const auto& tensor : header_of(path("out.state/state.safetensors")).tensors)
            whole[tensor.name] = tensor.element_count();
        ASSERT_EQ(train("out", stopping_ + Flags{"--sharding", sharding}, 4).exit_code, 0);
        const auto files = state_names();
        ASSERT_EQ(files.size(), 4U);
        std::vector<std::int64_t> sizes;
        for (const std::string& file : files) {
            std::int64_t elements = 0;
            for (const auto& tensor : header_of(path("out.state/" + file)).tensors) {
                parts[tensor.name] += tensor.element_count();
                if (tensor.name != "sha256") elements += tensor.element_count();
            }
            sizes.push_back(elements);
        }
        whole.erase("sha256");
        parts.erase("sha256");
        EXPECT_EQ(parts == whole, true) << "each value once";
        EXPECT_LT(static_cast<double>(std::ranges::max(sizes)), 1.3 * static_cast<double>(std::ranges::min(sizes)));
    }
}

TEST_F(StateFilesTest, ARunGoesOnFromTheFilesOfAnyRanks) {
    struct Case {
        int ranks, next_ranks;
        Flags sharding, next_sharding, precision;
    };
    const Flags bf16 = {"--precision", "bf16"}, hybrid = {"--sharding", "hybrid_shard", "--shard-group", "2"};
    for (const Case& way : {Case{4, 1, hybrid, {}, {}}, Case{1, 4, {}, hybrid, bf16},
                            Case{4, 2, {"--sharding", "none"}, {"--sharding", "shard_optimizer"}, bf16},
                            Case{4,
                                 2,
                                 {"--sharding", "full_shard"},
                                 {"--sharding", "shard_grad_op"},
                                 bf16 + Flags{"--moments-dtype", "bf16"}}}) {
        const Flags flags = way.precision;
        ASSERT_EQ(train("whole", run_ + flags).exit_code, 0);
        ASSERT_EQ(train("out", stopping_ + flags + way.sharding, way.ranks).exit_code, 0);
        const auto rest = train("out", resuming_ + flags + way.next_sharding, way.next_ranks);
        EXPECT_EQ(member(rest.out, "loss").size(), 3U) << rest.err;
        EXPECT_EQ(weights("out") == weights("whole"), true) << way.ranks << " ranks, then " << way.next_ranks;
    }
}

TEST_F(StateFilesTest, NoFileOfAnEarlierStateStays) {
    ASSERT_EQ(train("out", stopping_, 4).exit_code, 0);
    ASSERT_EQ(train("out", stopping_ + Flags{"--resume"}, 2).exit_code, 0);
    EXPECT_EQ(state_names().size(), 2U);
    ASSERT_TRUE(write_file_atomic(path("out.state/state-0123-1.safetensors"), "of a killed run").ok());
    ASSERT_EQ(train("out", stopping_ + Flags{"--resume"}).exit_code, 0);
    EXPECT_EQ(state_names(), (std::vector<std::string>{"state.safetensors"}));
    ASSERT_EQ(train("out", stopping_, 2).exit_code, 0);
    ASSERT_EQ(train("out", resuming_, 2).exit_code, 0);
    EXPECT_EQ(state_names(), (std::vector<std::string>{"finished.json"}));
}

TEST_F(StateFilesTest, AnyByteOfAnotherRanksFileThatChangedIsFound) {
    ASSERT_EQ(train("out", stopping_, 2).exit_code, 0);
    const std::string file = other_file(), whole = read_file(file).value();
    const safetensors::Header header = header_of(file);
    std::vector<std::uint64_t> places = {header.data_begin, header.data_begin + header.data_size / 2, whole.size() - 65,
                                         whole.size() - 1};
    for (std::uint64_t at = 0; at < header.data_begin; at += 499) places.push_back(at);
    for (const std::uint64_t at : places) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ 1);
        ASSERT_TRUE(write_file_atomic(file, damaged).ok());
        const auto result = train("out", resuming_, 2);
        EXPECT_EQ(result.exit_code, 2) << at;
        EXPECT_NE(result.err.find(fs::path(file).filename().string()), std::string::npos) << at << result.err;
    }
    ASSERT_TRUE(write_file_atomic(file, whole).ok());
    EXPECT_EQ(train("out", resuming_, 2).exit_code, 0);
}

TEST_F(StateFilesTest, AFileThatIsNotThereIsNamed) {
    ASSERT_EQ(train("out", stopping_, 2).exit_code, 0);
    const std::string file = other_file();
    fs::remove(file);
    expect_refused(file, "is not there");
}

TEST_F(StateFilesTest, AFileThatIsTooShortIsNamed) {
    ASSERT_EQ(train("out", stopping_, 2).exit_code, 0);
    const std::string file = other_file();
    fs::resize_file(file, fs::file_size(file) - 100);
    expect_refused(file, "--overwrite");
}

TEST_F(StateFilesTest, AFileOfAnotherStateIsNamed) {
    ASSERT_EQ(train("out", stopping_, 2).exit_code, 0);
    const std::string earlier = read_file(other_file()).value();
    ASSERT_EQ(train("out", stopping_ + Flags{"--resume"}, 2).exit_code, 0);
    const std::string file = other_file();
    ASSERT_TRUE(write_file_atomic(file, earlier).ok());
    expect_refused(file, "it is not the file that was saved with");
}

TEST_F(StateFilesTest, SavingWhileStepsGoOnChangesNothingOfARun) {
    for (const int ranks : {1, 2, 4}) {
        const Flags flags = run_ + Flags{"--sharding", "full_shard"};
        const Flags saving = {"--save-every", "1", "--save-async", "on"};
        ASSERT_EQ(train("whole", flags, ranks).exit_code, 0);
        const auto saved = train("out", flags + saving, ranks);
        ASSERT_EQ(saved.exit_code, 0) << saved.err;
        EXPECT_EQ(weights("out") == weights("whole"), true);
        EXPECT_EQ(state_names(), (std::vector<std::string>{"finished.json"}));
    }
}

TEST_F(StateFilesTest, SavingAsideNeedsStepsToSaveAfter) {
    const auto result = train("out", run_ + Flags{"--save-async", "on"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("--save-async"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("--save-every"), std::string::npos) << result.err;
}

TEST_F(StateFilesTest, AnErrorOfWritingAsideEndsTheRun) {
    fs::create_directory(path("out.state"));
    ASSERT_TRUE(write_file_atomic(path("out.state/state-0123-1.safetensors"), "of a killed run").ok());
    const Flags flags = {"--steps", "1000000", "--save-every", "2", "--save-async", "on", "--resume"};
    const auto result =
        run_under({"sh", "-c", "ulimit -f 64; exec \"$@\"", "sh"}, command(train_arguments("out", flags), 1));
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_NE(result.err.find("out.state/state.safetensors"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("is lost"), std::string::npos) << result.err;
    EXPECT_FALSE(fs::exists(path("out.state"))) << "nothing is left of it, nor of the run before";
}

// `train` on two ranks that see directories of their own as --out, as on machines without a shared file system.
class TwoMachinesTest : public ProgramTest {
  protected:
    CommandResult train_apart(const std::vector<std::string>& flags) const {
        fs::create_directories(path("machine0"));
        fs::create_directories(path("machine1"));
        auto training = command({"train", "--model", path("model"), "--data", path("data.safetensors"), "--threads",
                                 "1", "--global-batch-size", "2"},
                                1);
        training.insert(training.end(), flags.begin(), flags.end());
        return run_under(
            {ATOLL_MPIRUN, "2", "sh", "-c", "cd \"$0/machine$OMPI_COMM_WORLD_RANK\" && exec \"$@\"", path("")},
            training);
    }
};

TEST_F(TwoMachinesTest, RanksThatDoNotSeeOneDirectoryAreRefusedBeforeTheFirstStep) {
    const auto result = train_apart({"--out", "out", "--steps", "5"});
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find("--out: rank 1 on "), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("out.state"), std::string::npos) << result.err;
    EXPECT_EQ(member(result.out, "loss").size(), 0U);
    EXPECT_FALSE(fs::exists(path("machine0/out.state"))) << "nothing is left of the look";
    EXPECT_FALSE(fs::exists(path("machine1/out.state")));

    const auto shared = train_apart({"--out", path("shared"), "--steps", "5", "--time-limit", kAtOnce});
    EXPECT_EQ(shared.exit_code, 0) << shared.err;
    EXPECT_EQ(member(shared.out, "loss").size(), 1U);
}

// A training that dies while it saves, at a call that changes a file.
struct Killed {
    std::string name;
    int ranks;
    int victim;  // which of them
    bool async;
    int first = 1;   // call at which it dies
    int stride = 1;  // to the next one
};

void PrintTo(const Killed& value, std::ostream* out) {
    *out << value.name;
}

class KilledSaveTest : public StateFilesTest, public testing::WithParamInterface<Killed> {
  protected:
    const Flags short_ = {"--steps", "3", "--global-batch-size", "4", "--deterministic"};

    CommandResult train_until(int call) const {
        const Killed& killed = GetParam();
        const Flags saving = {"--save-every", "1", "--save-async", killed.async ? "on" : "off"};
        auto training = command(train_arguments("out", short_ + saving), killed.ranks);
        const Flags dying = {"env", "LD_PRELOAD=" ATOLL_DIE_AT_CALL, "ATOLL_DIE_AT=" + std::to_string(call),
                             "ATOLL_DIE_RANK=" + std::to_string(killed.victim)};
        training.insert(training.begin() + (killed.ranks > 1 ? 2 : 0), dying.begin(), dying.end());
        return run_under({}, training);
    }
    // After which step the run goes on; 0: at the beginning, 3: it was finished.
    static int step_in(const std::string& err) {
        if (err.find("is finished already") != std::string::npos) return 3;
        const std::string words = "goes on after step ";
        const std::size_t at = err.find(words);
        return at == std::string::npos ? 0 : std::stoi(err.substr(at + words.size()));
    }
};

TEST_P(KilledSaveTest, LeavesTheLastStateWhereverItDies) {
    if (ATOLL_SANITIZED) GTEST_SKIP() << "a sanitizer's own library must come first, not the one that ends the program";
    ASSERT_EQ(train("whole", short_).exit_code, 0);
    int call = GetParam().first, last = 0;
    for (; train_until(call).exit_code != 0; call += GetParam().stride) {
        ASSERT_LT(call, 100);
        const auto resumed = train("out", short_ + Flags{"--resume"}, GetParam().ranks);
        ASSERT_EQ(resumed.exit_code, 0) << "after " << call << " calls: " << resumed.err;
        EXPECT_EQ(weights("out") == weights("whole"), true) << call;
        EXPECT_EQ(state_names(), (std::vector<std::string>{"finished.json"})) << call;
        if (!GetParam().async) {
            EXPECT_GE(step_in(resumed.err), last) << call;
        }
        last = std::max(last, step_in(resumed.err));
        for (const char* name : {"out", "out.state"}) fs::remove_all(path(name));
    }
    EXPECT_GE(call, 8) << "it died at several places";
    EXPECT_GE(last, 1);
}

INSTANTIATE_TEST_SUITE_P(All, KilledSaveTest,
                         testing::Values(Killed{"alone", 1, 0, false}, Killed{"alone_aside", 1, 0, true},
                                         Killed{"first_of_two", 2, 0, false, 1, 2},
                                         Killed{"second_of_two", 2, 1, false},
                                         Killed{"first_of_two_aside", 2, 0, true, 2, 2},
                                         Killed{"second_of_two_aside", 2, 1, true}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace atl::program
