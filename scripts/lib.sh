# shellcheck shell=bash disable=SC2154
# lib.sh: functions shared by the scripts of this folder. Sourced, never run.

# Debian 12 names.
PACKAGES=(
    gcc libc6-dev meson ninja-build pkg-config
    libzmq3-dev libprotobuf-c-dev protobuf-c-compiler libuv1-dev libyaml-dev libmicrohttpd-dev
    libjansson-dev libxxhash-dev libcurl4-openssl-dev libhwloc-dev libdnnl-dev zlib1g-dev
    libjpeg62-turbo-dev libturbojpeg0-dev libpng-dev
    libncurses-dev scdoc
    check jq gnuplot-nox python3-numpy
)

# A closed stderr is not an error.
say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2 || true
}

die() {
    say "$*"
    exit 1
}

missing_packages() {
    local package
    for package in "${PACKAGES[@]}"; do
        # shellcheck disable=SC2016 # dpkg-query's own variable
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
    done
}

# Installs missing packages, or names them and exits.
ensure_packages() {
    local missing sudo=()
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        say "this is not Debian: packages are not checked; needed, by their Debian names: ${PACKAGES[*]}"
        return
    fi
    mapfile -t missing < <(missing_packages)
    [[ ${#missing[@]} -gt 0 ]] || return 0
    if [[ $(id -u) -ne 0 ]]; then
        command -v sudo >/dev/null ||
            die "packages are missing, and installing them needs root or sudo: apt-get install ${missing[*]}"
        sudo=(sudo)
    fi
    say "installing ${missing[*]}"
    "${sudo[@]}" apt-get update -qq || say "apt-get update failed: continuing with the existing package lists"
    # Another script may be installing, too.
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "${missing[@]}" >&2 ||
        die "apt-get could not install: ${missing[*]}"
}

# root: a variable of the sourcing script, the top of the tree.
# ensure_build FOLDER TARGET... -- SETUP-OPTION...: configures FOLDER if needed, and compiles the targets (all by default).
# Shows the output of the compiler only if it fails.
ensure_build() {
    local folder=$1 targets=()
    shift
    while [[ $# -gt 0 && $1 != -- ]]; do
        targets+=("$1")
        shift
    done
    [[ $# -eq 0 ]] || shift
    ensure_setup "$folder" "$@"
    say "compiling in $folder"
    quietly "meson compile" meson compile -C "$folder" "${targets[@]}"
}

ensure_setup() { # FOLDER SETUP-OPTION...
    local folder=$1
    shift
    [[ ! -f $folder/build.ninja ]] || return 0
    say "configuring $folder"
    quietly "meson setup" meson setup "$folder" "$root" "$@"
}

# quietly WHAT COMMAND...: runs the command. If it fails, shows its output and exits.
quietly() {
    local what=$1 log
    shift
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        rm -f "$log"
        die "$what failed; its last lines are above"
    fi
    rm -f "$log"
}
