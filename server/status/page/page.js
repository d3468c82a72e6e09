"use strict";
/* page.js: polls psd once a second and fills the page. GET /history?since=T returns only the records after T,
 * so a long history is sent only once. All text from psd and its peers is inserted by textContent. */

const POLL_MS = 1000, HIDDEN_MS = 10000;           /* between two polls; while the page is hidden */
const TIMEOUT_MS = 5000, LONGEST_WAIT_MS = 10000;  /* for one answer; between two tries while psd does not answer */
const MOST_RECORDS = 20000, RATE_S = 10;           /* kept here; the time span of a worker's updates/s */
const END_AGAIN_MS = 10000;                        /* between two requests for the end, if psd already holds enough */

/* end: psd's last answer, {ok, said}; null: psd has not ended, or could not answer. */
const job = {status: null, crew: null, records: [], failures: 0, heardAt: 0, counts: new Map(), end: null,
             endAskedAt: -Infinity, asksForEnd: false};
const byId = (id) => document.getElementById(id);
const charts = [];

const SPECS = [
    {id: "accuracy", title: "Test accuracy", unit: "accuracy (0 to 1)", top: 1, log: NEAR_ONE, logs: true,
     series: [{key: "test_accuracy", name: "test accuracy", color: "blue", dots: true}],
     empty: "no evaluation yet: start psworker --evaluate"},
    {id: "loss", title: "Loss", unit: "loss (nats)", log: LOG, logs: true,
     series: [{key: "loss", name: "training", color: "orange"},
              {key: "test_loss", name: "test", color: "blue", dots: true}],
     empty: "no loss yet: workers report one every few seconds (psc_report)"},
    {id: "rate", title: "Updates", unit: "updates per second", zero: true,
     series: [{key: "updates_per_s", name: "updates/s", color: "blue", smooth: true}],
     empty: "no update yet: start psworker"},
    {id: "staleness", title: "Staleness", unit: "versions, mean", zero: true,
     series: [{key: "staleness", name: "staleness", color: "blue", smooth: true}],
     empty: "no update yet: start psworker"},
    {id: "norm", title: "Norm of the center ‖x̃‖", unit: "norm", log: LOG, optional: true,
     series: [{key: "center_norm", name: "‖x̃‖", color: "blue"}], empty: "not known"},
    {id: "distance", title: "Farthest worker ‖x − x̃‖", unit: "distance", log: LOG, optional: true,
     series: [{key: "distance", name: "largest ‖x − x̃‖", color: "blue"}], empty: "not known"},
];

async function ask(path) {
    const abort = new AbortController(), timer = setTimeout(() => abort.abort(), TIMEOUT_MS);
    try {
        const answer = await fetch(path, {signal: abort.signal, cache: "no-store"});
        if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
        return await answer.json();
    } finally {
        clearTimeout(timer);
    }
}

/* Keeps the first record of each part of the time, as psd does. Parts are equally long, and twice as long
 * whenever they would be too many. The evaluation of another record moves to the record before if that has none,
 * and its event if that has none of the same importance. The newest record stays, since the next request asks
 * for later ones. */
function thin(records) {
    const first = records[0], newest = records[records.length - 1], kept = [];
    let every = 1 / 1024, last = -1;
    while ((newest.t - first.t) / every > records.length / 2) every *= 2;
    records.forEach((r) => {
        const part = Math.floor((r.t - first.t) / every);
        if (part > last || r === newest) {
            last = part;
            kept.push(r);
            return;
        }
        const before = kept[kept.length - 1];
        if (!known(before.test_accuracy))
            [before.test_accuracy, before.test_loss] = [r.test_accuracy, r.test_loss];
        if (weight(r) > weight(before)) [before.event, before.event_kind] = [r.event, r.event_kind];
    });
    return kept;
}

/* `all`: the answer is a whole history, after a restart of psd: points drawn before it are kept. */
function takeHistory(list, all) {
    let kept = job.records;
    if (all && list.length > 0) kept = kept.filter((r) => r.t < list[0].t);
    const last = kept.length > 0 ? kept[kept.length - 1].t : -1;
    kept = kept.concat(list.filter((r) => r.t > last));
    job.records = kept.length > MOST_RECORDS ? thin(kept) : kept;
}

