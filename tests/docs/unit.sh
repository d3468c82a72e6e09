#!/bin/bash
# unit.sh UNIT PSD: systemd finds nothing wrong with the unit. Skipped where there is no systemd-analyze.
set -eu
command -v systemd-analyze >/dev/null || { echo "no systemd-analyze here"; exit 77; }
psd=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
grep -qF 'ExecStart=/usr/local/bin/psd ' "$1"
# What it names is not installed here.
sed -e "s|^ExecStart=/usr/local/bin/psd |ExecStart=$psd |" -e '/^Documentation=/d' "$1" >"$folder/psd.service"
said=$(systemd-analyze verify "$folder/psd.service" 2>&1)
[[ -z $said ]] || { echo "$said"; exit 1; }
