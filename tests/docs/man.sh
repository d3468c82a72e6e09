#!/bin/bash
# man.sh PAGES PSD PSCTL PSWORKER PSBENCH HEADER YAML PRESETS: the pages say what the programs do. Each option of
# --help stands in its page and each option of the page in --help; psctl's commands, the library's functions, return
# codes and option members, the presets, likewise; the tables of methods are those of the presets.
set -u
pages=$1 psd=$2 psctl=$3 psworker=$4 psbench=$5 header=$6 yaml=$7 presets=$8
failed=0

# same WHAT WANTED GOT: two lists of words, one a line.
same() {
    local left right
    left=$(comm -23 <(sort -u <<<"$2") <(sort -u <<<"$3") | tr '\n' ' ')
    right=$(comm -13 <(sort -u <<<"$2") <(sort -u <<<"$3") | tr '\n' ' ')
    [[ -n $2 ]] || { echo "$1: nothing to compare with" && failed=1; }
    [[ -z ${left// /} ]] || { echo "$1: the page lacks $left" && failed=1; }
    [[ -z ${right// /} ]] || { echo "$1: the page has, and nothing else, $right" && failed=1; }
}

options() { grep -oE -- '--[a-z][a-z-]+' | sort -u; }

# A page's options: those in bold, of the lines that head an entry.
page_options() { grep -E '^\*--' "$1" | grep -oE '\*--[a-z][a-z-]+' | tr -d '*' | sort -u; }

same "psd(8)" "$("$psd" --help | options)" "$(page_options "$pages/psd.8.scd")"
same "psctl(1)" "$("$psctl" --help | options)" "$(page_options "$pages/psctl.1.scd")"
same "psworker(1)" "$("$psworker" --help | options)" "$(page_options "$pages/psworker.1.scd")"

same "psctl(1) commands" "$("$psctl" --help | sed -n '/^$/,/^$/p' | sed -nE 's/^  ([a-z]+) .*/\1/p')" \
    "$(sed -n '/^# COMMANDS/,/^# OPTIONS/p' "$pages/psctl.1.scd" | sed -nE 's/^\*([a-z]+)\*.*/\1/p')"

psrun=$pages/../../scripts/psrun
same "psrun(1)" "$("$psrun" --help | sed '/^Signals:/,$d' | options)" \
    "$(grep -E '^\*--[a-z]' "$pages/psrun.1.scd" | grep -oE '\*--[a-z][a-z-]+' | tr -d '*' | sort -u)"

commands=$("$psbench" --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
same "psbench(1) commands" "$commands" "$(sed -n '/^# SYNOPSIS/,/^# DESCRIPTION/p' "$pages/psbench.1.scd" |
    sed -nE 's/^\*psbench\* \*([a-z]+)\*.*/\1/p')"
for command in $commands; do
    section=$(sed -n "/^# OPTIONS OF ${command^^}/,/^# [^O]/p" "$pages/psbench.1.scd" |
        sed -n "1p;2,/^# /p")
    same "psbench(1) $command" "$("$psbench" "$command" --help | options)" \
        "$(grep -E '^\*--' <<<"$section" | grep -oE '\*--[a-z][a-z-]+' | tr -d '*')"
done

page=$pages/libpsclient.3.scd
same "libpsclient(3) functions" "$(grep -oE '\bpsc_[a-z_]+\(' "$header" | tr -d '(')" \
    "$(grep -oE '\bpsc_[a-z_]+\(' "$page" | tr -d '(')"
for function in $(grep -oE '\bpsc_[a-z_]+\(' "$header" | tr -d '(' | sort -u); do
    grep -qF "*$function*(" "$page" || { echo "libpsclient(3): $function is not explained" && failed=1; }
done
same "libpsclient(3) return codes" "$(sed -n '/^enum psc_result/,/^}/p' "$header" | grep -oE '^ +PSC_[A-Z]+' | tr -d ' ')" \
    "$(sed -n '/^# RETURN VALUE/,/^# EXAMPLES/p' "$page" | sed -nE 's/^\*(PSC_[A-Z]+)\*.*/\1/p')"
same "libpsclient(3) options" "$(sed -n '/^struct psc_options {/,/^}/p' "$header" |
    sed -nE 's/^ +[a-z].*[ *(]([a-z_]+)(\)\(.*)?;.*/\1/p' | grep -v '^size$')" \
    "$(sed -n '/^# OPTIONS/,/^# TENSORS/p' "$page" | grep -E '^\*' | grep -oE '\*[a-z_]+\*' | tr -d '*')"

page=$pages/libpsclique.3.scd clique=${header%/*}/psclique.h mpi=${header%/*}/psclique_mpi.h nccl=${header%/*}/psclique_nccl.h vectors=${header%/*}/psclique_vectors.h
same "libpsclique(3) functions" "$(grep -ohE '\bpsc_[a-z_]+\(' "$clique" "$mpi" "$nccl" "$vectors" | tr -d '(')" \
    "$(grep -oE '\bpsc_[a-z_]+\(' "$page" | tr -d '(' | grep -v result_name)"
for function in $(grep -ohE '\bpsc_[a-z_]+\(' "$clique" "$mpi" "$nccl" "$vectors" | tr -d '(' | sort -u); do
    grep -qF "*$function*(" "$page" || { echo "libpsclique(3): $function is not explained" && failed=1; }
done
same "libpsclique(3) options" "$(sed -n '/^struct psc_ring_options {/,/^}/p' "$clique" |
    sed -nE 's/^ +[a-z][a-z0-9_ ]*[ *]([a-z_]+);.*/\1/p' | grep -v '^size$')" \
    "$(sed -n '/^# OPTIONS/,/^# RETURN VALUE/p' "$page" | grep -E '^\*' | grep -oE '\*[a-z_]+\*' | tr -d '*')"

for preset in "$presets"/*.yaml; do
    name=$(basename "$preset" .yaml)
    grep -qF "*$name*:" "$yaml" || { echo "psd.yaml(5): lacks the method $name" && failed=1; }
done
# The table of methods in docs/METHODS.md: name and parts as the page lists them.
rows=$(sed 's/\\//g' "$yaml" | sed -nE \
    -e 's/^- \*([a-z-]+)\*: rule ([a-z-]+), admission ([a-z-]+), optimizer ([a-z-]+), averaging ([a-z-]+) .*/| `\1` | \2 | \3 | \4 | \5 |/p' \
    -e 's/^- \*([a-z-]+)\*: optimizer ([a-z-]+), averaging ([a-z-]+) .*/| `\1` | | | \2 | \3 |/p')
# shellcheck disable=SC2016 # backticks of Markdown
same "docs/METHODS.md methods" "$rows" "$(sed -nE 's/^(\| `[a-z-]+` \|[a-z -]*\|[a-z -]*\|[a-z -]*\|[a-z -]*\|).*/\1/p' "$pages/../METHODS.md")"
while read -r key; do
    sed 's/\\//g' "$yaml" | grep -qE "^\*([a-z_]+\.)*$key\*\$" || { echo "psd.yaml(5): lacks the key $key" && failed=1; }
done < <(sed -nE 's/^ *([a-z_]+): +[^ #].*/\1/p' "$presets/../psd.yaml")
exit $failed
