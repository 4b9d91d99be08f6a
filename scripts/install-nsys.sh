#!/bin/sh
# Puts NVIDIA Nsight Systems (nsys) under .nsys/ of this repository, from the Debian or Ubuntu mirror this machine already
# uses. Needs no root and changes nothing of the system: package lists, downloads and temporary files are its own.
#   sh scripts/install-nsys.sh [--force] [DIRECTORY]     --force: also when an nsys is there already
# Exit code 0: an nsys is there. 1: not possible here, with one line that says why and what to do.
set -eu
cd "$(dirname "$0")/.."

force=no
[ "${1:-}" != --force ] || { force=yes; shift; }
root=${1:-.nsys}
# The package sits in the component that is not free software: `non-free` in Debian, `multiverse` in Ubuntu.
packages="nsight-systems nsight-systems-target"
elsewhere="get it from https://developer.nvidia.com/nsight-systems and put it on PATH, or name it in PERFCI_NSYS"

fail() {
    echo "nsys not installed: $1. Do: ${2:-$elsewhere}." >&2
    exit 1
}

works() { [ -x "$1" ] && "$1" --version >/dev/null 2>&1; }

installed() {
    for candidate in "$root"/*/target-linux-x64/nsys; do
        if works "$candidate"; then echo "$candidate" && return 0; fi
    done
    return 1
}

if [ "$force" = no ]; then
    for candidate in "${PERFCI_NSYS:-}" "$(command -v nsys || true)"; do
        if [ -n "$candidate" ] && works "$candidate"; then
            echo "nsys is there: $candidate ($("$candidate" --version | tail -n 1))"
            exit 0
        fi
    done
    if found=$(installed); then
        echo "nsys is there: $found"
        exit 0
    fi
fi

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "this script knows Linux on x86-64 only, seen $(uname -s) on $(uname -m)"
for tool in apt-get dpkg-deb ldd awk; do
    command -v $tool >/dev/null || fail "$tool is missing, so this is not a Debian or Ubuntu machine"
done
# shellcheck source=/dev/null
. /etc/os-release
case "${ID:-}" in
debian) component=non-free ;;
ubuntu) component=multiverse ;;
*) fail "packages of ${ID:-this system} are not known to this script" ;;
esac

work=$(mktemp -d "${TMPDIR:-/tmp}/perfci-nsys.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$work/sources" "$work/lists/partial" "$work/cache/archives/partial" "$work/debs" "$work/tree"
chmod -R a+rX "$work"

# The configured mirror, whatever of its components is enabled: "URI suite keyring" for the release of this machine.
configured_mirrors() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | awk -v suite="$VERSION_CODENAME" '
        $1 == "deb" {
            key = ""; at = 2
            if ($2 ~ /^\[/) {
                while (at <= NF) {
                    word = $at; gsub(/[][]/, "", word)
                    if (word ~ /^signed-by=/) key = substr(word, 11)
                    if ($at ~ /\]$/) break
                    at++
                }
                at++
            }
            if ($(at + 1) == suite) print $at, $(at + 1), key
        }'
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -r "$file" ] || continue
        awk -v suite="$VERSION_CODENAME" '
            function flush(  n, m, i, j, uri, each) {
                n = split(uris, uri, " "); m = split(suites, each, " ")
                if (binary && enabled) for (i = 1; i <= n; i++) for (j = 1; j <= m; j++) if (each[j] == suite) print uri[i], suite, key
                uris = suites = key = ""; binary = 0; enabled = 1
            }
            BEGIN { enabled = 1 }
            /^[ \t]*$/ { flush() }
            tolower($1) == "types:" { binary = / deb( |$)/ }
            tolower($1) == "enabled:" { enabled = tolower($2) != "no" }
            tolower($1) == "uris:" { sub(/^[^:]*:[ \t]*/, ""); uris = $0 }
            tolower($1) == "suites:" { sub(/^[^:]*:[ \t]*/, ""); suites = $0 }
            tolower($1) == "signed-by:" { if ($2 ~ /^\//) key = $2 }
            END { flush() }' "$file"
    done
}

mirrors=$(configured_mirrors | sort -u)
[ -n "$mirrors" ] || fail "no package mirror for $VERSION_CODENAME is configured in /etc/apt"

own_apt() {
    apt-get -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/sources" \
        -o Dir::State::Lists="$work/lists" -o Dir::State::Status=/dev/null -o Dir::Cache="$work/cache" \
        -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 -o Acquire::Retries=3 -qq "$@"
}

# Lists of the given components, from the first mirror that has them.
update_lists() {
    echo "$mirrors" | while read -r uri suite key; do
        echo "deb ${key:+[signed-by=$key] }$uri $suite $*"
    done >"$work/sources/perfci.list"
    own_apt update >"$work/update.log" 2>&1 || true
}

download() { (cd "$work/debs" && own_apt download "$@") >"$work/download.log" 2>&1; }

update_lists "$component"
# shellcheck disable=SC2086  # two package names
if ! download $packages; then
    fail "the configured mirror offers no $packages in component $component ($(tail -n 1 "$work/download.log"))"
fi
for deb in "$work"/debs/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/tree" --exclude='*libQt6WebEngine*' --exclude='*/translations' \
        --exclude='*qtwebengine*' --exclude='./usr/share' || fail "unpacking failed; is the disk full?" "make room in $work and try again"
done

version=$(dpkg-deb -f "$work"/debs/nsight-systems_*.deb Version | sed 's/[^0-9.].*//')
unpacked=$work/nsight-systems-$version
mkdir "$unpacked"
mv "$work"/tree/usr/lib/*/nsight-systems/target-linux-x64 "$unpacked/target-linux-x64"
mv "$work/tree/usr/lib/nsight-systems/host-linux-x64" "$unpacked/host-linux-x64"
host=$unpacked/host-linux-x64

# What the user interface alone needs (Qt and its data) is left out; nsys itself never loads it.
rm -rf "$host"/libQt6* "$host"/libNvQtGui* "$host"/libQtPropertyBrowser* "$host"/libTimeline*UI* "$host"/libTimelineWidget* \
    "$host"/nsys-ui* "$host"/CrashReporter "$host/resources" "$host/libexec"
find "$host/Plugins" -mindepth 1 -maxdepth 1 ! -name CorePlugin -exec rm -rf {} +

# `nsys stats` looks for its Python modules beside the target.
if ! [ -e "$unpacked/target-linux-x64/python/lib/nsysstats.py" ]; then
    mkdir -p "$unpacked/target-linux-x64/python/lib"
    cp "$work"/tree/usr/lib/python3/dist-packages/*.py "$unpacked/target-linux-x64/python/lib/"
fi

# System libraries: the system's own when it has them, else unpacked beside nsys, where its run path looks first.
system_library() { /sbin/ldconfig -p | awk -v name="$1" '$1 == name && /x86-64/ { print $NF; exit }'; }
rm -f "$host/libssh.so"
wanted=""
for pair in libssh.so.4:libssh-4 libpfm.so.4:libpfm4 libgssapi_krb5.so.2:libgssapi-krb5-2 libkrb5.so.3:libkrb5-3 \
    libk5crypto.so.3:libk5crypto3 libkrb5support.so.0:libkrb5support0 libcom_err.so.2:libcom-err2 libkeyutils.so.1:libkeyutils1; do
    [ -n "$(system_library "${pair%%:*}")" ] || wanted="$wanted ${pair##*:}"
done
if [ -n "$wanted" ]; then
    update_lists main
    rm -f "$work"/debs/*.deb
    # shellcheck disable=SC2086  # a list of package names
    download $wanted || fail "the mirror gave no$wanted ($(tail -n 1 "$work/download.log"))" "apt-get install$wanted"
    for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/libraries"; done
    find "$work/libraries" -name 'lib*.so*' -exec cp -P {} "$host/" \;
fi
ssh_library=$(system_library libssh.so.4)
if [ -e "$host/libssh.so.4" ]; then ssh_library=libssh.so.4; fi
ln -s "$ssh_library" "$host/libssh.so"
missing=$(ldd "$host/QdstrmImporter" "$unpacked/target-linux-x64/nsys" | awk '/not found/ { print $1 }' | sort -u | tr '\n' ' ')
[ -z "$missing" ] || fail "libraries that nsys needs are missing: $missing" "install the packages that hold them and try again"

# Proof before use: a recording of one short program, through the importer and the exporter.
nsys=$unpacked/target-linux-x64/nsys
prove() { env TMPDIR="$work" "$nsys" "$@" >"$work/prove.log" 2>&1 || fail "it was unpacked but does not work here ($(tail -n 1 "$work/prove.log"))"; }
prove profile --trace=nvtx --sample=none --cpuctxsw=none --output="$work/proof" sleep 0.1
prove export --type=sqlite --output="$work/proof.sqlite" "$work/proof.nsys-rep"

mkdir -p "$root" || fail "$root cannot be written" "run it as the owner of this folder"
rm -rf "${root:?}/nsight-systems-$version"
mv "$unpacked" "$root/nsight-systems-$version"
echo "nsys is installed: $root/nsight-systems-$version/target-linux-x64/nsys"
