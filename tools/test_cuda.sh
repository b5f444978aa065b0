#!/usr/bin/env bash
# Compiles and links the CUDA parts with nvcc. Without a toolkit there is nothing to compile and the step says so;
# a toolkit that is there and fails is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

nvcc=""
if [ -n "${CUDA_HOME:-}" ] && [ -x "$CUDA_HOME/bin/nvcc" ]; then
  nvcc=$CUDA_HOME/bin/nvcc
elif command -v nvcc >/dev/null; then
  nvcc=$(command -v nvcc)
elif [ -x /usr/local/cuda/bin/nvcc ]; then
  nvcc=/usr/local/cuda/bin/nvcc
fi
if [ -z "$nvcc" ]; then
  echo "nvcc: not run (no CUDA toolkit found in CUDA_HOME, PATH or /usr/local/cuda)"
  exit 0
fi
"$nvcc" --version | tail -n 2
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
nccl=OFF
for folder in "$(dirname "$nvcc")/../include" /usr/include "${NCCL_HOME:-/nonexistent}/include"; do
  [ -f "$folder/nccl.h" ] && nccl=ON
done
[ "$nccl" = ON ] || echo "NCCL: not compiled (no nccl.h found)"
cmake --preset cuda "${launcher[@]}" -DCMAKE_CUDA_COMPILER="$nvcc" -DKVPOOL_WITH_NCCL=$nccl | tail -n 4
cmake --build --preset cuda -j "$(nproc)" --target kvpool_kernels kvpool_multigpu kvpool_multigpu_test kvpool_launch | tail -n 3
ctest --preset cuda --no-tests=error -L cuda                    # no device kernel spills registers
ctest --preset cuda --no-tests=error -R 'kvpool_multigpu_test.Devices'  # without a driver everybody is refused at once

# The check for machines with a GPU builds without CMake and says that there is no device; with one it has its own run.
check=build/cuda/gpu_check
tools/gpu_check/build.sh "$check" sm_90
mkdir -p "$check/out"
for program in gpu_check gpu_check_nccl; do
  [ -x "$check/$program" ] || continue
  status=0
  said=$("$check/$program" smoke --out "$check/out") || status=$?
  if [ "$status" != 0 ] && { [ "$status" != 3 ] || [[ $said != *"no device"* ]]; }; then
    echo "$program: status $status: $said" >&2
    exit 1
  fi
  echo "$program: $(tail -n 1 <<<"$said")"
done
# What it is compiled from includes no library that a bare machine lacks.
if grep -lE '#include <(tbb|oneapi|boost|mpi|gtest|openssl|xxhash|nlohmann|fmt|CLI)' $(tools/gpu_check/build.sh --sources); then
  echo "gpu_check must compile without these libraries" >&2
  exit 1
fi
