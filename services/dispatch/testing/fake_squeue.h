#pragma once

namespace atl::dispatch {

// squeue with no job: the header of the columns that it was asked for.
constexpr const char* kFakeSqueue = R"sh(#!/bin/sh
for one; do
    case $one in
        --format=%A) echo JOBID ;;
        --format=*) echo 'NAME|JOBID|STATE|REASON' ;;
    esac
done
)sh";

}  // namespace atl::dispatch
