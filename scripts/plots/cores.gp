# Images a second over cores, a panel for each net.
# gnuplot -c cores.gp PNG FILE; FILE: net, series, cores, images a second
set terminal pngcairo size 1300,520 font "sans,11"
set output ARG1
set datafile separator "\t"
set grid
set logscale x 2
set yrange [0:*]
set xlabel "cores"
nets = system("awk -F '\t' 'NR > 1 && !seen[$1]++ { print $1 }' ".ARG2)
series = system("awk -F '\t' 'NR > 1 && !seen[$2]++ { gsub(/ /, \"~\", $2); print $2 }' ".ARG2)
plain(name) = system("echo '".name."' | tr '~' ' '")
rows(net, name) = "< awk -F '\t' -v net='".net."' -v name='".plain(name)."' '$1 == net && $2 == name' ".ARG2
n = words(series)
panels = words(nets)
set multiplot layout 1,panels margins 0.06,0.98,0.13,0.78 spacing 0.06
do for [p = 1:panels] {
    net = word(nets, p)
    set title net
    if (p == 1) { set ylabel "training, images/s" } else { unset ylabel }
    if (p == 1) { set key at screen 0.98,0.99 right top horizontal maxrows 2 noenhanced samplen 2 } else { unset key }
    plot for [i = 1:n] rows(net, word(series, i)) using 3:4 with linespoints pointsize 0.8 linewidth 1.6 \
             linecolor rgb hsv2rgb((i - 1.0) / n, 0.9, 0.75) pointtype i title plain(word(series, i))
}
unset multiplot
