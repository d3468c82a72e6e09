# Test error over images, the pairs of You et al.'s figures 6.1 to 6.4.
# gnuplot -c pairs.gp PNG "FILE..." "NAME..."; two files and names a panel. A FILE has the runs of a method as blocks: seconds, images,
# megabytes, test error
files = ARG2
names = ARG3
set terminal pngcairo size 1000,640 font "sans,11"
set output ARG1
set multiplot layout 2, 2
set grid
set logscale y
set format y "%g"
set key top right noenhanced
set xrange [0:500]
set yrange [0.009:0.2]
do for [panel = 0:words(files) / 2 - 1] {
    set xlabel panel > 1 ? "thousand images" : ""
    set ylabel panel % 2 == 0 ? "test error" : ""
    plot for [i = 2 * panel + 1:2 * panel + 2] word(files, i) using ($2 / 1000):4 with linespoints pointsize 0.5 linewidth 1.3 \
        linecolor rgb (i % 2 == 1 ? "#1f5fbf" : "#d07000") pointtype (i % 2 == 1 ? 7 : 4) title word(names, i), \
        0.012 with lines dashtype 3 linecolor rgb "#808080" notitle
}
