# shellcheck shell=bash disable=SC2154
# lib.sh: what the scripts of this folder share. Sourced, never run.

# By their Debian 12 names.
PACKAGES=(
    gcc libc6-dev meson ninja-build pkg-config
    libzmq3-dev libprotobuf-c-dev protobuf-c-compiler libuv1-dev libyaml-dev libmicrohttpd-dev
    libjansson-dev libxxhash-dev libcurl4-openssl-dev libhwloc-dev libdnnl-dev zlib1g-dev
    libjpeg62-turbo-dev libturbojpeg0-dev libpng-dev
    libncurses-dev scdoc
    check jq gnuplot-nox python3-numpy
)

# A reader that is gone is no reason to fail.
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

# Installs what is missing, or says what is and ends.
ensure_packages() {
    local missing sudo=()
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        say "this is no Debian: going on with what is here; needed by their Debian names: ${PACKAGES[*]}"
        return
    fi
    mapfile -t missing < <(missing_packages)
    [[ ${#missing[@]} -gt 0 ]] || return 0
    if [[ $(id -u) -ne 0 ]]; then
        command -v sudo >/dev/null ||
            die "missing packages, and neither root nor sudo to install them: apt-get install ${missing[*]}"
        sudo=(sudo)
    fi
    say "installing ${missing[*]}"
    "${sudo[@]}" apt-get update -qq || say "apt-get update failed: trying with the lists that are here"
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 ||
        die "apt-get could not install: ${missing[*]}"
}

# root: the sourcing script's variable, the top of the tree.
# ensure_build FOLDER TARGET... -- SETUP-OPTION...: configures FOLDER unless it is, and compiles the targets
# (all of them, when none is named). What the compiler says is shown only when it fails.
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

# quietly WHAT COMMAND...: what it prints is shown only when it fails, which ends the script.
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
