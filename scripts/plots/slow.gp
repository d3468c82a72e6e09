# The share of time not waiting, measured and planned, a pair of bars a cell.
# gnuplot -c slow.gp PNG TABLE; TABLE has columns: rate/period/codec/overlap/fragments, measured and planned in percent
set terminal pngcairo size 1300,620 font "sans,11"
set output ARG1
set datafile separator "\t"
set title "Share of time in which workers do not wait for exchanges"
set grid ytics
set style data histograms
set style fill solid 0.8 border -1
set xtics rotate by -60 noenhanced
set yrange [0:100]
set ylabel "per cent"
set xlabel "rate / period / codec / overlap / fragments"
set key outside top right
plot ARG2 using 2:xtic(1) title "measured", '' using 3 title "planned"
