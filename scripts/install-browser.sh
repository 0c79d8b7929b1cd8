#!/usr/bin/env bash
# Makes a chromium available for the browser tests of the report; safe to run again and again.
# Never fails a build: without a browser those tests are skipped.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null 2>&1; then
    exit 0
  fi
done

skip() {
  echo "install-browser: $1; browser tests will be skipped."
  exit 0
}

command -v apt-get >/dev/null 2>&1 || skip "no browser and no apt-get"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  sudo -n true >/dev/null 2>&1 || skip "no browser and no right to install one"
  as_root=(sudo -n)
fi

# ${as_root[@]+...}: an empty array is an unset variable to older bash.
apt() { ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -qq -o=Dpkg::Use-Pty=0 "$@"; }

apt update >/dev/null 2>&1 || skip "apt-get update failed"
apt install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1 || skip "apt-get could not install chromium"
