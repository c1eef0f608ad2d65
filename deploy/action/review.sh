#!/usr/bin/env bash
# Runs fastadmit review with ARGS. action.yml runs it, after install.sh. Findings are annotations of GitHub, unless ARGS has
# another -o. --strict makes a policy that can deny nothing a failure, unless ARGS has --strict=false. Words of ARGS are no patterns of
# file names.
set -euf
# shellcheck disable=SC2086 # Words are arguments.
exec fastadmit review -o github --strict $ARGS
