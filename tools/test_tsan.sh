#!/usr/bin/env bash
# ThreadSanitizer over the unit tests, everything that runs more than one thread, and the stress program. A clean
# run counts only if the same build reports a race that is really there, so the canary comes first.
# Usage: tools/test_tsan.sh PRESET [SECONDS_OF_STRESS]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-tsan}
seconds=${2:-5}

launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake --preset "$preset" "${launcher[@]}" | tail -n 4
cmake --build --preset "$preset" -j "$(nproc)" --target checks_concurrency checks_unit race_canary kvpool_stress | tail -n 3

# Address-space randomisation with many bits breaks TSan's shadow layout on some kernels.
no_aslr=()
setarch -R true 2>/dev/null && no_aslr=(setarch -R)

report=$("${no_aslr[@]}" "build/$preset/tests/canary/race_canary" 2>&1 || true)
if ! grep -q "WARNING: ThreadSanitizer: data race" <<<"$report" || ! grep -q "race_canary.cpp" <<<"$report"; then
  echo "the canary's race was not reported: this build proves nothing" >&2
  echo "$report" >&2
  exit 1
fi
echo "canary: the planted race was reported"
"${no_aslr[@]}" ctest --preset "$preset" --no-tests=error -L 'concurrency|unit'
"${no_aslr[@]}" "build/$preset/stress/kvpool_stress" --threads 4 --blocks 128 --seconds "$seconds" --seed "$RANDOM"
