#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/check_symbols.sh FILE.so...
# What a shared object of ours shows to the process that loads it: kvguard_* (libkvguard) or PyInit_* (the extension module),
# nothing else, and no C++ runtime of the process is needed. The last line says how many files passed and failed.

set -euo pipefail
[ $# -gt 0 ] || { echo "usage: scripts/check_symbols.sh FILE.so..." >&2; exit 64; }

passed=0
failed=0
for file in "$@"; do
  problems=""
  case ${file##*/} in
    libkvguard.so*) allowed='^kvguard_[a-z0-9_]+$' ;;
    _core*.so) allowed='^PyInit_[A-Za-z0-9_]+$' ;;
    *) allowed='^(kvguard_[a-z0-9_]+|PyInit_[A-Za-z0-9_]+)$' ;;
  esac
  if ! listing=$(nm -D --defined-only --format=posix "$file" 2>&1); then
    problems="cannot be read: $listing"
  else
    symbols=$(awk '$2 != "A" { print $1 }' <<<"$listing" | sed 's/@.*//')
    foreign=$(grep -Ev "$allowed" <<<"$symbols" | grep -v '^$' || true)
    [ -z "$foreign" ] || problems+="exports $(wc -l <<<"$foreign") symbols that are not ours: $(head -n 5 <<<"$foreign" | c++filt | paste -sd' ')"$'\n'
    grep -Eq "$allowed" <<<"$symbols" || problems+="exports none of the symbols that it should ($allowed)"$'\n'
    # u: unique in the whole process, however hidden a library tries to be.
    unique=$(awk '$2 == "u" { print $1 }' <<<"$listing" | head -n 3 | c++filt | paste -sd' ')
    [ -z "$unique" ] || problems+="exports process-wide unique symbols: $unique"$'\n'
    needed=$(objdump -p "$file" | awk '$1 == "NEEDED" { print $2 }' | grep -E 'stdc\+\+|libgcc_s|libzstd|libfmt|libflatbuffers' || true)
    [ -z "$needed" ] || problems+="needs $(paste -sd' ' <<<"$needed"), which must be inside"$'\n'
  fi
  if [ -n "$problems" ]; then
    failed=$((failed + 1))
    printf '%s: %s\n' "$file" "${problems%$'\n'}"
  else
    passed=$((passed + 1))
    printf '%s: %s symbols, all ours\n' "$file" "$(wc -l <<<"$symbols")"
  fi
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
