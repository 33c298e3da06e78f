#include <gtest/gtest.h>

#include "trainer/program/cli.h"

namespace atl::program {
namespace {

TEST(ExitCodeTest, OnlyWhatIsKnownToBeBadInputEndsWithTwo) {
    EXPECT_EQ(exit_code({}), 0);
    const Error no_right{ErrorCode::kPermissionDenied, "", "model.safetensors"};
    for (const Error& error : {invalid_argument("--lr", ""), not_found("", "--data"), conflict("", "--out"), no_right})
        EXPECT_EQ(exit_code(error), 2) << to_string(error.code);
    for (const ErrorCode code :
         {ErrorCode::kUnauthenticated, ErrorCode::kPreconditionFailed, ErrorCode::kUnavailable, ErrorCode::kInternal})
        EXPECT_EQ(exit_code(Error{code, "", ""}), 1) << to_string(code);
    EXPECT_EQ(exit_code(Error{ErrorCode::kResourceExhausted, "", "memory"}), 3);
    EXPECT_EQ(exit_code(Error{ErrorCode::kTooLarge, "", "the loss"}), 4);
    EXPECT_EQ(exit_code(Error{ErrorCode::kInsufficientStorage, "", "a full disk's file"}), 1);
}

}  // namespace
}  // namespace atl::program
