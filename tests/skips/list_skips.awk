# awk -f list_skips.awk CTEST_OUTPUT LAST_TEST_LOG: "test<TAB>reason" for each skipped test. The output of ctest ends with
# the tests that it skipped; its log has what each test printed. A program that ctest runs as one test passes although
# tests inside it were skipped: each of those is "test:Suite.Name", after the others.

function add(name, reason) {
    if (name in reasons) return
    names[++count] = name
    reasons[name] = reason
}

{ is_log = FILENAME == ARGV[2] }

!is_log && /^The following tests/ { did_not_run = /did not run:/ }
!is_log && did_not_run && /^\t *[0-9]+ - .* \((Skipped|Disabled)\)/ {
    reason = / \(Disabled\)/ ? "disabled" : ""
    sub(/^\t *[0-9]+ - /, "")
    sub(/ \((Skipped|Disabled)\).*$/, "")
    add($0, reason)
}

is_log && !printing && /^[0-9]+\/[0-9]+ Testing: / {
    test = $0
    sub(/^[0-9]+\/[0-9]+ Testing: /, "", test)
    inner = last = reason = ""
}
is_log && /^Output:$/ { printing = 1; next }
is_log && /^<end of output>$/ {
    printing = in_message = 0
    if (test in reasons && reasons[test] == "") reasons[test] = reason == "" ? last : reason
}
is_log && printing {
    if (/^\[ RUN      \] /) inner = ":" substr($0, 14)
    if (/:[0-9]+: Skipped$/) { in_message = 1; reason = ""; next } # GTEST_SKIP: then its message and an empty line
    if (in_message && (/^$/ || /^\[  SKIPPED \]/)) {
        in_message = 0
        if (!(test in reasons)) add(test inner, reason)
    }
    if (in_message) reason = reason (reason == "" ? "" : " ") $0
    if (/[^ \t-]/) last = $0 # of a script that exits with its SKIP_RETURN_CODE
}

END {
    for (i = 1; i <= count; i++) print names[i] "\t" (reasons[names[i]] == "" ? "no reason given" : reasons[names[i]])
}
