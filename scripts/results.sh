# shellcheck shell=bash disable=SC2154
# results.sh: the results of finished runs: numbers, table, pictures. Sourced by compare, never run; compare sets root, out,
# entries, seeds, levels, batch, data.

folder_of() { # ENTRY SEED
    echo "$out/${1//[:=,]/_}-seed$2"
}

# Prints one line per run: entry, seed; seconds, updates, images and bytes to each level ("-": not reached); best accuracy;
# seconds, images and bytes of the whole run; how it ended; shares of the workers' time in data, compute, update and exchange;
# staleness p50 and p99 ("-": not counted). Writes points.txt, one line per evaluation: seconds, images, megabytes, error.
#
# Images and bytes at an evaluation are the totals of all workers in proportion to the updates. Bytes are the vectors between
# workers and psd in both directions: psd's counters minus those of the evaluator, which pulls one vector per evaluation. Its
# last evaluation comes after the counters are read. One without a result (evaluate.stopped) has no line in the history, and no
# vector is evaluated twice (evaluate.unchanged).
summarise() { # ENTRY SEED
    local dir ended=finished inputs=()
    dir=$(folder_of "$1" "$2")
    [[ ! -e $dir/diverged ]] || ended=diverged
    [[ ! -e $dir/metrics ]] || inputs=("$dir/metrics" "$dir/psd.log")
    [[ ! -e $dir/evaluator.log ]] || inputs+=("$dir/evaluator.log")
    : >"$dir/points.txt"
    LC_ALL=C awk -v entry="$1" -v seed="$2" -v levels="$levels" -v batch="$batch" -v ended="$ended" \
        -v points="$dir/points.txt" '
        function field(name,    at) {
            at = index($0, "\"" name "\":")
            return at ? substr($0, at + length(name) + 3) + 0 : 0
        }
        FILENAME ~ /history\.jsonl$/ {
            t[++n] = field("t"); version[n] = field("center_version"); accuracy[n] = field("test_accuracy")
            if (accuracy[n] > best) best = accuracy[n]
        }
        FILENAME ~ /worker-[0-9]+\.(log|out)$/ && /"data_seconds":/ {
            one = FILENAME " " field("rank") # under mpirun all ranks write to one file
            steps[one] = field("step"); wall[one] = field("seconds")
            for (k in part) seconds[one, k] = field(part[k] "_seconds")
        }
        FILENAME ~ /metrics$/ && /^psd_update_staleness_bucket/ {
            split($0, word, "\""); le[++m] = word[2]; below[m] = $NF
        }
        FILENAME ~ /metrics$/ && /^psd_(received|sent)_bytes_total/ { counted += $NF }
        FILENAME ~ /evaluator\.log$/ && /"evaluate\.(stopped|unchanged)"/ { without_line++ }
        FILENAME ~ /psd\.log$/ && /"job.ready"/ && match($0, /[0-9]+ floats/) { floats = substr($0, RSTART) + 0 }
        BEGIN { split("data compute update exchange", part, " ") }
        function percentile(q,    k) {
            for (k = 1; k <= m; k++)
                if (below[k] >= q * below[m]) return le[k]
            return "-"
        }
        function share(of, i) {
            return of == "-" ? "-" : sprintf("%.0f", version[n] ? of * version[i] / version[n] : 0)
        }
        END {
            for (f in wall) {
                images += steps[f] * batch; total += wall[f]
                if (wall[f] > longest) longest = wall[f]
                for (k in part) sum[k] += seconds[f, k]
            }
            bytes = counted ? counted - 4 * floats * (n - 1 + without_line) : "-"
            printf "%s\t%s", entry, seed
            n_levels = split(levels, level, ",")
            for (k = 1; k <= n_levels; k++) {
                i = 1
                while (i <= n && accuracy[i] < level[k]) i++
                if (i > n) printf "\t-\t-\t-\t-"
                else printf "\t%.1f\t%d\t%s\t%s", t[i], version[i], share(images, i), share(bytes, i)
            }
            printf "\t%s\t%.1f\t%.0f\t%s\t%s", n ? sprintf("%.4f", best) : "-", longest, images, share(bytes, n), ended
            for (k = 1; k <= 4; k++) printf "\t%s", (total > 0 ? sprintf("%.3f", sum[k] / total) : "-")
            any = m && below[m] > 0
            printf "\t%s\t%s\n", any ? percentile(0.5) : "-", any ? percentile(0.99) : "-"
            # A log scale has no 0: it is drawn as half an image of 10,000.
            for (i = 1; i <= n; i++)
                print t[i], share(images, i), bytes == "-" ? "-" : share(bytes, i) / 1e6, \
                    (accuracy[i] > 0.99995 ? 0.00005 : 1 - accuracy[i]) >>points
        }' "$dir/history.jsonl" "$dir"/worker-*.* "${inputs[@]}"
}

