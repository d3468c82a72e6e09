# The share of time not waiting, a group of bars a cell.
# gnuplot -c slow.gp PNG TABLE TITLE...; TABLE has columns: the cell, such as rate/period/codec, and percents, one for each TITLE
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
set xlabel "cell: rate / period / codec"
set key outside top right
plot for [i=3:ARGC] ARG2 using (column(i - 1)):xtic(1) title ARGV[i]
