# Efficiency over workers for two nets, with one point of You et al. each.
# gnuplot -c scaling.gp PNG NET FILE POINT NET FILE POINT; FILE: method, workers, efficiency, ...; POINT: their efficiency at 64 nodes
set terminal pngcairo size 1300,620 font "sans,11"
set output ARG1
set datafile separator "\t"
set grid
set logscale x 2
set xrange [1:4096]
set yrange [0:1.05]
set xlabel "workers, one per node"
set ylabel "efficiency relative to workers without exchanges"
set format x "%.0f"
set xtics rotate by -45
names(file) = system("awk -F '\t' 'NR > 1 && !seen[$1]++ { gsub(/ /, \"~\", $1); print $1 }' ".file)
plain(name) = system("echo '".name."' | tr '~' ' '")
colour(i, n) = hsv2rgb((i - 1.0) / n, 0.9, i % 2 == 1 ? 0.85 : 0.5)
rows(file, name) = "< awk -F '\t' -v name='".plain(name)."' '$1 == name' ".file
set multiplot layout 1,2 margins 0.055,0.71,0.15,0.92 spacing 0.045
unset key
all = names(ARG3)
n = words(all)
set title ARG2
plot for [i = 1:n] rows(ARG3, word(all, i)) using 2:3 with linespoints pointsize 0.6 linewidth 1.4 linecolor rgb colour(i, n) \
         dashtype 1 + (i - 1) % 3 pointtype 1 + (i - 1) % 13 title plain(word(all, i)) noenhanced, \
     "+" using (64):(ARG4 + 0) every ::0::0 with points pointtype 3 pointsize 2.2 linewidth 2.5 linecolor rgb "black" \
         title "You et al. 2017, Table 4"
set key at screen 0.995,0.9 right top vertical maxcols 1 noenhanced samplen 2 spacing 1.2
set title ARG5
unset ylabel
plot for [i = 1:n] rows(ARG6, word(all, i)) using 2:3 with linespoints pointsize 0.6 linewidth 1.4 linecolor rgb colour(i, n) \
         dashtype 1 + (i - 1) % 3 pointtype 1 + (i - 1) % 13 title plain(word(all, i)) noenhanced, \
     "+" using (64):(ARG7 + 0) every ::0::0 with points pointtype 3 pointsize 2.2 linewidth 2.5 linecolor rgb "black" \
         title "You et al. 2017, Table 4"
unset multiplot