/* Exchanges per second, from the counts of the last RATE_S seconds. */
function rateOf(worker, now) {
    const key = `${worker.client}/${worker.incarnation}`;
    const seen = (job.counts.get(key) || []).filter((c) => now - c.t <= RATE_S);
    seen.push({t: now, n: worker.exchanges});
    job.counts.set(key, seen);
    const first = seen[0];
    return now - first.t >= 2.5 ? (worker.exchanges - first.n) / (now - first.t) : null;
}

function stateOf(worker) {
    if (worker.state === "ended") return ["ended", `ended: ${worker.end}`];
    if (worker.state === "silent") return ["silent", `silent for ${Math.floor(worker.last_seen_s)} s`];
    if (worker.state === "stalled") return ["stalled", `others wait for it: ${Math.floor(worker.awaited_s)} s`];
    return [worker.state, worker.state];
}

function rowOf(body, worker, now) {
    const [kind, text] = stateOf(worker), row = node(body, "tr", {class: kind});
    const watches = worker.kind === "observer", moves = kind !== "ended" && kind !== "silent";
    const rate = watches ? null : rateOf(worker, now);
    /* The label is shown on narrow screens, where the table has no header. */
    const cell = (label, value, name) =>
        node(row, "td", {class: `${name || ""}${value === "–" ? " none" : ""}`, "data-label": label}, value);
    cell("rank", watches ? "–" : String(worker.rank), "rank");
    cell("name", worker.name, "text name").title = nameOf(worker);
    cell("state", watches && kind === "active" ? "evaluating" : text, "text state");
    cell("t", watches ? "–" : known(worker.steps) ? `${worker.clock} / ${worker.steps}` : String(worker.clock),
         "steps");
    cell("updates/s", moves && known(rate) ? String(Number(rate.toPrecision(2))) : "–");
    cell("loss", short(worker.loss));
    cell("images/s", moves && known(worker.samples_per_s) ? String(Math.round(worker.samples_per_s)) : "–");
    cell("staleness", watches ? "–" : String(worker.staleness));
    cell("‖x − x̃‖", short(worker.distance));
    cell("‖update‖", short(worker.update_norm));
}

function nameOf(worker) {
    const trains = [worker.net, worker.data].filter((s) => typeof s === "string");
    return [worker.name, worker.address, trains.join(" on ")].filter((s) => s !== "").join("\n");
}

function showWorkers(answer) {
    const body = document.querySelector("#workers tbody"), now = performance.now() / 1000;
    const list = answer.workers.concat(answer.ended || []);
    body.replaceChildren();
    for (const worker of list) rowOf(body, worker, now);
    for (const key of job.counts.keys())
        if (!answer.workers.some((w) => `${w.client}/${w.incarnation}` === key)) job.counts.delete(key);
    byId("nobody").hidden = list.length > 0;
    document.querySelector("#crew .scroll").hidden = list.length === 0;
}

function tile(what, value, more) {
    const made = node(byId("tiles"), "div", {class: "tile"});
    node(made, "div", {class: "what"}, what);
    node(made, "div", {class: "value"}, value);
    node(made, "div", {class: "more"}, more || "");
}

/* Of the workers that are not silent. */
function meanLoss() {
    const losses = job.crew.workers.filter((w) => w.state !== "silent").map((w) => w.loss).filter(known);
    return losses.length > 0 ? losses.reduce((a, b) => a + b) / losses.length : null;
}

/* Of all workers, from the records of the last RATE_S seconds. */
function recentRate() {
    const all = job.records, last = all[all.length - 1];
    const first = all.find((r) => last.t - r.t <= RATE_S);
    if (last === undefined || last.t - first.t < 0.5) return null;
    const rate = (last.center_version - first.center_version) / (last.t - first.t);
    return Number(rate.toPrecision(3));
}

