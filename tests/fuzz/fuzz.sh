#!/usr/bin/env bash
# Sends requests made from the four OpenAPI documents, right and wrong ones, through the gateway of a running stack:
#   tests/fuzz/fuzz.sh STATE [SERVICE…]        (STATE as of `atoll up --state`; schemathesis is in PATH)
# It fails for an answer of 5xx, one that its document does not describe, wrong input that is accepted, a method that is
# not refused with 405 and Allow, and a route that works without a token. ATOLL_FUZZ_EXAMPLES says how many requests an
# operation gets in each phase, ATOLL_FUZZ_SEED which.
# It calls as an operator, who makes datasets, models and jobs but cannot say what runs here, and as an admin where nobody
# else may: tokens, pruning, and facilities with wrong requests alone, since a right one says what runs here.
set -euo pipefail
state=$(realpath "$1")
shift
services=("$@")
((${#services[@]} > 0)) || services=(registry store dispatch aggregation)
gateway=$(sed -n 's/^ *"gateway": "\(http[^"]*\)".*/\1/p' "$state/stack.json")
[ -n "$gateway" ] || { echo "fuzz: no gateway in $state/stack.json" >&2; exit 2; }
seed=${ATOLL_FUZZ_SEED:-$((RANDOM * 32768 + RANDOM))}
echo "seed $seed (ATOLL_FUZZ_SEED=$seed repeats it)"
checks=not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance
checks+=,response_schema_conformance,negative_data_rejection,missing_required_header,unsupported_method,ignored_auth
failed=()
cd "$state"  # schemathesis leaves a folder where it runs

# run_requests SERVICE ROLE [OPTIONS…]
run_requests() {
    local service=$1 role=$2
    shift 2
    echo "== $service, called as $role"
    schemathesis run "$gateway/$service/openapi.json" --url "$gateway/$service" \
        --header "Authorization: Bearer $(cat "$state/tokens/$role.token")" \
        --phases examples,coverage,fuzzing,stateful --checks "$checks" --max-examples "${ATOLL_FUZZ_EXAMPLES:-30}" \
        --seed "$seed" --continue-on-failure --no-color --request-timeout 60 --generation-database none \
        --suppress-health-check all "$@" || failed+=("$service as $role")
}

for service in "${services[@]}"; do
    run_requests "$service" operator
    [ "$service" = dispatch ] || continue
    run_requests dispatch admin --include-path-regex '^/v1/(tokens|prune)'
    run_requests dispatch admin --include-path-regex '^/v1/facilities(/\{name\})?(/login)?$' --mode negative
done
((${#failed[@]} == 0)) || { echo "fuzz: see above: ${failed[*]}" >&2; exit 1; }
