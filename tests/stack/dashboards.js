// The Grafana dashboards of compose/observe/dashboards, without Grafana: each panel says what it shows and in which unit,
// none stands on another, each data source is a variable, and each metric is one of docs/reference/metrics.md. With the
// address of a Prometheus each query is sent there; those whose metrics need a running job may find nothing.
//   node dashboards.js [PROMETHEUS]

import {readFileSync, readdirSync} from 'node:fs';

const root = new URL('../../', import.meta.url);
const directory = new URL('compose/observe/dashboards/', root);
const reference = readFileSync(new URL('docs/reference/metrics.md', root), 'utf8');
const known = new Set([...reference.matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name));
const ofPrometheus = new Set(['up', 'ALERTS']);
// What only a facility by ssh, a job or its trainings bring.
const needsJob = /training|perplexity|round_seconds|round_updates|expected_end|phase_seconds|queue_wait|node_seconds|tasks|transfer|attempts_failed|facility|ALERTS|certificate|token/;

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
        for (const [metric] of expr.matchAll(/\b(atoll_|process_)\w+|\bup\b|\bALERTS\b/g)) {
            const base = metric.replace(/_(bucket|sum|count)$/, '');
            const isKnown = known.has(metric) || known.has(base) || ofPrometheus.has(metric) || metric === 'atoll_job';
            if (!isKnown) fault(file, `${name} asks for ${metric}, which nobody serves`);
        }
}

async function ask(prometheus, file, {title, targets}) {
    for (const {expr} of targets) {
        const query = expr.replace(/\$__rate_interval/g, '1m').replace(/\$\w+/g, '.*');
        const answer = await fetch(`${prometheus}/api/v1/query?query=${encodeURIComponent(query)}`);
        const {error, data} = await answer.json();
        if (error) fault(file, `"${title}": ${error}: ${expr}`);
        else if (data.result.length === 0 && !needsJob.test(expr)) fault(file, `"${title}" finds no series: ${expr}`);
    }
}

const prometheus = process.argv[2];
const uids = new Set();
for (const file of readdirSync(directory)) {
    const {uid, title, templating, panels} = JSON.parse(readFileSync(new URL(file, directory), 'utf8'));
    if (uid !== `atoll-${file.replace('.json', '')}` || uids.has(uid)) fault(file, `its uid is ${uid}`);
    uids.add(uid);
    if (new Set(panels.map(({id}) => id)).size !== panels.length) fault(file, 'two panels have one id');
    if (!templating.list.some(({name, type}) => name === 'datasource' && type === 'datasource'))
        fault(file, 'its data source is no variable');
    for (const panel of panels) checkPanel(file, panel, panels);
    for (const panel of prometheus ? panels.filter(({type}) => type !== 'row') : []) await ask(prometheus, file, panel);
    const queries = panels.reduce((sum, {targets}) => sum + (targets?.length ?? 0), 0);
    console.log(`${title}: ${panels.length} panels, ${queries} queries`);
}
for (const one of faults) console.error(one);
process.exitCode = faults.length > 0 ? 1 : 0;
