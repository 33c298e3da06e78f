#!/usr/bin/env bash
# Plants one breach of each rule of tidy.sh in a tree that keeps them all, and wants to see it reported.
set -euo pipefail
tidy=$(cd "$(dirname "$0")" && pwd)/tidy.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# A tree that keeps the rules.
plant() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree"/{shared/{base,json,pg},services/{store,registry},trainer/model}
    for folder in services/store services/registry trainer shared; do
        echo "# A page" >"$tree/$folder/README.md"
    done
    printf '#pragma once\n\n#include "shared/base/result.h"\n' >"$tree/services/store/service.h"
    printf '#include <libpq-fe.h>\n' >"$tree/shared/pg/pg.cpp"
    printf '#include "shared/json/json.h"\n' >"$tree/trainer/model/model.cpp"
    printf 'atoll_module(base\n    PUBLIC_HEADERS result.h\n    SOURCES result.cpp)\n' >"$tree/shared/base/CMakeLists.txt"
    printf 'atoll_module(json PUBLIC_HEADERS json.h SOURCES json.cpp)\n' >"$tree/shared/json/CMakeLists.txt"
}

# expect "file: rule" after the breach that was just planted
expect() {
    local output
    if output=$("$tidy" "$tree"); then
        echo "not caught: $1"
        failures=$((failures + 1))
    elif ! grep -qE "$1" <<<"$output"; then
        printf 'wanted %s, got:\n%s\n' "$1" "$output"
        failures=$((failures + 1))
    fi
    plant
}

plant
"$tidy" "$tree" >/dev/null || { "$tidy" "$tree"; echo "a tree that keeps the rules is refused"; exit 1; }

printf 'TEST_F(ATest, Holds) {}\n' >"$tree/services/store/a_test.cpp"
printf '`ATest.Holds`, `ATest.IsGone`\n' >"$tree/services/THREATS.md"
expect 'services/THREATS.md:1: a page names a test that is not there'
echo '#include <libpq-fe.h>' >"$tree/services/store/a.cpp" && expect 'services/store/a.cpp:1: only shared/pg may'
echo '#include <mpi.h>' >"$tree/trainer/model/a.cpp" && expect 'trainer/model/a.cpp:1: only trainer/comm may'
echo '#include "services/registry/x.h"' >"$tree/services/store/a.cpp" && expect 'a.cpp:1: services never include'
echo '#include "services/store/x.h"' >"$tree/shared/pg/a.cpp" && expect 'a.cpp:1: shared/ includes nothing above'
echo '#include "shared/json/json.h"' >"$tree/shared/base/a.cpp" && expect 'a.cpp:1: shared/base includes nothing'
echo '#include "shared/pg/pg.h"' >"$tree/trainer/model/a.cpp" && expect 'a.cpp:1: the trainer uses only'
echo '#include "trainer/parallel/x.h"' >"$tree/trainer/model/a.cpp" && expect 'a.cpp:1: includes a layer above'
echo 'const Tensor x = arena.allocate(category, DType::kF32, {rows});' >"$tree/trainer/model/a.cpp" &&
    expect 'model/a.cpp:1: a tensor is allocated by'
echo '#include "shared/events/x.h"' >"$tree/shared/pg/a.cpp" && expect 'a.cpp:1: includes a layer above'
mkdir -p "$tree/services/store/domain" && echo '#include "services/store/db/x.h"' >"$tree/services/store/domain/a.cpp" &&
    expect 'a.cpp:1: includes a layer above'
mkdir -p "$tree/services/store/work" && echo '#include "services/store/service.h"' >"$tree/services/store/work/a.cpp" &&
    expect 'work/a.cpp:1: includes a layer above'
echo '#include "services/store/work/x.h"' >"$tree/services/store/settings.h" && expect 'settings.h:1: includes a layer above'
mkdir -p "$tree/services/cli" && echo '#include "services/cli/commands/x.h"' >"$tree/services/cli/output.cpp" &&
    expect 'output.cpp:1: includes a layer above'
echo '#include "services/store/domain/x.h"' >"$tree/services/store/misc.cpp" && expect 'misc.cpp:1: includes a layer above'
mkdir -p "$tree/services/store/misc" && echo '#pragma once' >"$tree/services/store/misc/a.h" &&
    expect 'misc/a.h:1: includes a layer above'
mkdir -p "$tree/services/store/work" && echo 'query("DELETE FROM blobs");' >"$tree/services/store/work/a.cpp" &&
    expect "work/a.cpp:1: a service's SQL"
mkdir -p "$tree/services/store/work" && echo 'R"(SELECT digest' >"$tree/services/store/work/a.cpp" &&
    expect "work/a.cpp:1: a service's SQL"
mkdir -p "$tree/services/dispatch/work" &&
    echo 'const auto now = std::chrono::system_clock::now();' >"$tree/services/dispatch/work/a.cpp" &&
    expect "work/a.cpp:1: dispatch and aggregation know"
