#!/usr/bin/env bash
# tidy.sh [ROOT]: the rules of CONTRIBUTING.md that a program can check. Prints "file:line: rule" for each breach and
# exits 1 if there was one. self_test.sh proves that each rule catches what it should.
set -uo pipefail
export LC_ALL=C.UTF-8
cd "${1:-$(dirname "$0")/../..}"

readonly file_lines_max=600 function_lines_max=70 architecture_lines_max=250
# Reads "file:line:…" lines and prints each under a rule.
report() {
    local file line rest
    while IFS=: read -r file line rest; do printf '%s:%s: %s\n' "$file" "$line" "$1"; done
}

scratch=$(mktemp)
trap 'rm -f "$scratch" "$scratch.files"' EXIT

# Our own files: those that git knows or would add; all files where there is no repository.
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard | grep -vxFf <(git ls-files --deleted)
else
    find . -type f -printf '%P\n'
fi | sort -u >"$scratch.files"
# files EXTENSION…: those of these kinds.
files() { grep -E "\.($(IFS='|' && printf '%s' "$*"))\$" "$scratch.files" || true; }
mapfile -t cmake_lists < <(grep -E '(^|/)CMakeLists\.txt$' "$scratch.files")
mapfile -t code < <(files cpp h inl cu cuh)
mapfile -t headers < <(files h cuh)
mapfile -t text < <(files cpp h inl cu cuh cmake sh sql yaml md json py xml js css html && printf '%s\n' "${cmake_lists[@]}")
[ ${#code[@]} -gt 0 ] || { echo "no source files under $PWD" && exit 1; }

# in_code PATTERN [FILES…]: "file:line:text" of matches of an extended regular expression.
in_code() {
    local pattern=$1
    shift
    grep -HnE -- "$pattern" "$@" /dev/null || true
}

# Which folder alone may include a library. "pattern folder[|folder…]"
library_owners() {
    cat <<'TABLE'
<libpq shared/pg
<librdkafka/ shared/kafka
<pistache/ shared/http
<curl/ shared/http
<jwt\.h shared/auth
<prometheus/ shared/metrics
<yaml-cpp/ shared/config
<openssl/ shared/auth|shared/digest
<mpi\.h trainer/comm
<(cblas|dnnl) trainer/kernels|bench
<sentencepiece trainer/tokenizer
<(cuda|cudnn|hip|nccl|rccl|cublas|hipblas) trainer/kernels/gpu|trainer/comm
<CLI/ services/cli|trainer/program|tests
TABLE
}
check_libraries() {
    local pattern owners
    while read -r pattern owners; do
        in_code "^ *# *include +$pattern" "${code[@]}" | grep -vE "^($owners)[/:]" |
            report "only $owners may include $pattern"
    done < <(library_owners)
}

# base <- shared/* <- services/x; the trainer uses only some of shared; services never include one another.
check_layers() {
    local service
    in_code '^#include "(services|trainer|tests)/' "${code[@]}" | grep '^shared/' | grep -vE '_test\.cpp:|/testing/' |
        report "shared/ includes nothing above it"
    in_code '^#include "' "${code[@]}" | grep '^shared/base/' | grep -v '"shared/base/' |
        report "shared/base includes nothing of ours"
    in_code '^#include "(services|tests)/' "${code[@]}" | grep '^trainer/' | grep -v '_test\.cpp:' |
        report "the trainer includes nothing of the services"
    in_code '^#include "shared/' "${code[@]}" | grep '^trainer/' |
        grep -vE '"shared/(base|numeric|host|log|json|run_settings|safetensors|digest|prompt|model_config|adapter|training_memory|delta)/' |
        report "the trainer uses only base, numeric, host, log, json, run_settings, safetensors, digest, prompt, model_config, adapter, training_memory and delta of shared/"
    in_code '^#include "trainer/' "${code[@]}" | grep '^services/' | report "services include nothing of the trainer"
    for service in services/*/; do
        in_code '^#include "services/' "${code[@]}" | grep "^$service" | grep -v "\"$service" |
            grep -vE '^services/cli/.*"services/stack/|^services/stack/.*"services/(console|gateway)/' |
            report "services never include one another"
    done
}

# Lowest first: a folder or file includes what stands before it, never what stands after. "where layers…"; a file stands
# here without what follows its first dot; * is any service without a row of its own.
layers() {
    cat <<'TABLE'
shared base numeric host json run_settings log digest safetensors prompt model_config adapter training_memory delta config metrics auth http pg kafka events service site store_client aggregate round
trainer tensor quant comm kernels trace model reference optim offload plan text tokenizer dataset tokenize weights importer parallel model_io checkpoint train program
shared/http message client server
services/* embedded metrics domain settings db blobs clients sites events work admission routes service main
services/cli terminal context interrupt output rest usage transfer job_names watch doctor commands site main
services/stack layout process component name_lookup gateway kafka postgres services components renewal gateway_watch restart_schedule supervisor stack stack_user prepare_user systemd credentials
services/console embedded console
services/gateway embedded nginx_conf
TABLE
}
# A service's SQL is in its db/ and schema/ alone.
check_sql() {
    in_code '"(\(|[^"]* )?(SELECT [a-z$*]|INSERT INTO |DELETE FROM |UPDATE [a-z_]+ SET |TRUNCATE )' "${code[@]}" | grep '^services/' |
        grep -vE '/db/|/testing/|_test\.cpp:' | report "a service's SQL stands in its db/"
}

# What happens to jobs is decided by the database's clock, or by one that only goes forward: a host's may jump.
check_clocks() {
    in_code 'unix_now_ms|system_clock|[^_a-z]time\(' "${code[@]}" | grep -E '^services/(dispatch|aggregation)/' |
        grep -vE '_test\.cpp:|/testing/' | report "dispatch and aggregation know the database's time alone"
}

# Other modules include a module's PUBLIC_HEADERS alone, and each of those is included by another one. Tests may include
# what stands in tests/ or testing/. A module is a folder in shared/, services/, trainer/ or tests/, with what is below it.
check_public_headers() {
    {
        for file in "${cmake_lists[@]}"; do
            sed 's/#.*//' "$file" | tr -s '() \t\n' '\n' | awk -v folder="${file%CMakeLists.txt}" -v file="$file" '
                /^[A-Z_]+$/ { listed = $0 == "PUBLIC_HEADERS"; next }
                listed && /\.(h|inl|cuh)$/ { print "public\t" folder $0 "\t" file }'
        done
        in_code '^#include "(shared|services|trainer|tests)/' "${code[@]}"
    } | awk '
        function module(path, parts) { return split(path, parts, "/") < 3 ? parts[1] : parts[1] "/" parts[2] }
        /^public\t/ { split($0, entry, "\t"); public[entry[2]] = entry[3]; next }
        {
            split($0, quoted, "\"")
            file = substr($0, 1, index($0, ":") - 1)
            if (module(file) == module(quoted[2])) next
            used[quoted[2]] = 1
            if (quoted[2] in public) next
            if (quoted[2] ~ /^tests\/|\/testing\// && (file ~ /_test\.cpp$|\/testing\/|^tests\/|^bench\//)) next
            print $0
        }
        END { for (header in public) if (!(header in used)) print public[header] ":1:" header }
    ' | sort >"$scratch"
    grep -v '/CMakeLists\.txt:' "$scratch" | report "not one of the PUBLIC_HEADERS of its module"
    grep '/CMakeLists\.txt:' "$scratch" | report "one of PUBLIC_HEADERS that no other module includes"
}

# Tests may look at anything.
check_order() {
    local root layers own
    own=$(layers | cut -d ' ' -f 1 | grep '^services/[a-z]' | paste -sd '|')
    while read -r root layers; do
        { printf '%s\n' "${code[@]}" | sed 's/.*/&:1:"&"/'; in_code '^#include "' "${code[@]}"; } |
            grep -vE '_test\.cpp:|/testing/' | awk -v root="$root" -v layers="$layers" -v own="^($own)/" '
            BEGIN {
                count = split(layers, names, " ")
                for (i = 1; i <= count; ++i) rank[names[i]] = i
                depth = split(root, unused, "/")
                any = root ~ /\*/
                gsub(/\*/, "[a-z_]+", root)
            }
            {
                split($0, quoted, "\"")
                file = substr($0, 1, index($0, ":") - 1)
                if (file !~ "^" root "/" || quoted[2] !~ "^" root "/") next
                split(file, from, "/"); split(quoted[2], to, "/")
                if (depth == 2 && from[2] != to[2] || any && file ~ own) next
                a = from[depth + 1]; b = to[depth + 1]
                sub(/\..*/, "", a); sub(/\..*/, "", b)
                if (!(a in rank)) print $0 "\t" a
                else if (b in rank && rank[b] > rank[a]) print
            }'
    done < <(layers) | report "includes a layer above its own, or is in none (tests/tidy/tidy.sh lists them)"
}

check_sizes() {
    wc -l -- "${code[@]}" | awk -v max=$file_lines_max '$2 != "total" && $1 > max { print $2 ":" $1 ":" }' |
        report "more than $file_lines_max lines"
    if [ -e ARCHITECTURE.md ] && (($(wc -l <ARCHITECTURE.md) > architecture_lines_max)); then
        echo "ARCHITECTURE.md:$architecture_lines_max:" | report "more than $architecture_lines_max lines"
    fi
    # clang-format puts a function's last brace where its first line began; namespaces and types are no functions. A
    # signature may go over several lines. The rows of a table in it do not count.
    awk -v max=$function_lines_max '
        FNR == 1 { start = 0; signature = 0 }
        !start && /^[A-Za-z_~].*[(,]$|^[A-Za-z_~].*\(.*[^{;]$/ && !/^(namespace|class|struct|enum|union|extern)/ { signature = FNR }
        !start && signature && /;$/ { signature = 0 }
        !start && signature && signature < FNR && /^ .*\{$/ { start = signature; rows = 0; signature = 0 }
        !start && /\{$/ && /^[^ #}]/ && !/^(namespace|class|struct|enum|union|extern)/ && !/= *\{$/ { start = FNR; rows = 0 }
        start && /= \{$/ { table = FNR }
        start && table && /^ *\};$/ { rows += FNR - table; table = 0 }
        /^\}$/ && start { if (FNR - start - rows > max) print FILENAME ":" start ":"; start = 0; table = 0 }
    ' "${code[@]}" | report "a function of more than $function_lines_max lines"
}

# "file:line:" of errors whose message begins with the field that they name, on however many lines they stand:
# invalid_argument(F + ".x", F + ".x: …"), conflict("x: …", "x").
repeated_fields() {
    perl -0777 -ne '
        while (/\binvalid_argument\(\s*(?:((?:(?!;\n).)*?)",\s*\1: |([a-z_]+),\s*\2 \+ ": )|\b(?:conflict|not_found)\(\s*"([\w.]+): (?:(?!;\n).)*?"\3"\)/gs) {
            my $line = 1 + (substr($_, 0, $-[0]) =~ tr/\n//);
            print "$ARGV:$line:\n";
        }' $(printf '%s\n' "${code[@]}" | grep -E '^(shared|services)/' | grep -v '_test\.cpp$') /dev/null
}

check_habits() {
    [ ${#headers[@]} = 0 ] || grep -L '^#pragma once$' -- "${headers[@]}" | sed 's/$/:1:/' |
        report "a header without #pragma once"
    in_code '^ *using namespace ' "${headers[@]}" | report "using namespace in a header"
    in_code '\b(TODO|FIXME|HACK)\b' "${text[@]}" | grep -v '^tests/tidy/' | report "finish it, or file an issue"
    in_code 'std::thread[ ({&>]' "${code[@]}" | report "threads are std::jthread"
    in_code '(^|[^_a-zA-Z:.])(exit|abort) *\(' "${code[@]}" | grep -vE '_test\.cpp:|^shared/base/check\.|::_?exit' |
        report "return an error; check() is for programmers' errors"
    in_code 'for \([^;]*[^:]:[^:].*[^a-z_]value\("[^"]*", .*\)\.(items|begin|at|front|back|find)\b' "${code[@]}" |
        report "a loop over a part of a temporary that is gone by then: give it a name"
    repeated_fields | report "a message does not repeat its field: describe() puts it in front"
    in_code 'spdlog::.*\.error\(\)\.message' "${code[@]}" | report "a log shows describe(error), with the field"
    grep -HnE '^[^#]*((^| )\.\./|\$\{CMAKE_SOURCE_DIR\}/[^ )"]*\.(cpp|cu|inl)\b)' "${cmake_lists[@]}" /dev/null |
        report "a module's CMake reaches into another module"
    in_code '\b(file|FILE)\(GLOB' "${text[@]}" | grep -v '^tests/tidy/' | report "sources are listed, not globbed"
    in_code '[ 	]+$' "${text[@]}" | report "white space at the end of a line"
    in_code $'\r$' "${text[@]}" | report "a carriage return"
    perl -0777 -ne 'print "$ARGV:" . tr/\n// . ":\n" if length && !/\n\z/' "${text[@]}" | report "no newline at its end"
}

# "file:line:" of source files that a page names and that are nowhere: `sites/site.cpp`, `strategy.{h,cpp}`. CONTRIBUTING.md
# names examples.
stale_names() {
    local file line name ending
    grep -HnoE '`[a-z_0-9/]+\.(\{[a-z,]+\}|h|cpp|inl|sql)`' $(printf '%s\n' "${text[@]}" | grep '\.md$' | grep -v '^CONTRIBUTING') /dev/null | tr -d '`' |
        while IFS=: read -r file line name; do
            for ending in $(tr '{},' '   ' <<<"${name##*.}"); do
                grep -q "/${name%%.*}\.$ending$" "$scratch" || echo "$file:$line:"
            done
        done
}

# Each service explains itself on a page; so do the trainer and the shared libraries.
check_pages() {
    local folder
    printf '/%s\n' "${text[@]}" >"$scratch"
    stale_names | report "a page names a file that is not there"
    for folder in services/*/ trainer/ shared/; do
        [ ! -d "$folder" ] || [ -e "$folder/README.md" ] || echo "${folder}README.md:1:" | report "a module without its page"
    done
}

# Who reads that a test tries something finds it.
check_named_tests() {
    local pages=()
    mapfile -t pages < <(printf '%s\n' "${text[@]}" | grep -E '^services/.*\.md$')
    [ ${#pages[@]} -gt 0 ] || return 0
    grep -hoE 'TEST(_[FP])?\(\w+, \w+\)' -- $(printf '%s\n' "${code[@]}" | grep '_test\.cpp$') /dev/null |
        sed -E 's/.*\((\w+), (\w+)\)/\1.\2/' | sort -u >"$scratch"
    grep -HnoE '`[A-Z]\w*Test\.[A-Z]\w+`' -- "${pages[@]}" | while IFS=: read -r file line name; do
        grep -qxF -- "${name//\`/}" "$scratch" || echo "$file:$line:$name"
    done | report "a page names a test that is not there"
}

# Models and the engine keep tensors in the formats of the run.
check_formats() {
    local files=()
    mapfile -t files < <(printf '%s\n' "${code[@]}" | grep -E '^trainer/(model|parallel)/[^/]*$' | grep -v _test)
    [ ${#files[@]} -gt 0 ] || return 0
    in_code 'allocate\(.*DType::kF(32|16)' "${files[@]}" | report "a tensor is allocated by trainer/kernels/formats.h"
}

# What a facility needs is listed: its scripts call nothing else, of what this machine has. check.sh may lack what it asks.
check_scripts() {
    local folder=services/dispatch/sites tools file line word
    [ -e $folder/scripts/tools.sh ] || return 0
    tools=" $(sh -c '. "$1" && echo $tools' sh ./$folder/scripts/tools.sh) flock sh sbatch squeue scancel sacct sinfo scontrol "
    tools+=$(sed -n 's/^\([a-z_]*\)() {$/\1 /p' $folder/scripts/*.sh $folder/batch/scripts/*.sh 2>/dev/null | tr '\n' ' ')
    for file in $folder/scripts/*.sh $folder/batch/scripts/*.sh; do
        [ "${file##*/}" != check.sh ] && [ -e "$file" ] || continue
        # The first word of each command, keywords and assignments passed over.
        awk '{
            sub(/(^|[ \t])#.*/, "")
            gsub(/\$\(\([^)]*\)\)/, "")
            count = split($0, commands, /[|&;{}()!`"]+/)
            for (i = 1; i <= count; ++i) {
                words = split(commands[i], word, /[ \t]+/)
                for (j = 1; j <= words; ++j)
                    if (word[j] != "" && word[j] !~ /^(do|then|else|if|elif|until|while|exec|nice|setsid|.*=.*)$/) break
                if (j <= words && word[j] ~ /^[a-z][a-z0-9_.-]*$/) print FNR, word[j]
            }
        }' "$file" | while read -r line word; do
            case $tools in *" $word "*) continue ;; esac
            [ "$(type -t "$word")" != file ] || echo "$file:$line: $word is none of tools.sh, which says what a site needs"
        done
    done
}

# Others may write where a site's scripts work: a name that they can tell could be a link of theirs before it is a file.
check_temporary_files() {
    in_code '\.\$(\$|PPID)' "${text[@]}" | grep -E '^services/dispatch/sites/' | grep -v '_test\.cpp:' |
        report "mktemp makes the temporary files of a site's scripts"
}

breaches=$(check_libraries; check_layers; check_order; check_public_headers; check_sql; check_clocks; check_sizes; check_habits; check_pages; check_named_tests; check_formats; check_scripts; check_temporary_files)
if [ -n "$breaches" ]; then
    printf '%s\n%s breaches of the rules\n' "$breaches" "$(wc -l <<<"$breaches")"
    exit 1
fi
echo "${#code[@]} source files keep the rules"