# runs.tsv -> the table: medians over the seeds of each entry; a level that was not reached counts as infinitely late.
table() {
    LC_ALL=C awk -F '\t' -v levels="$levels" '
        function median(column,    a, n, i, j, v, low, high) {
            n = split(rows[entry], row, " ")
            for (i = 1; i <= n; i++) {
                v = cell[row[i], column]
                for (j = i - 1; j > 0 && (v != "-" && (a[j] == "-" || v + 0 < a[j] + 0)); j--) a[j + 1] = a[j]
                a[j + 1] = v
            }
            low = a[int((n + 1) / 2)]
            high = a[int(n / 2) + 1]
            return high == "-" || low == high ? high : (low + high) / 2
        }
        function short(v) {
            return v >= 1e6 ? sprintf("%.2f M", v / 1e6) : v >= 1e4 ? sprintf("%.0f k", v / 1e3) : sprintf("%d", v)
        }
        function size(v) {
            if (v == "-") return v
            if (v >= 1e9) return sprintf("%.2f GB", v / 1e9)
            return sprintf(v >= 1e7 ? "%.0f MB" : "%.1f MB", v / 1e6)
        }
        function percent(v) { return v == "-" ? "-" : sprintf("%.0f %%", v * 100) }
        function diverged(column,    n, i, times) {
            n = split(rows[entry], row, " ")
            for (i = 1; i <= n; i++) times += cell[row[i], column] == "diverged"
            return !times ? "" : n == 1 ? ", diverged" : ", " times " of " n " diverged"
        }
        NR > 1 {
            if (!($1 in rows)) order[++n_entries] = $1
            rows[$1] = rows[$1] " " NR
            for (i = 1; i <= NF; i++) cell[NR, i] = $i
        }
        END {
            n_levels = split(levels, level, ",")
            printf "| method |"
            for (k = 1; k <= n_levels; k++) printf " %s |", level[k]
            print " best | whole run | data | compute | update | exchange | staleness p50 / p99 |"
            printf "|---|"
            for (k = 1; k <= n_levels; k++) printf "---|"
            print "---|---|---|---|---|---|---|"
            for (e = 1; e <= n_entries; e++) {
                entry = order[e]
                printf "| `%s` |", entry
                for (k = 0; k < n_levels; k++) {
                    seconds = median(3 + 4 * k)
                    if (seconds == "-") printf " - |"
                    else printf " %.1f s / %s / %s / %s |", seconds, short(median(4 + 4 * k)), short(median(5 + 4 * k)),
                        size(median(6 + 4 * k))
                }
                at = 3 + 4 * n_levels
                best = median(at)
                printf " %s%s |", (best == "-" ? "-" : sprintf("%.4f", best)), diverged(at + 4)
                printf " %.0f s / %s / %s |", median(at + 1), short(median(at + 2)), size(median(at + 3))
                for (k = 5; k <= 8; k++) printf " %s |", percent(median(at + k))
                stale = median(at + 9)
                print (stale == "-" ? " - |" : " " stale " / " median(at + 10) " |")
            }
        }' "$out/runs.tsv"
}

runs() {
    local entry one
    {
        printf 'method\tseed'
        for one in ${levels//,/ }; do
            printf '\tseconds to %s\tupdates to %s\timages to %s\tbytes to %s' "$one" "$one" "$one" "$one"
        done
        printf '\tbest\tseconds\timages\tbytes\tended\tdata\tcompute\tupdate\texchange\tstaleness p50\tstaleness p99\n'
        for entry in "${entries[@]}"; do
            for one in ${seeds//,/ }; do
                summarise "$entry" "$one"
            done
        done
    } >"$out/runs.tsv"
}

# The settings, without the folder of the data.
heading() {
    local settings
    settings=$(<"$out/settings")
    echo "${settings/"$data"/"${data%%:*}"}"
}

# The runs of an entry are blocks of one file, so that gnuplot draws them in the same style. compare.png shows time,
# traffic.png images and bytes.
pictures() {
    local entry one name why files=() titles=()
    for entry in "${entries[@]}"; do
        local points=$out/${entry//[:=,]/_}.txt
        for one in ${seeds//,/ }; do
            cat "$(folder_of "$entry" "$one")/points.txt"
            echo
        done >"$points"
        files+=("$points")
        titles+=("$entry")
    done
    for name in compare traffic; do
        why=$(gnuplot -c "$root/scripts/plots/$name.gp" "$out/$name.png" "$(heading)" "${files[*]}" "${titles[*]}" 2>&1) ||
            say "gnuplot failed, so there is no $name.png: $why"
    done
}
