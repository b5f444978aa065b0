#!/usr/bin/env bash
# Installs the Debian packages that kvpool needs and that are missing, as root or through sudo, and says so.
# Usage: tools/install_packages.sh build|test|all
set -euo pipefail

build_packages=(g++ cmake ninja-build pkg-config git ca-certificates libtbb-dev libboost-dev libssl-dev libxxhash-dev libfmt-dev
                nlohmann-json3-dev libcli11-dev zlib1g-dev openmpi-bin libopenmpi-dev)
test_packages=("${build_packages[@]}" libgtest-dev libgmock-dev libboost-context-dev python3 procps)
all_packages=("${test_packages[@]}" clang lld clang-format clang-tidy libclang-rt-14-dev relacy-dev spin gcc libc6-dev
              g++-12-aarch64-linux-gnu qemu-user)

case "${1:-test}" in
  build) wanted=("${build_packages[@]}") ;;
  test) wanted=("${test_packages[@]}") ;;
  all) wanted=("${all_packages[@]}") ;;
  *) echo "usage: $0 build|test|all" >&2; exit 2 ;;
esac

installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | awk '$1 == "ii" {print $2}')
missing=()
for package in "${wanted[@]}"; do
  grep -qx -- "$package" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "kvpool needs these Debian packages; install them as root: ${missing[*]}" >&2
    exit 3
  }
  as_root=(sudo)
fi
echo "Installing Debian packages: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
