#!/usr/bin/env bash
# The main job, from nothing: installs missing Debian packages, builds, and runs two MPI ranks with four scheduler
# threads over a slice of a real conversation trace; attention is verified against double precision.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/install_packages.sh build
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
# The demo runs on the CPU backend, so it does not wait for nvcc where there is one.
cmake --preset release -B build/demo -DKVPOOL_WITH_CUDA=OFF "${launcher[@]}" | tail -n 4
cmake --build build/demo -j "$(nproc)" --target kvpool | tail -n 1

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
command=(mpirun -n 2 --oversubscribe build/demo/bin/kvpool launch
         --trace tests/data/traces/mooncake-conversation.kvt.gz --first 1500 --tokens-per-id 8
         --schedulers 4 --backend cpu --verify 8)
echo "+ ${command[*]}"
exec "${command[@]}"
