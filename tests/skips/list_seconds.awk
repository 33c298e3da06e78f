# awk -f list_seconds.awk SLOW_LIST LAST_TEST_LOG: the seconds that tests took, by the program that they are in, the ten
# slowest, and those that took longer than the 20 s that a test may take and are not in the list. Tests run side by side,
# so the sum is more than the run took. With -v over_s=N nothing but "NAME SECONDS s" of each that took over N seconds and
# is not in the list.

FILENAME == ARGV[1] {  # the list: a name, in which * stands for anything, and why it takes so long
    if ($0 !~ /^ *(#|$)/) {
        gsub(/\./, "[.]", $1)
        gsub(/\*/, ".*", $1)
        slow["^" $1 "$"] = 1
    }
    next
}

/^[0-9]+\/[0-9]+ Testing: / {
    test = $0
    sub(/^[0-9]+\/[0-9]+ Testing: /, "", test)
    module = ""
}
/^Command: / && module == "" {
    module = test
    sub(/\..*$/, "", module)
    if (match($0, /\/bin\/atoll_[A-Za-z0-9_]+_test"/)) {
        module = substr($0, RSTART + 11, RLENGTH - 12)
        sub(/_test$/, "", module)
    }
}
/^Test time = / {
    if (test == "") next
    tests[++count] = test
    seconds[count] = $4
    total[module] += $4
    sum += $4
    test = ""
}

# The index of the greatest value, or "" if none is above zero.
function greatest(values,    key, best) {
    best = ""
    for (key in values)
        if (values[key] > 0 && (best == "" || values[key] > values[best])) best = key
    return best
}

function is_listed(test,    pattern) {
    for (pattern in slow)
        if (test ~ pattern) return 1
    return 0
}

END {
    if (count == 0) exit
    if (over_s != "") {
        for (key = 1; key <= count; ++key)
            if (seconds[key] > over_s && !is_listed(tests[key])) printf "%s %.1f s\n", tests[key], seconds[key]
        exit
    }
    printf "\n%d s of tests, by module:", sum
    line = ""
    for (module = greatest(total); module != "" && total[module] >= 1; module = greatest(total)) {
        item = sprintf(" %s %d,", module, total[module])
        if (length(line) + length(item) > 110) { print line; line = "   " }
        line = line item
        delete total[module]
    }
    sub(/,$/, "", line)
    print line
    print "the ten slowest:"
    for (i = 0; i < 10; ++i) {
        key = greatest(seconds)
        if (key == "") break
        printf "  %6.1f s  %s\n", seconds[key], tests[key]
        if (seconds[key] > 20 && !is_listed(tests[key])) unlisted = unlisted sprintf("  %6.1f s  %s\n", seconds[key], tests[key])
        delete seconds[key]
    }
    for (key in seconds)
        if (seconds[key] > 20 && !is_listed(tests[key])) unlisted = unlisted sprintf("  %6.1f s  %s\n", seconds[key], tests[key])
    if (unlisted != "") printf "over 20 s and not in tests/skips/slow.txt (make them shorter or LONG, or say why):\n%s", unlisted
}
