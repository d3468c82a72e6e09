# Test accuracy and loss of the center over time.
# gnuplot -c history.gp TABLE PNG TITLE; TABLE has columns: seconds, center version, test loss, test accuracy
table = ARG1
set terminal pngcairo size 900,520 font "sans,11"
set output ARG2
set title ARG3 noenhanced
set grid
set key center right
set xlabel "seconds"
set ylabel "test accuracy"
set yrange [0:1]
set ytics nomirror
set y2label "test loss"
set y2range [0:*]
set y2tics
plot table using 1:4 axes x1y1 with linespoints pointtype 7 pointsize 0.5 title "test accuracy", \
     table using 1:3 axes x1y2 with linespoints pointtype 5 pointsize 0.5 title "test loss"
