#pragma once

namespace atl::site {

// The exit statuses, beside 0 and 1, of Atoll's scripts and programs at a site; most are those of sysexits.h. Scripts
// write the numbers: SiteScriptsTest holds them to this list.
constexpr int kExitUsage = 2;           // the command line is wrong
constexpr int kExitBadInput = 65;       // what was handed over is wrong and stays so
constexpr int kExitAbsent = 66;         // what was asked for is not there
constexpr int kExitNoBatchAnswer = 69;  // the batch system does not answer
constexpr int kExitNoProgram = 72;      // a program is missing; its name is on standard output
constexpr int kExitNoWorkDir = 74;      // the work directory is not there
constexpr int kExitTryLater = 75;       // it could not be found out or done now; standard error says why
constexpr int kExitNoQueue = 78;        // the batch system does not take the queue as the facility's record names it
constexpr int kExitMoving = 80;         // data is on its way
constexpr int kExitSpoilt = 81;         // what is there is not what was sent
constexpr int kExitStatuses[] = {kExitUsage,     kExitBadInput, kExitAbsent,  kExitNoBatchAnswer, kExitNoProgram,
                                 kExitNoWorkDir, kExitTryLater, kExitNoQueue, kExitMoving,        kExitSpoilt};

}  // namespace atl::site