/* With dynamic periods each worker has its own. */
function periodOf(p) {
    const own = job.crew.workers.filter((w) => w.state !== "silent").map((w) => w.period).filter(known);
    if (own.length === 0) return short(p.period);
    const least = Math.min(...own), most = Math.max(...own);
    return least === most ? String(least) : `${least}–${most}`;
}

/* "lenet on digits", and how much of the planned work is done. */
function showTraining(t) {
    const has = known(t.steps_wanted), part = has ? t.steps_done / t.steps_wanted : 0;
    byId("what").textContent = [t.nets.join(", "), t.data.join(", ")].filter((s) => s !== "").join(" on ");
    byId("bar").hidden = !has;
    byId("bar").value = part;
    byId("steps").textContent = has ? `${t.steps_done} of ${t.steps_wanted} steps, ${Math.floor(part * 100)} %` : "";
    byId("training").hidden = byId("what").textContent === "" && !has;
}

function showTiles(s) {
    const best = s.checkpoint.best, e = s.evaluation;
    byId("tiles").replaceChildren();
    tile("test accuracy", known(e.test_accuracy) ? e.test_accuracy.toFixed(4) : "–",
         best ? `best ${best.test_accuracy.toFixed(4)}` : "");
    tile("test loss", short(e.test_loss), known(e.center_version) ? `at version ${e.center_version}` : "");
    tile("training loss", short(meanLoss()), "mean of workers");
    tile("updates/s", short(recentRate()), `over ${RATE_S} s`);
    tile("version", String(s.center.version),
         s.center.updates_rejected > 0 ? `${s.center.updates_rejected} refused` : "of the center");
    const p = s.parameters, kind = p.schedule.kind;
    tile("learning rate", short(p.learning_rate_now),
         p.learning_rate_now === p.learning_rate ? kind : `${kind}, of ${short(p.learning_rate)}`);
    tile("period", periodOf(p), "local steps");
    const w = s.workers, n = w.observers;
    if (w.awaited > 0)
        tile("workers", `${w.active} of ${w.awaited}`, "for the first round");
    else
        tile("workers", String(w.active),
             w.silent > 0 ? `and ${w.silent} silent` : `and ${n} ${n === 1 ? "observer" : "observers"}`);
    if (known(s.center_norm)) tile("‖x̃‖", short(s.center_norm), `of ${s.model.floats} values`);
}

function nonfiniteText(f) {
    const place = f.tensor === null ? "" : `, in tensor ${f.tensor} (value ${f.index})`;
    return `The first value that is not finite: rank ${f.rank} (${f.name}) at its t = ${f.clock}, version ` +
           `${f.center_version}${place}; ${f.sent ? "it was sent and refused" : "its library did not send it"}.`;
}

function notice(id, text) {
    byId(id).hidden = text === null;
    byId(id).textContent = text === null ? "" : text;
}

function showStatus(s) {
    const badge = byId("state");
    badge.textContent = s.state;
    badge.className = `badge ${s.state}`;
    document.title = known(s.evaluation.test_accuracy) ? `${s.evaluation.test_accuracy.toFixed(4)} psd` : "psd";
    byId("about").textContent = `${s.method.name} (rule ${s.method.rule}, admission ${s.method.admission}), ` +
                                `${s.lanes} lanes, up for ${duration(s.uptime_s)}`;
    notice("drain", s.drain_reason === null ? null : `The job ends: ${s.drain_reason}`);
    notice("nonfinite", s.nonfinite === null ? null : nonfiniteText(s.nonfinite));
    showFoot(s);
    showTraining(s.training);
    showTiles(s);
}

function showFoot(s) {
    const c = s.checkpoint;
    byId("foot").textContent = `psd ${s.version} at ${s.listen}, process ${s.pid}. ` +
        (c.last_path === null ? "No checkpoint yet." : `Newest checkpoint: version ${c.last_version}.`) +
        (c.best === null ? "" : ` Best: version ${c.best.version}, ${c.best.path}`) +
        (c.last_error === null ? "" : ` The last one failed: ${c.last_error}`);
}

