// What the panels of the console make of the services' metrics at several looks.

import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import test from 'node:test';

import {History} from '../page/history.js';
import {boards} from '../page/panels.js';
import {readSamples} from '../page/problems.js';

const dashboards = new URL('../../../compose/observe/dashboards/', import.meta.url);

// A history of looks 15 s apart, each {service: text of its metrics}.
function historyOf(panels, looks, gapsS = []) {
    const history = new History({panels}, 15000);
    let timeS = 1000;
    for (const [i, look] of looks.entries()) {
        timeS += i === 0 ? 0 : (gapsS[i] ?? 15);
        history.add(
            timeS,
            Object.entries(look).map(([name, text]) => ({name, samples: readSamples(text)}))
        );
    }
    return history;
}

const panel = (line, more = {}) => ({title: 'T', yName: 'y', lines: [line], ...more});
const values = (history, one, job) =>
    Object.fromEntries(history.series(one, job).map(({name, points}) => [name, points.map(({y}) => y)]));

test('samples of several services become one value by max, min or sum', () => {
    for (const [across, value] of [
        ['max', 5],
        ['min', 2],
        ['sum', 7],
    ]) {
        const one = panel({metric: 'm', by: ['facility'], across});
        const history = historyOf([one], [{a: 'm{facility="x"} 2\n', b: 'm{facility="x"} 5\n'}]);
        assert.deepEqual(values(history, one), {x: [value]});
    }
});

test('only samples with the wanted labels count', () => {
    const text = 'm{status="200"} 1\nm{status="404"} 2\nm{status="503"} 4\n';
    for (const [where, sum] of [
        [{status: '404'}, 2],
        [{status: ['200', '503']}, 5],
        [{status: /^[45]/}, 6],
    ]) {
        const one = panel({metric: 'm', by: [], across: 'sum', where, name: 'n'});
        assert.deepEqual(values(historyOf([one], [{a: text}]), one), {n: [sum]});
    }
});

test('a counter that begins anew is counted on', () => {
    const one = panel({metric: 'm_total', by: ['instance'], across: 'sum', take: 'increase'});
    const history = historyOf(
        [one],
        [100, 103, 2, 6].map((value) => ({store: `m_total ${value}\n`}))
    );
    assert.deepEqual(values(history, one), {store: [0, 3, 5, 9]});
});

test('a rate is of the time between two looks, and nothing across a restart', () => {
    const one = panel({metric: 'm_total', by: ['instance'], across: 'sum', take: 'rate'});
    const history = historyOf(
        [one],
        [0, 30, 5, 35].map((value) => ({store: `m_total ${value}\n`})),
        [0, 15, 15, 10]
    );
    assert.deepEqual(values(history, one), {store: [2, 3]});
});

test('a mean is of what came since the look before', () => {
    const one = panel({metric: 'm', by: ['instance'], across: 'sum', take: 'mean', scale: 1000});
    const at = (sum, count) => ({a: `m_sum{route="/x"} ${sum}\nm_count{route="/x"} ${count}\n`});
    const history = historyOf([one], [at(10, 5), at(10, 5), at(11, 9)]);
    assert.deepEqual(values(history, one), {a: [250]});
});

test('a speed is of what came for each second of the other counter', () => {
    const one = panel({metric: 'b_total', over: 's_total', by: ['facility'], across: 'sum', take: 'mean'});
    const at = (bytes, seconds) => ({a: `b_total{facility="x"} ${bytes}\ns_total{facility="x"} ${seconds}\n`});
    assert.deepEqual(values(historyOf([one], [at(0, 0), at(60, 3), at(60, 3), at(80, 4)]), one), {x: [20, 20]});
});

test('days are left until a time, seconds have gone since one', () => {
    const left = panel({metric: 'end', by: ['token'], across: 'min', take: 'left'});
    const age = panel({metric: 'end', by: ['token'], across: 'min', take: 'age'});
    const history = historyOf([left, age], [{a: `end{token="t"} ${1000 + 86400 * 2}\n`}]);
    assert.deepEqual(values(history, left), {t: [2]});
    assert.deepEqual(values(history, age), {t: [-86400 * 2]});
});

test('the lines of a job are those of its name', () => {
    const one = panel({metric: 'loss', by: ['facility'], across: 'max', ofJob: true});
    const history = historyOf([one], [{a: 'loss{facility="x",atoll_job="j"} 1\nloss{facility="y",atoll_job="k"} 2\n'}]);
    assert.deepEqual(values(history, one, 'j'), {x: [1]});
});

test('where nobody looked there is a gap', () => {
    const one = panel({metric: 'm', by: [], across: 'max', name: 'n'});
    const [{points}] = historyOf([one], [{a: 'm 1\n'}, {a: 'm 2\n'}, {a: 'm 3\n'}], [0, 15, 600]).series(one);
    assert.deepEqual(
        points.map(({gap}) => gap ?? false),
        [false, false, true]
    );
});

test('states are bars that go on while nothing changes', () => {
    const one = panel(
        {metric: 'up', by: ['facility'], across: 'min'},
        {shows: 'states', phase: (value) => (value >= 1 ? 'up' : 'down')}
    );
    const rows = historyOf(
        [one],
        [1, 1, 0, 0].map((value) => ({a: `up{facility="x"} ${value}\n`}))
    ).states(one);
    assert.deepEqual(rows, [
        {
            name: 'x',
            bars: [
                {phase: 'up', from: 0, to: 30, isOpen: false},
                {phase: 'down', from: 30, to: 60, isOpen: true},
            ],
        },
    ]);
});

test('it keeps an hour of looks', () => {
    const one = panel({metric: 'm', by: [], across: 'max', name: 'n'});
    const history = historyOf(
        [one],
        Array.from({length: 300}, (_, i) => ({a: `m ${i}\n`}))
    );
    const [{points}] = history.series(one);
    assert.equal(points.length, 240);
    assert.equal(points.at(-1).y, 299);
});

// What the console shows elsewhere: above every view, in the table of jobs, or from a job's events.
const elsewhere = new Set([
    'Alerts that fire',
    'Services that answer',
    'Facilities that do not answer',
    'When jobs end',
    'Jobs',
    'Loss',
    'Perplexity of the global model',
]);

test('each panel of the dashboards is in the console', () => {
    for (const [name, board] of Object.entries(boards)) {
        const {panels} = JSON.parse(readFileSync(new URL(`${name}.json`, dashboards)));
        const wanted = panels.filter(({type}) => type !== 'row').map(({title}) => title);
        const titles = new Set([...board, ...boards.facilities].map(({title}) => title));
        assert.deepEqual(
            wanted.filter((title) => !titles.has(title) && !elsewhere.has(title)),
            [],
            name
        );
    }
});

test('each panel asks for metrics that the dashboard of its name asks for', () => {
    for (const [name, board] of Object.entries(boards)) {
        const text = readFileSync(new URL(`${name}.json`, dashboards), 'utf8');
        for (const {title, lines} of board)
            for (const {metric} of lines) // what is recorded lacks the end of its name
                assert.ok(text.includes(metric.replace(/_total$/, '')), `${name}: ${title}: ${metric}`);
    }
});
