# Test error of several methods over time, log scale.
# gnuplot -c compare.gp PNG TITLE "FILE..." "NAME..."; a FILE has the runs of a method as blocks: seconds, images, megabytes,
# test error
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
set yrange [*:1] noextend
n = words(files)
# One hue per method, alternating light and dark, so that neighbours differ.
colour(i) = hsv2rgb((i - 1.0) / n, 0.9, i % 2 == 1 ? 0.85 : 0.5)
plot for [i = 1:n] word(files, i) using 1:4 with linespoints pointsize 0.5 linewidth 1.3 linecolor rgb colour(i) \
     dashtype 1 + (i - 1) % 3 pointtype 1 + (i - 1) % 13 title word(names, i)