echo 'FILES ../registry/x.json)' >"$tree/services/store/CMakeLists.txt" && expect 'CMakeLists.txt:1: a module.s CMake'
echo 'SOURCES ${CMAKE_SOURCE_DIR}/shared/json/json.cpp)' >"$tree/services/store/CMakeLists.txt" &&
    expect 'CMakeLists.txt:1: a module.s CMake'
echo '#include "shared/json/parser.h"' >"$tree/trainer/model/a.cpp" && expect 'a.cpp:1: not one of the PUBLIC_HEADERS'
echo '#include "trainer/model/testing/x.h"' >"$tree/trainer/a.cpp" && expect 'a.cpp:1: not one of the PUBLIC_HEADERS'
echo 'atoll_module(pg PUBLIC_HEADERS pg.h SOURCES pg.cpp)' >"$tree/shared/pg/CMakeLists.txt" &&
    expect 'shared/pg/CMakeLists.txt:1: one of PUBLIC_HEADERS that no other module includes'
mkdir -p "$tree/trainer/misc" && echo '#include "trainer/model/x.h"' >"$tree/trainer/misc/a.cpp" &&
    expect 'misc/a.cpp:1: includes a layer above'
echo '#include "services/store/x.h"' >"$tree/trainer/model/a.cpp" && expect 'a.cpp:1: the trainer includes nothing'
echo '#include "trainer/model/x.h"' >"$tree/services/store/a.cpp" && expect 'a.cpp:1: services include nothing of the trainer'
yes '// line' | head -n 601 >"$tree/shared/pg/a.cpp" && expect 'a.cpp:601: more than 600 lines'
{ echo 'int f() {'; yes '    g();' | head -n 71; echo '}'; } >"$tree/shared/pg/a.cpp" && expect 'a.cpp:1: a function of more'
{ printf 'int f(int a,\n      int b) {\n'; yes '    g();' | head -n 70; echo '}'; } >"$tree/shared/pg/a.cpp" &&
    expect 'a.cpp:1: a function of more'
yes 'text' | head -n 251 >"$tree/ARCHITECTURE.md" && expect 'ARCHITECTURE.md:250: more than'
echo 'int x;' >"$tree/shared/pg/a.h" && expect 'a.h:1: a header without #pragma once'
printf '#pragma once\nusing namespace std;\n' >"$tree/shared/pg/a.h" && expect 'a.h:2: using namespace'
echo '// TO''DO: later' >"$tree/shared/pg/a.cpp" && expect 'a.cpp:1: finish it'
echo 'std::thread t;' >"$tree/shared/pg/a.cpp" && expect 'a.cpp:1: threads are std::jthread'
echo '    exit(1);' >"$tree/shared/pg/a.cpp" && expect 'a.cpp:1: return an error'
echo 'for (const auto& [name, queue] : batch.value("queues", json::object()).items()) use(name);' >"$tree/services/store/a.cpp" &&
    expect 'a.cpp:1: a loop over a part of a temporary'
echo 'return invalid_argument("after", "after: must be a cursor");' >"$tree/services/store/a.cpp" && expect 'a.cpp:1: a message does'
echo 'return invalid_argument(field, field + ": must be a name");' >"$tree/services/store/a.cpp" && expect 'a.cpp:1: a message does'
printf 'return invalid_argument(path + ".at",\n    path + ".at: stands here twice");\n' >"$tree/services/store/a.cpp" &&
    expect 'a.cpp:1: a message does'
echo 'return conflict("name: is taken by " + other, "name");' >"$tree/services/store/a.cpp" && expect 'a.cpp:1: a message does'
echo 'spdlog::warn("no: {}", status.error().message);' >"$tree/services/store/a.cpp" && expect 'a.cpp:1: a log shows'
echo 'file(GLOB sources *.cpp)' >"$tree/shared/pg/a.cmake" && expect 'a.cmake:1: sources are listed'
echo 'int x; ' >"$tree/shared/pg/a.cpp" && expect 'a.cpp:1: white space'
printf 'int x;\r\n' >"$tree/shared/pg/a.cpp" && expect 'a.cpp:1: a carriage return'
printf 'int x;' >"$tree/shared/pg/a.cpp" && expect 'a.cpp:0: no newline'
printf 'See\n`pg/none.{h,cpp}`.\n' >"$tree/shared/README.md" && expect 'shared/README.md:2: a page names a file'
mkdir -p "$tree/services/dispatch/sites/scripts" && cd "$tree/services/dispatch/sites/scripts" &&
    echo 'tools="ls cat"' >tools.sh && printf 'ls x\nif a=$(ls | sed p); then cat y; fi\n' >a.sh && cd - >/dev/null &&
    expect 'scripts/a.sh:2: sed is none of tools.sh'
mkdir -p "$tree/services/dispatch/sites/scripts" && printf 'cat >"a.$$"\n' >"$tree/services/dispatch/sites/scripts/a.sh" &&
    expect 'scripts/a.sh:1: mktemp makes the temporary'
rm "$tree/services/store/README.md" && expect 'services/store/README.md:1: a module without its page'

[ "$failures" = 0 ] && echo "every rule catches its breach"
