# Test error of several methods over time, log scale.
# gnuplot -c compare.gp PNG TITLE "FILE..." "NAME..."; a FILE has a method's runs as blocks: seconds, test error
files = ARG3
names = ARG4
set terminal pngcairo size 1000,600 font "sans,11"
set output ARG1
set title ARG2 noenhanced
set grid
set logscale y
set format y "%g"
set key outside right noenhanced
set xlabel "seconds"
set ylabel "test error"
set xrange [0:*]
plot for [i = 1:words(files)] word(files, i) using 1:2 with linespoints pointsize 0.5 linetype i pointtype i \
     title word(names, i)
