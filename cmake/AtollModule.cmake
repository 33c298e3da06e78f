# One module = one folder = one namespace = one target. The root is the only include directory.
#
#   atoll_module(pg
#       PUBLIC_HEADERS pg.h                        # what other modules may include (tests/tidy); the rest is internal
#       SOURCES connection.cpp pool.cpp            # explicit, no globbing; none: a header-only module
#       DEPS atoll::base                           # visible in the module's headers
#       PRIVATE_DEPS PkgConfig::libpq              # only in its sources
#       TESTS pool_test.cpp                        # unit tests beside the code -> atoll_pg_test
#       TEST_DEPS atoll::test_stack                # extra libraries of the tests
#       NEEDS_STACK                                # the tests need Postgres and Kafka (a ctest fixture starts them)
#       THREADS                                    # of the trainer: also for the thread sanitizer (preset tsan)
#       NO_PCH                                     # it has compiler options of its own (cmake/AtollPrecompiled.cmake)
#   )
include(GoogleTest)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# What tests start as another user where root runs them, who may not get into the clone, has its state here.
set(ATOLL_TEST_STATE_DIR ${CMAKE_BINARY_DIR})
execute_process(COMMAND sh -c "[ \"$(id -u)\" != 0 ] || setpriv --reuid=65534 --clear-groups test -x '${CMAKE_BINARY_DIR}'"
    RESULT_VARIABLE is_out_of_reach)
if(NOT is_out_of_reach EQUAL 0)
    string(SHA256 name ${CMAKE_BINARY_DIR})
    string(SUBSTRING ${name} 0 12 name)
    set(ATOLL_TEST_STATE_DIR /var/lib/atoll-dev/${name})
endif()
# State of the Postgres and Kafka that the ctest fixture `stack` starts (services/cli/CMakeLists.txt) for NEEDS_STACK tests.
set(ATOLL_TEST_STACK_DIR ${ATOLL_TEST_STATE_DIR}/test-stack)

