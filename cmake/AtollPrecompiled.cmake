# Precompiled headers: the standard library, nlohmann-json and GoogleTest are parsed once per set of compiler options
# instead of once per source, which halves the time of a small test. A source still includes what it uses; the preset tsan
# builds without precompiled headers and finds what is missing.
option(ATOLL_PCH "Use precompiled headers (GCC or Clang)" ON)
if(ATOLL_GPU)
    set(ATOLL_PCH OFF)
endif()
set(standard_headers <algorithm> <array> <atomic> <chrono> <condition_variable> <filesystem> <fstream> <functional> <map>
    <memory> <mutex> <optional> <random> <regex> <set> <span> <sstream> <string> <string_view> <thread> <unordered_map>
    <variant> <vector>)

# What the precompiled headers declare to be compiled elsewhere.
if(ATOLL_PCH AND (ATOLL_SERVICES OR ATOLL_TRAINER))
    add_library(atoll_instantiated STATIC ${CMAKE_SOURCE_DIR}/shared/json/instantiated.cpp)
    target_link_libraries(atoll_instantiated PRIVATE atoll_compile_options)
    set(ATOLL_INSTANTIATED atoll_instantiated)
endif()

# atoll_precompile(NAME [TESTS] [OPTIONS …]): a target whose precompiled headers others reuse. Its compiler options must be
# theirs: GCC refuses precompiled headers that were made with another optimisation level or -f option.
function(atoll_precompile name)
    cmake_parse_arguments(ARG "TESTS" "" "OPTIONS" ${ARGN})
    if(NOT ATOLL_PCH)
        return()
    endif()
    file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp CONTENT "// Carries precompiled headers.\n")
    add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PRIVATE atoll_compile_options)
    target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
    set(headers ${standard_headers})
    if(ATOLL_SERVICES OR ATOLL_TRAINER)
        list(APPEND headers <nlohmann/json.hpp> "${CMAKE_SOURCE_DIR}/shared/json/instantiated.h")
    endif()
    if(ARG_TESTS)
        target_link_libraries(${name} PRIVATE GTest::gtest)
        list(APPEND headers <gtest/gtest.h>)
    endif()
    target_precompile_headers(${name} PRIVATE ${headers})
endfunction()

# atoll_reuse_precompiled(TARGET NAME)
function(atoll_reuse_precompiled target name)
    if(ATOLL_PCH)
        target_precompile_headers(${target} REUSE_FROM ${name})
        target_link_libraries(${target} PRIVATE ${ATOLL_INSTANTIATED})
    endif()
endfunction()
