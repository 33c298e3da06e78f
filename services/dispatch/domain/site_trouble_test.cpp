#include "services/dispatch/domain/site_trouble.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

TEST(SiteTroubleTest, WhatAProgramDoesNotFindInTheWorkDirectoryIsNamed) {
    const auto path = [](const std::string& said) { return find_lost_file(said, "/scratch/atoll").path; };
    EXPECT_EQ(path("atoll-trainer train: --data: there is no '/scratch/atoll/datasets/it/1/train'"),
              "/scratch/atoll/datasets/it/1/train");
    EXPECT_EQ(path("a note\natoll-trainer eval: cannot open /scratch/atoll/models/ab/config.json: No such file or "
                   "directory\n"),
              "/scratch/atoll/models/ab/config.json");
    for (const char* other :
         {"", "atoll-trainer train: --data: there is no '/data/it'",
          "atoll-trainer train: --data: there is no '/scratch/atoll2/it'",
          "atoll-trainer train: /scratch/atoll/datasets/it/1/train/data.json: is of another version",
          "rm: cannot remove '/scratch/atoll/tasks/a/1/tmp': No such file or directory",
          "mca: unlink /scratch/atoll/tasks/a/1/shm: No such file or directory"})
        EXPECT_EQ(path(other), "") << other;
    EXPECT_FALSE(find_lost_file("atoll-trainer eval: there is no '/scratch/atoll/a'", "/scratch/atoll").is_broken);
}

TEST(SiteTroubleTest, EachLineOfASilentBatchSystemIsToldOnceTheLastFirst) {
    const std::string munge =
        "squeue: error: If munged is up, restart with --num-threads=10\nsqueue: error: Munge encode failed";
    const std::string end = "slurm_load_jobs error: Protocol authentication error";
    EXPECT_EQ(
        silence_text(munge + "\n" + munge + "\n\n" + end + "\n"),
        end + "; squeue: error: Munge encode failed; squeue: error: If munged is up, restart with --num-threads=10");
    EXPECT_LE(silence_text(std::string(1000, 'x')).size(), 300U);
    EXPECT_EQ(silence_text(""), "");
    EXPECT_TRUE(is_munge_away(munge) && is_munge_away(end));
    EXPECT_FALSE(is_munge_away("Unable to contact slurm controller (connect failure)"));
}

TEST(SiteTroubleTest, AWorkDirectoryMayHoldWhatEndsAPathInASentence) {
    for (const std::string directory : {"/scratch/my work", "/scratch/a: b", "/scratch/a, b", "/scratch/it's"})
        for (const std::string& said : {"there is no '" + directory + "/datasets/it'",
                                        "cannot open " + directory + "/datasets/it: No such file or directory"})
            EXPECT_EQ(find_lost_file("atoll-trainer train: " + said, directory).path, directory + "/datasets/it")
                << said;
}

TEST(SiteTroubleTest, WhatTheTrainerCannotWriteIsToldFromWhatOthersCannot) {
    EXPECT_TRUE(is_trainer_read_only("a note\natoll-trainer train: cannot write out: Read-only file system\n"));
    EXPECT_FALSE(is_trainer_read_only("mkdir: cannot create '/root/.cache': Read-only file system\natoll-trainer: no"));
}

TEST(SiteTroubleTest, AFileSystemThatIsAwaySaysSoInManyWords) {
    for (const char* reason : {"Stale file handle", "Transport endpoint is not connected", "Input/output error",
                               "Cannot send after transport endpoint shutdown", "Host is down", "Remote I/O error"}) {
        const std::string said =
            std::string("atoll-trainer train: --model: '/scratch/atoll/models/ab' cannot be read: ") + reason;
        EXPECT_TRUE(find_lost_file(said, "/scratch/atoll").is_broken) << reason;
        EXPECT_FALSE(
            find_lost_file("mca: /scratch/atoll/tasks/a/shm: " + std::string(reason), "/scratch/atoll").is_broken);
        EXPECT_FALSE(find_lost_file(std::string("atoll-trainer train: ") + reason, "/scratch/atoll").is_broken)
            << reason;
    }
}

TEST(SiteTroubleTest, OfAnInputCountsWhatTheTrainerSaysOfFilesThatAreThere) {
    const auto refusal = [](const std::string& said, const std::string& work_dir) {
        const Status status = input_refusal(said, work_dir);
        return status.ok() ? std::string() : status.error().message;
    };
    const std::string parquet = "/d/a.parquet is Parquet, which is not read: …";
    EXPECT_EQ(refusal("WARNING: no license\natoll-trainer tokenize: --input: " + parquet + "\n", "/w"), parquet);
    const std::string row = "/d/a.jsonl:1: the row has no field \"testo\", which the template names";
    EXPECT_EQ(refusal("atoll-trainer tokenize: --input: " + row, "/w"), row);
    EXPECT_EQ(refusal("atoll-trainer tokenize: --chat-template: the tokenizer has no chat template: name one", "/w"),
              "the chat template does not fit: the tokenizer has no chat template: name one");
    const std::string tokenizer =
        "/w/models/ab/tokenizer.json: model.type: \"WordPiece\" is not supported, only BPE is";
    const Status unread = input_refusal("atoll-trainer tokenize: --tokenizer: " + tokenizer, "/w");
    EXPECT_EQ(describe(unread.error()), "tokenizer: cannot be read: " + tokenizer);
    for (const std::string& said :
         {std::string(), "sh: --input: " + parquet, std::string("atoll-trainer tokenize: unknown flag --check"),
          std::string("atoll-trainer tokenize: --input: there is no '/d/a.jsonl'"),
          std::string("atoll-trainer tokenize: --input: no file matches /d/*.jsonl"),
          std::string("atoll-trainer tokenize: --input: cannot open /d/a: No such file or directory")})
        EXPECT_EQ(refusal(said, "/w"), std::string()) << said;
    // What is not in the work directory a compute node does not see either.
    const std::string missing = "cannot open /w/raw/a.jsonl: No such file or directory";
    EXPECT_EQ(refusal("atoll-trainer tokenize: " + missing, "/w"), missing);
    EXPECT_EQ(refusal("atoll-trainer tokenize: --input: no file matches /w/raw/*.jsonl", "/w"),
              "--input: no file matches /w/raw/*.jsonl");
    EXPECT_EQ(refusal("atoll-trainer tokenize: --tokenizer: there is no '/w/models/ab'", "/w"), std::string())
        << "it is staged again";
    EXPECT_EQ(refusal("atoll-trainer tokenize: cannot open /w/models/ab/x: No such file or directory", "/w"),
              std::string());
}

}  // namespace
}  // namespace atl::dispatch