function endText(said) {
    const why = typeof said.reason === "string" ? ` (${said.reason})` : "";
    const saved = said.checkpoint === null ? "There was no center to save."
                                           : `Version ${said.version} of the center is saved: ${said.checkpoint}`;
    return `The job has ended cleanly${why}. ${saved}`;
}

/* The last state of the job, with psd's answer at its end. No worker is in it any more. */
function showEnd() {
    const {well, said} = job.end, s = job.status, crew = job.crew;
    byId("state").textContent = "ended";
    byId("state").className = `badge ${well ? "ready" : "gone"}`;
    document.body.classList.remove("stale");
    notice("drain", null);
    notice("done", well ? endText(said) : null);
    notice("gone", well ? null : `psd has ended: ${said.error}`);
    if (well) {
        s.center.version = s.checkpoint.last_version = said.version;
        s.checkpoint.last_path = said.checkpoint;
        showFoot(s);
    }
    s.workers = {active: 0, silent: 0, observers: 0};
    for (const worker of crew.workers.splice(0)) crew.ended.push({...worker, state: "ended", end: "with the job"});
    crew.ended.sort((a, b) => a.client - b.client);
    if (!byId("bar").hidden) byId("steps").textContent += ", when last seen";
    showTiles(s);
    showWorkers(crew);
}

/* psd answers this request only when it stops. */
async function askForEnd() {
    if (job.asksForEnd || Date.now() - job.endAskedAt < END_AGAIN_MS) return;
    job.asksForEnd = true;
    job.endAskedAt = Date.now();
    try {
        const answer = await fetch("end", {cache: "no-store"}), said = await answer.json();
        if (answer.status === 200 || answer.status === 500) { /* otherwise it restarts, or holds enough of these */
            job.end = {well: answer.status === 200, said};
            showEnd();
        }
    } catch (error) {
        job.endAskedAt = -Infinity; /* it was killed, or the connection broke: ask again as soon as it is back */
    }
    job.asksForEnd = false;
}

function showGone() {
    const since = new Date(job.heardAt).toLocaleTimeString();
    byId("state").textContent = "no answer";
    byId("state").className = "badge gone";
    document.body.classList.add("stale");
    notice("gone", job.heardAt === 0 ? "psd does not answer. Trying again."
                                     : `psd does not answer since ${since}. The page shows its last answers; trying again.`);
}

async function look() {
    const status = await ask("status"), before = job.status;
    const all = before === null || before.pid !== status.pid || status.uptime_s < before.uptime_s;
    const last = job.records[job.records.length - 1];
    const since = all ? "" : `?since=${last === undefined ? 0 : last.t}`;
    const [workers, history] = await Promise.all([ask("workers"), ask(`history${since}`)]);
    job.status = status;
    job.crew = workers;
    job.heardAt = Date.now();
    if (all) job.counts.clear(); /* a psd that was restarted counts anew */
    takeHistory(history.history, all);
    notice("gone", null);
    notice("done", null);
    document.body.classList.remove("stale");
    showStatus(status);
    showWorkers(workers);
    if (all) job.end = null;
    if (job.end === null) askForEnd();
    else showEnd(); /* these answers are older than the end */
    for (const chart of charts)
        if (all || history.history.length > 0) chart.show(job.records);
}

async function poll() {
    let wait = document.hidden ? HIDDEN_MS : POLL_MS;
    try {
        await look();
        job.failures = 0;
    } catch (error) {
        job.failures++;
        if (job.end === null && (job.failures > 1 || job.heardAt === 0)) showGone(); /* a single lost answer does not mean that psd is gone */
        wait = Math.min(POLL_MS * 2 ** Math.min(job.failures - 1, 5), LONGEST_WAIT_MS);
    }
    job.timer = setTimeout(poll, wait);
}

function begin() {
    const point = (t) => charts.forEach((chart) => chart.point(t));
    for (const spec of SPECS) charts.push(new Chart(byId("charts"), spec, point));
    document.addEventListener("visibilitychange", () => {
        if (document.hidden || job.timer === undefined) return;
        clearTimeout(job.timer);
        job.timer = undefined;
        poll();
    });
    poll();
}

begin();
