#!/usr/bin/env bash
# Gives the browser tests a Chromium where that is possible. Prints one line; never fails the build:
# without a browser those tests are skipped, and say so.
set -u

find_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

if found=$(find_chromium); then
    echo "Browser tests: using $found"
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "Browser tests: skipped, no Chromium here (on Debian: apt-get install chromium, as root)"
    exit 0
fi
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
if apt-get update >"$log" 2>&1 &&
    apt-get install -y --no-install-recommends chromium fonts-liberation >>"$log" 2>&1 &&
    found=$(find_chromium); then
    echo "Browser tests: installed $found"
    rm -f "$log"
else
    echo "Browser tests: skipped, Chromium could not be installed (log: $log)"
fi
exit 0
