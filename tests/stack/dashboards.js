// The Grafana dashboards of compose/observe/dashboards, without Grafana: each panel says what it shows and in which unit,
// none stands on another, each data source is a variable, and each metric is one of docs/reference/metrics.md or a recorded
// series. With the address of a Prometheus each query is sent there until it has found a series; those that have found none
// after so many seconds are faults, but for those of metrics that a training of local facilities does not have.
//   node dashboards.js [PROMETHEUS SECONDS]

import {readFileSync, readdirSync} from 'node:fs';

const root = new URL('../../', import.meta.url);
const directory = new URL('compose/observe/dashboards/', root);
const reference = readFileSync(new URL('docs/reference/metrics.md', root), 'utf8');
const rules = readFileSync(new URL('compose/observe/alerts.yaml', root), 'utf8');
const recorded = new Set([...rules.matchAll(/- record: (\S+)/g)].map(([, name]) => name));
const known = new Set([...reference.matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name));
const ofPrometheus = new Set(['up', 'ALERTS']);

// Tasks that wait for something, and logins by ssh.
const notHere = /atoll_tasks_waiting|atoll_facility_login_budget_remaining/;

const faults = [];
const fault = (file, what) => faults.push(`${file}: ${what}`);

function checkPanel(file, panel, panels) {
    const name = `"${panel.title}"`;
    const {x, y, w, h} = panel.gridPos;
    if (!panel.title) fault(file, `panel ${panel.id} has no title`);
    if (x + w > 24) fault(file, `${name} is wider than the board`);
    for (const other of panels) {
        const at = other.gridPos;
        const isApart = x + w <= at.x || at.x + at.w <= x || y + h <= at.y || at.y + at.h <= y;
        if (other !== panel && !isApart) fault(file, `${name} stands on "${other.title}"`);
    }
    if (panel.type === 'row') return;
    if (!panel.description) fault(file, `${name} does not say what it shows`);
    const {unit, custom} = panel.fieldConfig.defaults;
    if (!unit) fault(file, `${name} has no unit`);
    if (panel.type === 'timeseries' && !custom.axisLabel) fault(file, `${name} has no name at its axis`);
    for (const {uid} of [panel, ...panel.targets].map(({datasource}) => datasource))
        if (uid !== '${datasource}') fault(file, `${name} names a data source of its own`);
    for (const {expr} of panel.targets)
        for (const [metric] of expr.matchAll(/\w+:\w+:\w+|\b(atoll_|process_)\w+|\bup\b|\bALERTS\b/g)) {
            const base = metric.replace(/_(bucket|sum|count)$/, '');
            const isKnown = known.has(metric) || known.has(base) || recorded.has(metric) || ofPrometheus.has(metric) || metric === 'atoll_job';
            if (!isKnown) fault(file, `${name} asks for ${metric}, which nobody serves`);
        }
}

async function findsSeries(prometheus, {file, title, expr}) {
    // Not "0 of none": what is counted must be there.
    const counted = expr.replace(/ or vector\(0\)$/, '').replace(/ > 0\)$/, ')');
    const query = counted.replace(/\$__rate_interval/g, '1m').replace(/\$\w+/g, '.*');
    const answer = await fetch(`${prometheus}/api/v1/query?query=${encodeURIComponent(query)}`);
    const {error, data} = await answer.json();
    if (error) throw new Error(`${file}: "${title}": ${error}: ${expr}`);
    return data.result.length > 0;
}

// Asks until all have found something, as much is there only while a training runs.
async function askAll(prometheus, queries, seconds) {
    const end = Date.now() + 1000 * seconds;
    let left = queries;
    while (left.length > 0 && Date.now() < end) {
        const found = await Promise.all(left.map((query) => findsSeries(prometheus, query)));
        left = left.filter((_, i) => !found[i]);
        await new Promise((resolve) => setTimeout(resolve, 1000));
    }
    for (const {file, title, expr} of left)
        if (notHere.test(expr)) console.log(`${file}: "${title}" has nothing to show here`);
        else fault(file, `"${title}" finds no series: ${expr}`);
    console.log(`${queries.length - left.length} of ${queries.length} queries found a series`);
}

const [prometheus, seconds] = process.argv.slice(2);
const queries = [];
const uids = new Set();
for (const file of readdirSync(directory)) {
    const {uid, title, templating, panels} = JSON.parse(readFileSync(new URL(file, directory), 'utf8'));
    if (uid !== `atoll-${file.replace('.json', '')}` || uids.has(uid)) fault(file, `its uid is ${uid}`);
    uids.add(uid);
    if (new Set(panels.map(({id}) => id)).size !== panels.length) fault(file, 'two panels have one id');
    if (!templating.list.some(({name, type}) => name === 'datasource' && type === 'datasource'))
        fault(file, 'its data source is no variable');
    for (const panel of panels) checkPanel(file, panel, panels);
    const own = panels.flatMap(({title, targets}) => (targets ?? []).map(({expr}) => ({file, title, expr})));
    queries.push(...own);
    console.log(`${title}: ${panels.length} panels, ${own.length} queries`);
}
if (prometheus) await askAll(prometheus, queries, Number(seconds));
for (const one of faults) console.error(one);
process.exitCode = faults.length > 0 ? 1 : 0;
