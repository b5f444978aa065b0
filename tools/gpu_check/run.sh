#!/usr/bin/env bash
# The whole check on a machine with one GPU, a CUDA toolkit and, for one step, PyTorch: correctness, sanitizers, bars, memory, NCCL.
#
#   tools/gpu_check/run.sh [OUT [BUILD]]
#
# OUT (default gpu_check_out) gets five files: table.txt, results.json, log.txt, machine.txt and ncu.csv. BUILD (default
# build/gpu_check of the tree) gets objects, programs and the rows of each step; a program that is there and runs on this machine is
# used as it is. Where a sandbox lets no tool look into a process, the sanitizer's steps and ncu say so and are no failures.
# Every step has a time-out of its own and a step that fails does not stop the others; all of them together end
# within 8 minutes. Nothing is changed on the machine: no clocks, no persistence mode, no MIG. The table comes last.
# Exit status: 0 all right, 1 something is wrong, 3 no device (the programs are built all the same).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-gpu_check_out}
build=${2:-$here/../../build/gpu_check}
mkdir -p "$out" "$build/rows" && out=$(cd "$out" && pwd) && build=$(cd "$build" && pwd)
rows=$build/rows
rm -f "$rows"/* "$out"/{table.txt,results.json,ncu.csv}
program=$build/gpu_check
log=$out/log.txt
: >"$log"
began=$SECONDS
wrong=0

row() { printf '%s\t%s\t%s\t%s\t\t\t%s\t%s\n' "$1" "$2" "${3:-}" "${4:-}" "${5:-info}" "${6:-}" >>"$rows/$1.tsv"; }

step() {  # step NAME SECONDS COMMAND...: output to the log; a failure is a row
  local name=$1 limit=$2 from=$SECONDS status=0; shift 2
  echo "== $name (at most $limit s)" | tee -a "$log"
  timeout --kill-after=5 "$limit" "$@" >>"$log" 2>&1 || status=$?
  local what="status $status"
  [ "$status" = 124 ] || [ "$status" = 137 ] && what="cut off after $limit s"
  if [ "$status" != 0 ]; then
    wrong=1
    row "$name" "step" "" "" FAILED "$what, see log.txt"
  fi
  row "$name" "time of the step" "$((SECONDS - from))" s
  return "$status"
}

# sanitize TOOL: compute-sanitizer over a few cases. It has found something, or it could not even attach.
sanitize() {
  local said=$build/$1.txt status=0 from=$SECONDS
  echo "== $1 (at most 25 s)" | tee -a "$log"
  timeout --kill-after=5 25 "$sanitizer" --tool "$1" --error-exitcode 1 "$program" few --out "$rows" >"$said" 2>&1 || status=$?
  cat "$said" >>"$log"
  if [ "$status" = 124 ] || [ "$status" = 137 ] || grep -q 'ERROR SUMMARY: [1-9]' "$said" || grep -q FAILED "$said"; then
    wrong=1
    row "$1" "compute-sanitizer" "" "" FAILED "status $status, see log.txt"
  elif grep -q 'ERROR SUMMARY: 0' "$said"; then
    row "$1" "compute-sanitizer" "" "" ok
  else
    row "$1" "compute-sanitizer" "not allowed here" "" info "status $status, see log.txt"
  fi
  row "$1" "time of the step" "$((SECONDS - from))" s
}

environment() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem --format=csv || true
  nvcc --version || "${CUDA_HOME:-/usr/local/cuda}"/bin/nvcc --version || true
  uname -a
  nproc
  python3 -c 'import torch; print("PyTorch", torch.__version__, "CUDA", torch.version.cuda, "NCCL", torch.cuda.nccl.version())' ||
    echo "no PyTorch"
  ldconfig -p | grep libnccl || echo "no NCCL among the system's libraries"
}

environment >"$out/machine.txt" 2>&1 &  # importing PyTorch takes a while; its answer is not waited for here
smoke() { timeout --kill-after=5 20 "$program" smoke --out "$rows" >>"$log" 2>&1; }
if [ -x "$program" ] && smoke; then
  row build "built ahead of time" "$program"
else
  rm -f "$rows"/smoke.tsv
  step build 100 "$here/build.sh" "$build" || { tail -n 20 "$log"; exit 1; }
  smoke
  case $? in
    0) ;;
    3) "$program" smoke --out "$rows"; [ -x "$build/gpu_check_nccl" ] && "$build/gpu_check_nccl" --out "$rows"; exit 3 ;;
    *) wrong=1 ;;
  esac
fi

step correctness 70 "$program" correctness --out "$rows"
sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer 2>/dev/null || true)
for tool in memcheck racecheck synccheck; do
  if [ -n "$sanitizer" ]; then
    sanitize "$tool"
  else
    row "$tool" "compute-sanitizer" "not found"
  fi
done
step bars 85 "$program" bars --out "$rows"
if python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; then
  step peer 40 python3 "$here/torch_peer.py" "$rows"
else
  row peer "PyTorch" "not found"
fi
step memory 30 "$program" memory --out "$rows"
profiler=$(command -v ncu || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/ncu 2>/dev/null || true)
if [ -n "$profiler" ]; then
  timeout --kill-after=5 30 "$profiler" --clock-control none --kernel-name 'regex:attend|merge' --csv \
    --metrics dram__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread,sm__warps_active.avg.pct_of_peak_sustained_active \
    "$program" profile >"$out/ncu.csv" 2>>"$log" && row ncu "ncu" "ncu.csv" || row ncu "ncu" "not allowed here" "" info "see log.txt"
else
  row ncu "ncu" "not found"
fi
if [ -x "$build/gpu_check_nccl" ]; then
  step nccl 20 "$build/gpu_check_nccl" --out "$rows"
else
  row nccl "NCCL" "not found"
fi
row total "time of the whole check" "$((SECONDS - began))" s

cat "$out/machine.txt"
"$program" results --out "$rows" >"$out/table.txt" || wrong=1
mv "$rows/results.json" "$out"
cat "$out/table.txt"
exit "$wrong"
