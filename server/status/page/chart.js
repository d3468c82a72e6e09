"use strict";
/* chart.js: one chart over time in SVG. All elements are created node by node, so text never becomes markup.
 */

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = {left: 58, right: 12, top: 10, bottom: 36}; /* pixels: room for the axes' numbers and names */
const MOST_DOTS = 100, MOST_LARGE = 25;                    /* more points than the first: no dots; than the second: small dots */
const SMOOTH = 40;                                         /* a smoothed point is the mean over this fraction of all points */

/* psd's kinds of events, in ascending importance. An unknown kind is the most important. */
const EVENTS = ["end", "join", "members", "checkpoint", "method", "drain"];

function weight(r) {
    if (typeof r.event !== "string") return -1;
    return EVENTS.includes(r.event_kind) ? EVENTS.indexOf(r.event_kind) : EVENTS.length;
}

function node(parent, name, attributes, text) {
    const made = parent.namespaceURI === SVG || name === "svg" ? document.createElementNS(SVG, name)
                                                               : document.createElement(name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    parent.appendChild(made);
    return made;
}

function known(v) {
    return typeof v === "number" && Number.isFinite(v);
}

/* At most four digits: "0.9914", "12.5", "431080", "3.1e-5". */
function short(v) {
    if (!known(v)) return "–";
    const a = Math.abs(v);
    if (a !== 0 && (a < 1e-3 || a >= 1e7)) return v.toExponential(2).replace("e+", "e");
    return a >= 1000 ? String(Math.round(v)) : String(Number(v.toPrecision(4)));
}

/* About n round numbers from lo to hi, in steps of 1, 2 or 5 times a power of ten. */
function ticks(lo, hi, n) {
    const raw = (hi - lo) / n, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
    const found = [];
    for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; i++)
        found.push(Number((i * step).toPrecision(12)));
    return found;
}

function powers(lo, hi) { /* of a logarithmic axis, thinned to about six */
    const first = Math.ceil(Math.log10(lo) - 1e-9), last = Math.floor(Math.log10(hi) + 1e-9), found = [];
    const step = Math.max(1, Math.ceil((last - first) / 6));
    for (let e = first; e <= last; e += step) found.push(10 ** e);
    return found.length > 1 ? found : ticks(lo, hi, 4).filter((v) => v > 0);
}

/* Axes: linear; logarithmic; logarithmic in the distance from 1, for accuracies near it. */
const LINEAR = {f: (v) => v, takes: () => true, marks: (lo, hi) => ticks(lo, hi, 5)};
const LOG = {f: Math.log10, takes: (v) => v > 0, marks: powers};
const NEAR_ONE = {
    f: (v) => -Math.log10(1 - Math.min(v, 1 - 1e-5)),
    takes: () => true,
    marks: (lo, hi) => {
        const found = [0, 0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999].filter((v) => v >= lo && v <= hi);
        return found.length > 1 ? found : ticks(lo, hi, 4);
    },
};

/* The mean of the points around each one, for noisy series. */
function smoothed(points) {
    const half = Math.floor(points.length / SMOOTH / 2), made = [];
    let sum = 0, from = 0, to = 0;
    points.forEach((p, i) => {
        for (; to < Math.min(points.length, i + half + 1); to++) sum += points[to][1];
        for (; from < i - half; from++) sum -= points[from][1];
        made.push([p[0], sum / (to - from)]);
    });
    return made;
}

const UNITS = [[180, 1, "s"], [3 * 3600, 60, "min"], [4 * 86400, 3600, "h"], [Infinity, 86400, "days"]];

