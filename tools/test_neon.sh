#!/usr/bin/env bash
# Compiles the kernels for 64-bit Arm with Debian's cross compiler and runs their tests under qemu: the tier "neon" and
# the number formats. Without the cross compiler there is nothing to compile with, and the step says so; without qemu it
# stops after linking.
# Usage: tools/test_neon.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."

compiler=""
for candidate in aarch64-linux-gnu-g++ aarch64-linux-gnu-g++-12; do
  [ -z "$compiler" ] && compiler=$(command -v "$candidate" || true)
done
if [ -z "$compiler" ]; then
  echo "neon: not compiled (no aarch64-linux-gnu-g++)"
  exit 0
fi
export folder=${1:-build/neon}
mkdir -p "$folder"

googletest=/usr/src/googletest/googletest
sources=(kernels/{attention_checks,backend,cache_ops,cascade_attention,host_memory,latent_rows,merge_attention,paged_attention,view}.cpp
  kernels/reference/reference_attention.cpp kernels/cuda/without_cuda.cpp src/foundation/error.cpp src/config/dtype.cpp
  kernels/cpu/{cpu_attention,host_cache_ops,row_states,thread_work,work_plan,tier_generic,tier_neon}.cpp
  tools/gpu_check/plain_workers.cpp  # oneTBB is not there for the target
  tests/kernels/{attention_case,cache_ops_test,cpu_attention_test,latent_rows_test,number_formats_test,traps_test}.cpp
  "$googletest/src/gtest-all.cc" "$googletest/src/gtest_main.cc")

export compiler launcher=""
command -v ccache >/dev/null && launcher=ccache
export flags="-std=c++20 -O1 -DNDEBUG -DKVPOOL_NEON_TIER=1 -I. -Iinclude -isystem $googletest/include -isystem $googletest"
export warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wundef -Werror"
object() { echo "$folder/$(tr '/' '_' <<<"$1").o"; }
compile() {  # compile SOURCE
  local own=""
  case $1 in
    *gtest*) ;;
    *tier_*) own="$warnings -O3" ;;
    *) own=$warnings ;;
  esac
  $launcher "$compiler" $flags $own -c "$1" -o "$(object "$1")" || { echo "neon: $1 does not compile" >&2; return 1; }
}
export -f object compile
printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 1 bash -c 'compile "$1"' _
objects=()
for source in "${sources[@]}"; do objects+=("$(object "$source")"); done
"$compiler" "${objects[@]}" -o "$folder/kernels" -lpthread
echo "neon: compiled and linked"

qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
if [ -z "$qemu" ]; then
  echo "neon: not run (no qemu-aarch64)"
  exit 0
fi
"$qemu" -L /usr/aarch64-linux-gnu "$folder/kernels" --gtest_brief=1 --gtest_filter='*/neon:Tiers.*:Append.*:Decode.*:Encode.*'
