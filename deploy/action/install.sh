#!/usr/bin/env bash
# Installs release VERSION of fastadmit for the steps of a job that follow. action.yml runs it. It downloads the binary from
# RELEASES, and compares it with the release's SHA256SUMS, and that with CHECKSUM if it is set. It runs in bash 3.2, as macOS has it.
set -euo pipefail

fail() {
	echo "::error title=fastadmit::$*"
	exit 1
}

# shown keeps words of the workflow from being commands of GitHub.
shown() { printf '"%s"' "${1//[^0-9A-Za-z.:\/+_-]/?}"; }

version='^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$'
[[ $VERSION =~ $version ]] || fail "version: got $(shown "$VERSION"), want that of a release, without v, such as 1.2.3"
case $(uname -s) in
Linux) os=linux suffix='' ;;
Darwin) os=darwin suffix='' ;;
MINGW* | MSYS*) os=windows suffix=.exe ;;
*) fail "got the system $(shown "$(uname -s)"), want Linux, macOS or Windows" ;;
esac
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "got the processor $(shown "$(uname -m)"), want amd64 or arm64" ;;
esac
file=fastadmit-$os-$arch$suffix
folder=$RUNNER_TEMP/fastadmit-$VERSION
mkdir -p "$folder/bin"

download() {
	curl --fail --silent --show-error --location --proto-redir =https --retry 3 --output "$2" "$RELEASES/v$VERSION/$1" ||
		fail "cannot download $1 of release $VERSION from $(shown "$RELEASES")"
}
sum() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi <"$1" | cut -d ' ' -f 1; }

download SHA256SUMS "$folder/SHA256SUMS"
got=$(sum "$folder/SHA256SUMS")
[[ -z $CHECKSUM || $got == "$CHECKSUM" ]] ||
	fail "checksum: got SHA256SUMS with $got, want $(shown "$CHECKSUM"): the release is not the one that you verified"
want=$(awk -v file="$file" '$2 == file {print $1; exit}' "$folder/SHA256SUMS")
[[ -n $want ]] || fail "release $VERSION has no $file"
program=$folder/bin/fastadmit$suffix
download "$file" "$program"
got=$(sum "$program")
if [[ $got != "$want" ]]; then
	rm "$program"
	fail "got $file with $got, want $want of SHA256SUMS"
fi
chmod +x "$program"
echo "$folder/bin" >>"$GITHUB_PATH"