add_library(atoll_compile_options INTERFACE)
set(warnings -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # gcc 12 reports these falsely inside libstdc++ and nlohmann-json when it inlines.
    list(APPEND warnings -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # gcc takes every .cpp of a unity source for a header and warns of what no other source can see.
    list(APPEND warnings -Wno-subobject-linkage)
endif()
# A program says of its own sources where they lie in this folder: it is the same program wherever it was built.
target_compile_options(atoll_compile_options INTERFACE
    "$<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # gcc collects garbage again and again below a heap of its default, a tenth of the time of a large source.
    target_compile_options(atoll_compile_options INTERFACE
        "$<$<COMPILE_LANGUAGE:C,CXX>:--param=ggc-min-expand=1000;--param=ggc-min-heapsize=1048576>")
endif()
target_compile_options(atoll_compile_options INTERFACE
    "$<$<COMPILE_LANGUAGE:C,CXX>:${warnings}>" "$<$<COMPILE_LANGUAGE:HIP>:-Wall;-Wextra;-Werror>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")
target_include_directories(atoll_compile_options INTERFACE ${CMAKE_SOURCE_DIR})
target_link_libraries(atoll_compile_options INTERFACE Threads::Threads)
if(ATOLL_SANITIZE)
    target_compile_options(atoll_compile_options INTERFACE
        -fsanitize=${ATOLL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(atoll_compile_options INTERFACE -fsanitize=${ATOLL_SANITIZE})
endif()

# The tests' own sources are most of a build, and what they test is compiled as its users have it: so they are not
# optimised, but for those in folders that set ATOLL_TESTS_COMPUTE, whose expected values are the work of many loops.
# -fPIC: as the libraries, so that both can use the same precompiled headers.
set(ATOLL_TEST_OPTIONS -fPIC $<$<CONFIG:Release>:-O0>)
set(ATOLL_COMPUTING_TEST_OPTIONS -fPIC $<$<CONFIG:Release>:-O1>)

function(atoll_module name)
    cmake_parse_arguments(ARG "NEEDS_STACK;THREADS;NO_PCH" "" "PUBLIC_HEADERS;SOURCES;DEPS;PRIVATE_DEPS;TESTS;TEST_DEPS" ${ARGN})
    set(scope INTERFACE)
    if(ARG_SOURCES)
        set(scope PUBLIC)
        add_library(atoll_${name} STATIC ${ARG_SOURCES})
        target_link_libraries(atoll_${name} PUBLIC atoll_compile_options ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
        if(NOT ARG_NO_PCH)
            atoll_reuse_precompiled(atoll_${name} ${ATOLL_HEADERS})
        endif()
    else()
        add_library(atoll_${name} INTERFACE)
        target_link_libraries(atoll_${name} INTERFACE atoll_compile_options ${ARG_DEPS} ${ARG_PRIVATE_DEPS})
    endif()
    add_library(atoll::${name} ALIAS atoll_${name})
    target_sources(atoll_${name} ${scope} FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${ARG_PUBLIC_HEADERS})
    if(ARG_TESTS AND (ATOLL_TESTS OR (ARG_THREADS AND ATOLL_THREAD_TESTS)))
        set(options "")
        if(ARG_NEEDS_STACK)
            set(options NEEDS_STACK)
        endif()
        atoll_test(${name}_test SOURCES ${ARG_TESTS} DEPS atoll::${name} ${ARG_TEST_DEPS} ${options})
    endif()
endfunction()

add_custom_target(programs COMMENT "every program, no tests")
add_custom_target(quick_tests COMMENT "the tests that start no server")

# A program: atoll_program(atoll-store SOURCES main.cpp DEPS atoll::store) -> bin/atoll-store
function(atoll_program name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE atoll_compile_options ${ARG_DEPS})
    add_dependencies(programs ${name})
endfunction()

# atoll_label(LABEL MODULE [LONG|SERVER|BUSY]): the one label of a test. It is the test's module, after what `./dev test`
# selects by: "LONG2:fault" (takes over 20 s: runs with one third of the long tests, `./dev test --long`), "SERVER:dispatch"
# (starts servers: not in `--quick`), "BUSY:trainer_program" (only in the `--quick` that names its module).
function(atoll_label label module)
    set(prefix "")
    if("LONG" IN_LIST ARGN)
        get_property(count GLOBAL PROPERTY atoll_long_tests)
        if(NOT count)
            set(count 0)
        endif()
        math(EXPR third "${count} % 3 + 1")
        math(EXPR count "${count} + 1")
        set_property(GLOBAL PROPERTY atoll_long_tests ${count})
        set(prefix "LONG${third}:")
    elseif("SERVER" IN_LIST ARGN)
        set(prefix "SERVER:")
    elseif("BUSY" IN_LIST ARGN)
        set(prefix "BUSY:")
    endif()
    set(${label} "${prefix}${module}" PARENT_SCOPE)
endfunction()

# atoll_command_test(NAME MODULE [LONG|SERVER|BUSY] COMMAND … [PROPERTIES …]): a ctest case that is a command.
function(atoll_command_test name module)
    cmake_parse_arguments(ARG "LONG;SERVER;BUSY" "" "COMMAND;PROPERTIES" ${ARGN})
    set(kind "")
    foreach(option LONG SERVER BUSY)
        if(ARG_${option})
            set(kind ${option})
        endif()
    endforeach()
    atoll_label(label ${module} ${kind})
    add_test(NAME ${name} COMMAND ${ARG_COMMAND})
    set_tests_properties(${name} PROPERTIES LABELS ${label} ${ARG_PROPERTIES})
endfunction()

# A GoogleTest program, each TEST a ctest case. RANKS n: the whole program runs once under mpirun with n ranks.
# Most tests wait more than they compute, so two run on a core (tests/skips/run_tests.sh). BUSY: each keeps a core busy.
# SERVER: it starts servers. COST s: each takes about so many seconds; the long ones start first.
function(atoll_test name)
    cmake_parse_arguments(ARG "NEEDS_STACK;SERVER;BUSY" "RANKS;TIMEOUT;COST" "SOURCES;DEPS" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 300)
    endif()
    if(ATOLL_SANITIZE)
        math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
    endif()
    add_executable(atoll_${name} ${ARG_SOURCES})
    target_link_libraries(atoll_${name} PRIVATE atoll_compile_options ${ARG_DEPS} GTest::gtest)
    if(ATOLL_TESTS_COMPUTE)
        target_compile_options(atoll_${name} PRIVATE ${ATOLL_COMPUTING_TEST_OPTIONS})
        atoll_reuse_precompiled(atoll_${name} atoll_computing_test_headers)
    else()
        target_compile_options(atoll_${name} PRIVATE ${ATOLL_TEST_OPTIONS})
        atoll_reuse_precompiled(atoll_${name} atoll_test_headers)
    endif()
    string(REGEX REPLACE "_test$" "" module ${name})
    set(kind "")
    if(ARG_NEEDS_STACK OR ARG_SERVER)
        set(kind SERVER)
    elseif(ARG_BUSY)
        set(kind BUSY)
    endif()
    atoll_label(label ${module} ${kind})
    if(NOT kind STREQUAL "SERVER")
        add_dependencies(quick_tests atoll_${name})
    endif()
    set(properties LABELS ${label} TIMEOUT ${ARG_TIMEOUT})
    if(ARG_BUSY)
        list(APPEND properties PROCESSORS 2)
    endif()
    if(ARG_COST)
        list(APPEND properties COST ${ARG_COST})
    endif()
    if(ARG_NEEDS_STACK)
        list(APPEND properties FIXTURES_REQUIRED stack
            ENVIRONMENT "ATOLL_TEST_STACK=${ATOLL_TEST_STACK_DIR}/stack.json")
    endif()
    if(ARG_RANKS)
        target_link_libraries(atoll_${name} PRIVATE GTest::gtest)
        add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/mpirun.sh ${ARG_RANKS} $<TARGET_FILE:atoll_${name}>)
        set_tests_properties(${name} PROPERTIES ${properties} PROCESSORS ${ARG_RANKS})
    else()
        target_link_libraries(atoll_${name} PRIVATE GTest::gtest_main)
        gtest_discover_tests(atoll_${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
                             PROPERTIES ${properties})
    endif()
endfunction()

# Embeds text files as C++: atoll_embed(target NAMESPACE atl::store FILES schema/0001_init.sql openapi.json)
# gives "<dir>/embedded.h" with one std::string_view a file, k<CamelCaseOfPath> (kSchema0001InitSql, kOpenapiJson).
function(atoll_embed target)
    cmake_parse_arguments(ARG "" "NAMESPACE" "FILES" ${ARGN})
    file(RELATIVE_PATH here ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    set(header ${CMAKE_BINARY_DIR}/embedded/${here}/embedded.h)
    add_custom_command(OUTPUT ${header}
        COMMAND ${CMAKE_COMMAND} -DOUTPUT=${header} -DNAMESPACE=${ARG_NAMESPACE} "-DFILES=${ARG_FILES}"
                -DROOT=${CMAKE_CURRENT_SOURCE_DIR} -P ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake
        DEPENDS ${ARG_FILES} ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake
        WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} VERBATIM)
    target_sources(${target} PRIVATE ${header})
    target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/embedded)
endfunction()

# atoll_fuzz(NAME SOURCES file… [DEPS target…] [OPTIONS compile option…]): a libFuzzer target of NAME.cpp, where they are
# asked for. The library's own sources are compiled again, so that the fuzzer sees their branches.
function(atoll_fuzz name)
    if(NOT ATOLL_FUZZ)
        return()
    endif()
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS;OPTIONS")
    add_executable(${name} ${name}.cpp ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE atoll_compile_options atoll::base ${arg_DEPS})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all ${arg_OPTIONS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
endfunction()
