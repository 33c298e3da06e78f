import assert from 'node:assert/strict';
import {existsSync, readFileSync} from 'node:fs';
import {test} from 'node:test';

import {rules} from '../page/problem_rules.js';
import {diagnose, readSamples} from '../page/problems.js';

const now = 1_800_000_000;
const lines = (problems) => problems.map(({severity, about, what}) => `${severity} ${about}: ${what}`);
const of = (name, text) => [{name, samples: readSamples(text)}];

test('samples are read with their labels, and what is none is left out', () => {
    const text = '# HELP a b\na 1\nb{x="y",z="q\\"\\\\\\n"} 2.5\nb{} NaN\nbroken\nhistogram_bucket{le="+Inf"} 3\n';
    assert.deepEqual(readSamples(text), [
        {metric: 'a', labels: {}, value: 1},
        {metric: 'b', labels: {x: 'y', z: 'q"\\\n'}, value: 2.5},
        {metric: 'histogram_bucket', labels: {le: '+Inf'}, value: 3},
    ]);
});

test('a stack that is well has no problems', () => {
    const text = 'atoll_ready{dependency="kafka"} 1\natoll_store_disk_free_bytes 9\natoll_store_disk_reserve_bytes 2\n';
    assert.deepEqual(diagnose(of('store', text), [], now), []);
});

test('what is critical comes first, and a facility says why it is away', () => {
    const seen = [
        ...of('dispatch', 'atoll_facility_silent_seconds{facility="alpha"} 125\natoll_due_task_age_seconds 301\n'),
        {name: 'store', error: 'The service does not answer at the moment.'},
    ];
    assert.deepEqual(lines(diagnose(seen, [{name: 'alpha', waiting: {reason: 'Permission denied'}}], now)), [
        'critical dispatch: a task has been waiting for a worker for 5 min 1 s',
        'critical store: does not answer: The service does not answer at the moment.',
        'warning alpha: has been unusable for 2 min 5 s: Permission denied',
    ]);
});

test('a disk is judged by its reserve, and what ends soon is told before', () => {
    const free = (reserve) => of('store', `atoll_store_disk_free_bytes 2047\n${reserve}`);
    assert.deepEqual(lines(diagnose(free('atoll_store_disk_reserve_bytes 1024'), [], now)), [
        'critical store: its disk has 2\u00a0KiB free; uploads are refused soon',
    ]);
    assert.deepEqual(diagnose(free(''), [], now), []);
    const ends = `atoll_certificate_expiry_timestamp_seconds{use="gateway"} ${now + 3 * 86400}\n`;
    assert.deepEqual(lines(diagnose(of('dispatch', ends), [], now)), [
        'warning gateway: the certificate ends in 3 d',
    ]);
});

test('each alert rule has its line here, and asks for the same metric', () => {
    const source = readFileSync(new URL('../../../compose/observe/alerts.yaml', import.meta.url), 'utf8');
    const alerts = [...source.matchAll(/- alert: (\w+)\n +expr: (.*)/g)].filter(([, name]) => name !== 'AtollServiceDown');
    assert.deepEqual(
        rules.map(({alert}) => alert),
        alerts.map(([, name]) => name)
    );
    alerts.forEach(([, name, expression], i) => assert.ok(expression.includes(rules[i].metric), name));
    for (const {alert} of rules)
        assert.ok(existsSync(new URL(`../../../docs/operate/alerts/${alert}.md`, import.meta.url)), alert);
});
