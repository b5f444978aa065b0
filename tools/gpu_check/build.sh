#!/usr/bin/env bash
# Builds gpu_check, and gpu_check_nccl where NCCL is found, with nothing but nvcc and its host compiler.
#
#   tools/gpu_check/build.sh FOLDER [ARCH]      FOLDER gets objects and programs; ARCH: sm_90, default that of the device
#   tools/gpu_check/build.sh --sources          lists what is compiled
#
# No CMake, no libraries besides the CUDA runtime (linked statically) and the C++ library. NCCL is looked for in the
# toolkit, in NCCL_HOME and among the Python packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
device=(kernels/cuda/*.cu tools/gpu_check/bandwidth.cu)
host=(
  kernels/{attention_checks,backend,cache_ops,host_memory,merge_attention,paged_attention,view}.cpp
  kernels/reference/reference_attention.cpp
  kernels/cpu/{cpu_attention,host_cache_ops,row_states,thread_work,work_plan,tier_generic}.cpp
  kernels/cuda/{attend_plan,cuda_attention,cuda_cache_ops}.cpp
  src/config/dtype.cpp src/foundation/error.cpp
  multigpu/{cuda_memory_probe,host_memory_probe,memory_ledger,memory_profile,nvml_library}.cpp
  tests/kernels/attention_case.cpp
  tools/gpu_check/{main,report,device_case,attention_checks,cache_checks,launch_checks,decode_shape,bars,memory_step,plain_workers}.cpp)
nccl_only=(multigpu/{nccl_communicator,device_places}.cpp tools/gpu_check/nccl_check.cpp)
if [ "${1:-}" = --sources ]; then
  printf '%s\n' "${device[@]}" "${host[@]}" "${nccl_only[@]}"
  exit 0
fi
folder=${1:?usage: build.sh FOLDER [ARCH]}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

nvcc=""
for candidate in "${CUDA_HOME:-/nonexistent}/bin/nvcc" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
  [ -z "$nvcc" ] && [ -x "$candidate" ] && nvcc=$candidate
done
[ -n "$nvcc" ] || { echo "build.sh: no nvcc in CUDA_HOME, PATH or /usr/local/cuda" >&2; exit 1; }

arch=${2:-}
if [ -z "$arch" ]; then
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d . || true)
  [[ $capability =~ ^[0-9]+$ ]] && arch=sm_$capability || arch=sm_90
fi

nccl_include="" nccl_library=""
packages=$(python3 -c 'import site, sys; print("\n".join(site.getsitepackages() + [site.getusersitepackages()] + sys.path))' 2>/dev/null || true)
while IFS= read -r place; do
  [ -n "$place" ] && [ -f "$place/include/nccl.h" ] || continue
  for library in "$place"/{lib,lib64,lib/x86_64-linux-gnu}/libnccl.so.2; do
    [ -f "$library" ] && [ -z "$nccl_library" ] && nccl_include=$place/include && nccl_library=$library
  done
done < <(printf '%s\n' "${NCCL_HOME:-}" "$(dirname "$(dirname "$nvcc")")" /usr; sed 's|$|/nvidia/nccl|' <<<"$packages")

export folder nvcc arch nccl_include
export flags="-std=c++20 -I. -Iinclude"
launcher=""
command -v ccache >/dev/null && launcher=ccache
export launcher
object() { echo "$folder/$(tr '/' '_' <<<"$1").o"; }
compile() {  # compile SOURCE
  local own="-O2 ${nccl_include:+-I$nccl_include}"
  case $1 in *.cu) own="-O3 -arch=$arch" ;; esac
  $launcher "$nvcc" $own $flags -c "$1" -o "$(object "$1")" || { echo "build.sh: $1 does not compile" >&2; return 1; }
}
export -f object compile

sources=("${device[@]}" "${host[@]}")
[ -n "$nccl_library" ] && sources+=("${nccl_only[@]}")
printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 1 bash -c 'compile "$1"' _

objects=()
for source in "${device[@]}" "${host[@]}"; do objects+=("$(object "$source")"); done
static=(-cudart static -Xcompiler -static-libstdc++,-static-libgcc)
"$nvcc" -arch="$arch" "${static[@]}" "${objects[@]}" -o "$folder/gpu_check" -ldl -lpthread
if [ -n "$nccl_library" ]; then
  objects=()
  for source in "${nccl_only[@]}" multigpu/{cuda_memory_probe,host_memory_probe,nvml_library}.cpp src/foundation/error.cpp \
    tools/gpu_check/report.cpp; do objects+=("$(object "$source")"); done
  "$nvcc" -arch="$arch" "${static[@]}" "${objects[@]}" -o "$folder/gpu_check_nccl" \
    -Xlinker "$nccl_library" -Xlinker -rpath,"$(dirname "$nccl_library")" -ldl -lpthread
else
  echo "build.sh: no NCCL found (nccl.h with libnccl.so.2); its step will be missing"
fi
echo "build.sh: $folder/gpu_check for $arch"
