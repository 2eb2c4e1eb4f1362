#!/bin/bash
# Prepares this clone for building: the system packages, and the configured source of exactly
# the MariaDB server that is installed (the server checks a plugin's version to the patch level,
# and Debian's packages lack the headers of the handler interface).
#
# Everything but the packages stays inside build/. As root missing packages are installed; as
# anybody else the one command that installs them is printed. Ends with build/env, from which
# all other scripts learn the paths. A second run only checks and takes about a second.
# "setup.sh bench" wants the benchmark's packages too, "setup.sh deb" those that make and try Debian packages.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
build=$root/build
series=10.11

say()  { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

case ${1:-} in
    '')        marks=mariadb ;;
    bench|deb) marks="mariadb|$1" ;;
    *)         fail "use: setup.sh [bench|deb]" ;;
esac
# The file's other words at the start of a line are marks.
plain_packages() {
    grep -vE '^(#|mariadb |bench |deb |$)' scripts/packages.txt
    [[ $marks != *deb ]] || sed -n 's/^deb //p' scripts/packages.txt
}
mariadb_packages() { sed -nE "s/^(${marks%|deb}) //p" scripts/packages.txt; }

# Upstream's number in a Debian version: 1:10.11.18-0+deb12u1 -> 10.11.18
upstream() { local v=${1#*:}; printf '%s\n' "${v%%-*}"; }

# Nothing for a package that is not there (dpkg-query calls one that it never heard of an error).
installed_version() {
    { dpkg-query -W -f '${db:Status-Abbrev}${Version}\n' "$1" 2>/dev/null || true; } | sed -n 's/^ii //p'
}

# Every wanted package is there, those of MariaDB all in version $1.
packages_are_complete() {
    local missing
    missing=$(missing_packages "$1")
    [ -z "$missing" ]
}

missing_packages() {
    local p
    for p in $(plain_packages); do
        [ -n "$(installed_version "$p")" ] || printf '%s ' "$p"
    done
    for p in $(mariadb_packages); do
        [ "$(installed_version "$p")" = "$1" ] || printf '%s=%s ' "$p" "$1"
    done
    rust_packages
}

# The oldest Rust that the crates compile with, as in Cargo.toml: 1.$rust_minor.
rust_minor=$(sed -n 's/^rust-version = "1\.\([0-9]*\)"/\1/p' Cargo.toml)

rust_is_recent() {
    local found
    found=$({ cargo --version && rustc --version; } 2>/dev/null | sed -n 's/^[a-z]* 1\.\([0-9]*\)\..*/\1/p' | sort -n | head -1)
    [ "${found:-0}" -ge "$rust_minor" ]
}

# Debian's own rustc is too old for edition 2024; rustc-web is the current one that Debian keeps
# for building browsers. Wanted only where no recent Rust is there.
rust_packages() { rust_is_recent || printf 'cargo-web rustc-web '; }

# apt with lists, cache and sources of its own, so that the user's /etc/apt stays as it is.
private_apt() {
    local tool=$1
    shift
    "$tool" -o Dir::Etc::sourcelist="$build/apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$build/apt/lists" -o Dir::Cache="$build/apt/cache" \
        -o APT::Sandbox::User="$(id -un)" "$@"
}

# The user's Debian archives again, but for sources: taken from where apt finds the packages.
write_source_list() {
    local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$build/apt/lists/partial" "$build/apt/cache/archives/partial"
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(LABEL)' 'Created-By: Packages' |
        awk -v key="$keyring" '/ main Debian/ { print "deb-src [signed-by=" key "] " $1, $2, "main" }' |
        sort -u >"$build/apt/sources.list"
    [ -s "$build/apt/sources.list" ] || fail "apt knows no Debian archive; run 'apt-get update' as root first"
}

# Versions of the series that Debian has both as packages and as source, newest first.
candidate_versions() {
    local v
    apt-cache madison mariadb-server | awk '$NF == "Packages" { print $3 }' >"$build/apt/binary"
    private_apt apt-cache showsrc mariadb | sed -n 's/^Version: //p' >"$build/apt/source"
    sort -u "$build/apt/binary" | while read -r v; do
        [[ $(upstream "$v") == $series.* ]] && grep -qxF "$v" "$build/apt/source" && echo "$v"
    done | sort -rV
}

# An archive may list a source that cannot be had, so only a finished download counts.
download_source() {
    mkdir -p "$build/download"
    (cd "$build/download" &&
        private_apt apt-get -y -qq --download-only source "mariadb=$1" >"$build/download/log" 2>&1)
}

# An installed server that can be built for stays; else the newest one that can be built for.
choose_version() {
    local v installed
    installed=$(installed_version mariadb-server-core)
    for v in $installed $(candidate_versions); do
        if download_source "$v"; then
            [ -z "$installed" ] || [ "$v" = "$installed" ] ||
                fail "to change over: apt-get install --allow-downgrades $(pinned "$v")"
            version=$v
            return
        fi
        say "the source of MariaDB $v cannot be had; trying another version"
    done
    fail "found no MariaDB $series with packages and source (archives: $build/apt/sources.list)"
}

pinned() { local p; for p in $(mariadb_packages); do printf '%s=%s ' "$p" "$1"; done; }

install_packages() {
    local missing
    missing=$(missing_packages "$version")
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        fail "packages are missing. Run this once, then again what you ran:
sudo apt-get install --no-install-recommends $missing"
    fi
    say "installing packages: $missing"
    # A private server is all we need: keep the package from starting one for the whole system.
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    # shellcheck disable=SC2086 -- a list of words on purpose
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing \
        >"$build/packages.log" 2>&1 || { tail -20 "$build/packages.log" >&2; fail "apt-get failed"; }
}

check_rust() {
    rust_is_recent ||
        fail "this needs Rust 1.$rust_minor or newer: Debian's cargo-web and rustc-web, or rustup's"
}

unpack_source() {
    [ -e "$source/.unpacked" ] && return
    say "unpacking the source of MariaDB $version"
    rm -rf "$source"
    dpkg-source --no-check --no-copy --extract --no-preparation \
        "$build/download/mariadb_${version#*:}.dsc" "$source" >"$build/download/log" 2>&1 ||
        { tail "$build/download/log" >&2; fail "cannot unpack the source"; }
    touch "$source/.unpacked"
}

# The options that shape structures (wsrep, performance schema, no debug) are as in debian/rules;
# engines with large dependencies are left out, for only the headers are wanted.
configure_source() {
    [ -e "$source_build/.configured" ] && return
    say "configuring it and generating its headers (a minute or two)"
    rm -rf "$source_build"
    mkdir -p "$source_build"
    local off=() plugin
    for plugin in ROCKSDB MROONGA SPIDER CONNECT S3 OQGRAPH COLUMNSTORE SPHINX AUTH_PAM AUTH_GSSAPI \
        AWS_KEY_MANAGEMENT CRACKLIB_PASSWORD_CHECK HASHICORP_KEY_MANAGEMENT; do
        off+=("-DPLUGIN_$plugin=NO")
    done
    (
        cd "$source_build"
        cmake -G 'Unix Makefiles' "$source" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
            -DBUILD_CONFIG=mysql_release -DDEB=Debian -DINSTALL_LAYOUT=DEB -DWITH_SSL=system \
            -DWITH_PCRE=system -DWITH_ZLIB=system -DWITH_WSREP=ON -DIGNORE_AIO_CHECK=ON \
            -DWITH_UNIT_TESTS=OFF -DCONC_DEFAULT_CHARSET=utf8mb4 "${off[@]}"
        MAKEFLAGS='' make -s -j"$(nproc)" GenError
    ) >"$build/configure.log" 2>&1 || { tail -20 "$build/configure.log" >&2; fail "see build/configure.log"; }
    touch "$source_build/.configured"
}

write_env() {
    cat >"$build/env" <<END
RRD_MARIADB_VERSION=$(upstream "$version")
RRD_MARIADB_PACKAGE=$version
RRD_SOURCE=$source
RRD_SOURCE_BUILD=$source_build
RRD_MARIADBD=/usr/sbin/mariadbd
RRD_MARIADB_INSTALL_DB=/usr/bin/mariadb-install-db
RRD_MARIADB_CLIENT=/usr/bin/mariadb
RRD_SYSTEM_PLUGINS=/usr/lib/mysql/plugin
RRD_SERVICES=$(dpkg -L libmariadb-dev | grep '/libmysqlservices\.a$')
RRD_MTR=/usr/share/mysql/mysql-test
END
}

# Fast path: a finished set-up of this very folder whose packages are still in place.
if [ -e "$build/env" ]; then
    version=$(sed -n 's/^RRD_MARIADB_PACKAGE=//p' "$build/env")
    if [ -n "$version" ] && grep -qxF "RRD_SOURCE=$build/mariadb-$(upstream "$version")" "$build/env" &&
        [ -e "$build/mariadb-$(upstream "$version")-build/.configured" ] && packages_are_complete "$version"; then
        exit 0
    fi
fi

mkdir -p "$build"
command -v apt-get >/dev/null || fail "this needs Debian 12 (apt-get is not there)"
# A fresh container has no lists of packages yet.
[ "$(id -u)" != 0 ] || apt-get -qq update || say "apt-get update failed; going on with the old lists"
write_source_list
private_apt apt-get -qq update
version=
choose_version
say "MariaDB $version has both packages and source"
install_packages
check_rust
source=$build/mariadb-$(upstream "$version")
source_build=$source-build
unpack_source
configure_source
write_env
say "done; paths are in build/env"
