# Test error of several methods over images and over the bytes moved, log scales. Methods that move none are only on the left.
# gnuplot -c traffic.gp PNG TITLE "FILE..." "NAME..."; a FILE has the runs of a method as blocks: seconds, images, megabytes,
# test error
files = ARG3
names = ARG4
n = words(files)
longest = 0
do for [i = 1:n] { longest = strlen(word(names, i)) > longest ? strlen(word(names, i)) : longest }
rows = longest > 66 ? n : (n + 1) / 2 # two columns if they fit
height = 440 + 20 * rows
set terminal pngcairo size 1100,height font "sans,10"
set output ARG1
set multiplot title ARG2 noenhanced
set grid
set logscale y
set ytics (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1)
set yrange [*:1] noextend
set tmargin at screen 0.92
set bmargin at screen (60.0 + 20 * rows) / height
# One hue per method, alternating light and dark, so that neighbours differ.
colour(i) = hsv2rgb((i - 1.0) / n, 0.9, i % 2 == 1 ? 0.85 : 0.5)
set lmargin at screen 0.07
set rmargin at screen 0.49
set ylabel "test error"
set xlabel "images computed by all workers, thousands"
set xrange [0:*]
set key noenhanced at screen 0.5, (8.0 + 10 * rows) / height center center maxrows rows samplen 3
plot for [i = 1:n] word(files, i) using ($2 / 1e3):4 with linespoints pointsize 0.4 linewidth 1.3 linecolor rgb colour(i) \
     dashtype 1 + (i - 1) % 3 pointtype 1 + (i - 1) % 13 title word(names, i)
unset key
unset ylabel
set lmargin at screen 0.56
set rmargin at screen 0.98
set xlabel "megabytes transferred, both directions"
set logscale x
set xrange [*:*]
plot for [i = 1:n] word(files, i) using ($3 > 0 ? $3 : NaN):4 with linespoints pointsize 0.4 linewidth 1.3 \
     linecolor rgb colour(i) dashtype 1 + (i - 1) % 3 pointtype 1 + (i - 1) % 13 notitle
unset multiplot
