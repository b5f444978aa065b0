#!/usr/bin/env bash
# A short run of every stress workload, two of half the length with suspended threads, and one per sanitizer.
# Usage: tools/test_stress.sh SECONDS_PER_WORKLOAD
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
no_aslr=()
setarch -R true 2>/dev/null && no_aslr=(setarch -R)

for workload in mixed prefix pressure fence; do
  build/dev/stress/kvpool_stress --threads 4 --blocks 512 --seconds "$seconds" --seed "$RANDOM" --workload "$workload"
done
# In a small pool the same block is pinned and given back under fences by several threads at once.
for build in dev tsan; do
  "${no_aslr[@]}" "build/$build/stress/kvpool_stress" --threads 4 --blocks 128 --seconds "$seconds" --seed "$RANDOM" \
    --workload fence
done
for workload in mixed fence; do
  build/dev/stress/kvpool_stress --threads 4 --blocks 512 --seconds "$(((seconds + 1) / 2))" --seed "$RANDOM" \
    --workload "$workload" --stall
done
for sanitized in tsan asan; do
  "${no_aslr[@]}" "build/$sanitized/stress/kvpool_stress" --threads 4 --blocks 128 --seconds "$seconds" --seed "$RANDOM"
done
