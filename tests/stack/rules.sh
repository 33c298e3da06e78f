#!/bin/bash
# rules.sh: the rules of compose/observe by promtool: their syntax and their unit tests; each recorded series is tested, and
# asked for by a dashboard; each alert has a page in
# docs/operate/alerts that says what it means, what to look at and what to do, a test in which it fires and one in which it is
# quiet, and asks only for metrics that docs/reference/metrics.md describes. Exit 77: promtool is not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v promtool >/dev/null || { echo "promtool is not installed (Debian: prometheus)"; exit 77; }
status=0
fault() { printf '%s\n' "$*" >&2; status=1; }

promtool check rules compose/observe/alerts.yaml || status=1
(cd compose/observe && promtool test rules alerts_test.yaml) || status=1

# parts PAGE: which it has, in order.
parts() {
    awk -v RS= '/^# /{print "heading"; next} /^\*\*Look at\*\*: ./{print "look"; next} /^\*\*Do\*\*: ./{print "do"; next}
        NR == 2 && /^[A-Z]/{print "meaning"}' "$1" | paste -sd' '
}

alerts=$(sed -n 's/^ *- alert: //p' compose/observe/alerts.yaml)
for alert in $alerts; do
    page=docs/operate/alerts/$alert.md
    [ -s "$page" ] || fault "$alert has no page $page"
    [ "$(parts "$page")" = "heading meaning look do" ] ||
        fault "$page must have a heading, what it means, **Look at**: and **Do**:; it has: $(parts "$page")"
    grep -qxF "          runbook: $page" compose/observe/alerts.yaml || fault "$alert does not name its page"
    for way in fires "is quiet"; do
        grep -qxF "  - name: $alert $way" compose/observe/alerts_test.yaml || fault "no test in which $alert $way"
    done
    ! grep -A4 -F -- "- alert: $alert" compose/observe/alerts.yaml | grep -q ' for: ' ||
        grep -qxF "  - name: $alert waits for its time" compose/observe/alerts_test.yaml || fault "no test in which $alert waits for its time"
done
for page in docs/operate/alerts/*.md; do
    [ "$page" = docs/operate/alerts/README.md ] || grep -qxF "$(basename "$page" .md)" <<<"$alerts" || fault "$page belongs to no alert"
done
for record in $(sed -n 's/^ *- record: //p' compose/observe/alerts.yaml); do
    grep -qE -- "- expr: .*$record" compose/observe/alerts_test.yaml || fault "$record has no test"
    grep -qF "$record" compose/observe/dashboards/*.json || fault "no dashboard asks for $record"
done
for metric in $(sed -n 's/^ *expr: //p' compose/observe/alerts.yaml | grep -oE '(^|[^:a-z0-9_])atoll_[a-z0-9_]+' |
    grep -oE 'atoll_.*' | sed -E 's/_(bucket|sum|count)$//' | sort -u); do
    grep -qF "| \`$metric\` |" docs/reference/metrics.md || fault "an alert asks for $metric, which nobody serves"
done
exit $status