function duration(seconds) {
    const s = Math.max(0, Math.floor(seconds)), two = (v) => String(v).padStart(2, "0");
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} min`;
    return `${Math.floor(s / 86400)} d ${two(Math.floor(s / 3600) % 24)} h`;
}

/* At most two points for each pixel column, the lowest and the highest, so that no peak is lost. */
function thinned(points) {
    const kept = [];
    let column = null, low = null, high = null;
    const flush = () => {
        if (low === null) return;
        if (low === high) kept.push(low);
        else kept.push(...(low[0] <= high[0] ? [low, high] : [high, low]));
    };
    for (const p of points) {
        if (Math.floor(p[0]) !== column) {
            flush();
            column = Math.floor(p[0]);
            low = high = p;
        } else {
            if (p[1] < low[1]) low = p;
            if (p[1] > high[1]) high = p;
        }
    }
    flush();
    return kept;
}

/* spec: title; unit (of the y axis); series: [{key, name, color, dots, smooth}]; empty: the hint without
 * data; top: an upper bound of the values; zero: the axis begins at 0; log: another axis on offer, shown
 * first if `logs`; optional: no chart without data, which not every job has (under a rule whose message is a
 * gradient the distance is unknown). onPoint(t or null): the crosshair moved. */
class Chart {
    constructor(parent, spec, onPoint) {
        this.spec = spec;
        this.onPoint = onPoint;
        this.records = [];
        this.axis = spec.logs ? spec.log : LINEAR;
        this.at = null;
        this.figure = node(parent, "figure", {class: "chart", id: `chart-${spec.id}`});
        const caption = node(this.figure, "figcaption", {});
        node(caption, "span", {class: "title"}, spec.title);
        if (spec.series.length > 1) {
            const legend = node(caption, "span", {class: "legend"});
            for (const s of spec.series) node(legend, "span", {class: s.color}, s.name);
        }
        if (spec.log) {
            this.button = node(caption, "button", {type: "button"}, "log");
            this.button.setAttribute("aria-pressed", String(this.axis !== LINEAR));
            this.button.addEventListener("click", () => this.toggle());
        }
        this.plot = node(this.figure, "div", {class: "plot"});
        this.svg = node(this.plot, "svg", {tabindex: "0", role: "img", "aria-label": spec.title});
        this.empty = node(this.plot, "p", {class: "empty"}, spec.empty);
        this.tip = node(this.plot, "div", {class: "tip"});
        this.tip.hidden = true;
        this.figure.hidden = Boolean(spec.optional);
        this.listen();
        new ResizeObserver(() => this.draw()).observe(this.plot);
    }

    toggle() {
        this.axis = this.axis === LINEAR ? this.spec.log : LINEAR;
        this.button.setAttribute("aria-pressed", String(this.axis !== LINEAR));
        this.draw();
    }

    listen() {
        const move = (e) => {
            const x = e.clientX - this.svg.getBoundingClientRect().left;
            this.hovered = true;
            this.onPoint(this.scale ? this.scale.t(x) : null);
        };
        const leave = () => {
            this.hovered = false;
            this.onPoint(null);
        };
        this.svg.addEventListener("pointermove", move);
        this.svg.addEventListener("pointerdown", move);
        this.svg.addEventListener("pointerleave", leave);
        this.svg.addEventListener("blur", leave);
        this.svg.addEventListener("keydown", (e) => {
            const by = {ArrowLeft: -1, ArrowRight: 1}[e.key];
            if (by === undefined || this.records.length === 0) return;
            e.preventDefault();
            this.hovered = true;
            const now = this.at === null ? this.records.length : this.nearest(this.at);
            const next = Math.min(Math.max(now + by, 0), this.records.length - 1);
            this.onPoint(this.records[next].t);
        });
    }

    show(records) {
        this.records = records;
        this.figure.hidden = Boolean(this.spec.optional) && !records.some((r) => known(r[this.spec.series[0].key]));
        this.draw();
    }

    /* Index of the record nearest in time. */
    nearest(t) {
        let low = 0, high = this.records.length - 1;
        while (high - low > 1) {
            const middle = (low + high) >> 1;
            if (this.records[middle].t <= t) low = middle;
            else high = middle;
        }
        return t - this.records[low].t <= this.records[high].t - t ? low : high;
    }

    values() {
        const all = [];
        for (const r of this.records)
            for (const s of this.spec.series)
                if (known(r[s.key]) && this.axis.takes(r[s.key])) all.push(r[s.key]);
        return all;
    }

    /* The range of the axes; null if there is no data. */
    fit() {
        const all = this.values();
        if (all.length === 0) return null;
        let lo = Infinity, hi = -Infinity;
        for (const v of all) {
            lo = Math.min(lo, v);
            hi = Math.max(hi, v);
        }
        const t0 = this.records[0].t, t1 = Math.max(this.records[this.records.length - 1].t, t0 + 10);
        if (this.axis === NEAR_ONE) return {lo: Math.max(0, 1 - (1 - lo) * 1.2), hi: hi + (1 - hi) * 0.2, t0, t1};
        if (this.axis === LOG) {
            lo = lo === hi ? lo / 2 : lo;
            hi = lo === hi ? hi * 2 : hi;
            return {lo: lo / 1.1, hi: hi * 1.1, t0, t1};
        }
        if (this.spec.zero) lo = Math.min(lo, 0);
        const room = hi > lo ? (hi - lo) * 0.06 : Math.abs(hi) * 0.1 || 1;
        lo = this.spec.zero && lo === 0 ? 0 : lo - room;
        hi += room;
        if (this.spec.top !== undefined) hi = Math.min(hi, this.spec.top);
        return {lo, hi, t0, t1};
    }

    draw() {
        const width = this.plot.clientWidth, height = this.plot.clientHeight, fit = this.fit();
        this.svg.replaceChildren();
        this.empty.hidden = fit !== null;
        this.scale = null;
        if (fit === null || width < 100) return;
        const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
        const f = this.axis.f, span = f(fit.hi) - f(fit.lo) || 1;
        this.scale = {
            x: (t) => MARGIN.left + (t - fit.t0) / (fit.t1 - fit.t0) * (right - MARGIN.left),
            y: (v) => bottom - (f(v) - f(fit.lo)) / span * (bottom - MARGIN.top),
            t: (x) => fit.t0 + (x - MARGIN.left) / (right - MARGIN.left) * (fit.t1 - fit.t0),
            top: MARGIN.top, bottom, right,
        };
        this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
        this.drawAxes(fit);
        for (const s of this.spec.series) this.drawSeries(s);
        this.drawEvents();
        this.cross = node(this.svg, "g", {});
        this.point(this.at);
    }

    drawAxes(fit) {
        const s = this.scale, middle = (s.top + s.bottom) / 2;
        for (const v of this.axis.marks(fit.lo, fit.hi)) {
            const y = s.y(v).toFixed(1);
            node(this.svg, "line", {class: "grid", x1: MARGIN.left, x2: s.right, y1: y, y2: y});
            node(this.svg, "text", {x: MARGIN.left - 6, y: Number(y) + 4, "text-anchor": "end"}, short(v));
        }
        const [, unit, name] = UNITS.find((u) => fit.t1 - fit.t0 <= u[0]);
        const count = Math.max(2, Math.floor((s.right - MARGIN.left) / 80));
        for (const v of ticks(0, (fit.t1 - fit.t0) / unit, count)) {
            const x = s.x(fit.t0 + v * unit).toFixed(1);
            node(this.svg, "line", {class: "axis", x1: x, x2: x, y1: s.bottom, y2: s.bottom + 4});
            node(this.svg, "text", {x, y: s.bottom + 16, "text-anchor": "middle"}, short(v));
        }
        node(this.svg, "line", {class: "axis", x1: MARGIN.left, x2: s.right, y1: s.bottom, y2: s.bottom});
        node(this.svg, "text", {x: (MARGIN.left + s.right) / 2, y: s.bottom + 31, "text-anchor": "middle"},
             `time (${name})`);
        node(this.svg, "text", {x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})`},
             this.spec.unit);
    }

    drawSeries(series) {
        const s = this.scale, points = [];
        for (const r of this.records)
            if (known(r[series.key]) && this.axis.takes(r[series.key])) points.push([s.x(r.t), s.y(r[series.key])]);
        const group = node(this.svg, "g", {class: `series ${series.color}`, "data-key": series.key,
                                           "data-points": points.length});
        const line = (list, name) => {
            const text = thinned(list).map((p) => `${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("L");
            node(group, "path", {class: name, d: `M${text}`});
        };
        const smooth = series.smooth && points.length >= 2 * SMOOTH;
        if (points.length > 1) line(points, smooth ? "curve faint" : "curve");
        if (smooth) line(smoothed(points), "curve");
        if (points.length > 1 && !(series.dots && points.length <= MOST_DOTS)) return;
        const look = points.length <= MOST_LARGE ? {class: "dot", r: 3.5} : {class: "dot plain", r: 2.5};
        for (const p of points) node(group, "circle", {...look, cx: p[0].toFixed(1), cy: p[1].toFixed(1)});
    }

    drawEvents() {
        const s = this.scale;
        for (const r of this.records) {
            if (typeof r.event !== "string") continue;
            const x = s.x(r.t).toFixed(1);
            const line = node(this.svg, "line", {class: `event ${EVENTS[weight(r)] || ""}`, x1: x, x2: x, y1: s.top, y2: s.bottom});
            node(line, "title", {}, r.event);
        }
    }

    /* Draws the crosshair at a time, or none; the tooltip appears only in the chart under the pointer. */
    point(t) {
        this.at = t;
        this.tip.hidden = true;
        if (!this.scale) return;
        this.cross.replaceChildren();
        if (t === null || this.records.length === 0) return;
        const s = this.scale, r = this.records[this.nearest(t)], x = s.x(r.t);
        node(this.cross, "line", {class: "cross", x1: x, x2: x, y1: s.top, y2: s.bottom});
        const lines = [`${duration(r.t - this.records[0].t)}, version ${r.center_version}`];
        for (const series of this.spec.series) {
            const found = this.latest(series.key, r);
            if (found === null) continue;
            if (this.axis.takes(found[series.key])) {
                const mark = node(this.cross, "g", {class: series.color});
                node(mark, "circle", {class: "dot", cx: s.x(found.t), cy: s.y(found[series.key]), r: 4});
            }
            lines.push(`${series.name}: ${short(found[series.key])}`);
        }
        if (typeof r.event === "string") lines.push(r.event);
        if (this.hovered) this.drawTip(lines, x);
    }

    /* The last record at or before r that has a value of the series: evaluations are rare. */
    latest(key, r) {
        for (let i = this.nearest(r.t); i >= 0; i--)
            if (known(this.records[i][key])) return this.records[i];
        return null;
    }

    drawTip(lines, x) {
        this.tip.replaceChildren();
        for (const line of lines) node(this.tip, "div", {}, line);
        this.tip.hidden = false;
        const width = this.tip.offsetWidth, beside = x + 12 + width < this.plot.clientWidth ? x + 12 : x - 12 - width;
        this.tip.style.left = `${Math.max(0, beside)}px`;
    }
}
