import assert from 'node:assert/strict';
import {test} from 'node:test';

import {applyJob, applyRounds, newProgress} from '../page/job_progress.js';
import {expectedEnd, moved, roundTimeline, timeSpent} from '../page/timeline.js';

const at = (second) => new Date(Date.UTC(2026, 2, 1, 12, 0, second)).toISOString();
const time = (second) => Date.parse(at(second));
const phase = (name, from, to, bytes = 0) => ({
    phase: name,
    began_at: at(from),
    ended_at: to === null ? null : at(to),
    bytes,
});
const task = (id, facility, phases, more = {}) => ({id, kind: 'train', facility, dataset: 'd', state: 'done', phases, ...more});

function jobProgress() {
    const one = newProgress();
    applyJob(one, {id: 'j', state: 'running', round: 2, rounds: 4, spec: {}});
    applyRounds(one, [
        {
            round: 1,
            state: 'closed',
            opened_at: at(0),
            aggregating_at: at(50),
            closed_at: at(60),
            tasks: [
                task('b1', 'beta', [phase('staging', 1, 11, 1000), phase('queued', 12, 20), phase('running', 20, 40)]),
                task('a1', 'alpha', [phase('running', 10, 40), phase('collecting', 40, 50, 500)]),
                task('e1', 'alpha', [phase('running', 60, 65)], {kind: 'evaluate'}),
            ],
            evaluations: [],
        },
        {
            round: 2,
            state: 'training',
            opened_at: at(60),
            aggregating_at: null,
            closed_at: null,
            tasks: [task('a2', 'alpha', [phase('running', 70, null)], {state: 'running'}), task('b2', 'beta', undefined)],
            evaluations: [],
        },
    ]);
    return one;
}

test('a round is a row a participant, then the coordinator, then evaluations, in seconds since it was opened', () => {
    const {rows, isOpen} = roundTimeline(jobProgress(), 1, time(100));
    assert.equal(isOpen, false);
    assert.deepEqual(
        rows.map(({name, bars}) => `${name}: ${bars.map((bar) => `${bar.phase} ${bar.from}-${bar.to}`).join(' ')}`),
        [
            'alpha: running 10-40 collecting 40-50',
            'beta: staging 1-11 queued 12-20 running 20-40',
            'coordinator: aggregating 50-60',
            'alpha: evaluation: running 60-65',
        ]
    );
});

test('what lasts still ends now, and what has not begun has no row', () => {
    const {rows, isOpen} = roundTimeline(jobProgress(), 2, time(100));
    assert.equal(isOpen, true);
    assert.deepEqual(rows, [
        {name: 'alpha', bars: [{phase: 'running', from: 10, to: 40, isOpen: true, bytes: 0}]},
    ]);
    assert.deepEqual(roundTimeline(jobProgress(), 7, time(100)).rows, []);
});

test('the time of all rounds stands one phase behind the other', () => {
    assert.deepEqual(timeSpent(jobProgress(), time(100)), [
        {
            name: 'alpha',
            bars: [
                {phase: 'running', from: 0, to: 65},
                {phase: 'collecting', from: 65, to: 75},
            ],
        },
        {
            name: 'beta',
            bars: [
                {phase: 'staging', from: 0, to: 10},
                {phase: 'queued', from: 10, to: 18},
                {phase: 'running', from: 18, to: 38},
            ],
        },
    ]);
});

test('bytes have the time that they took', () => {
    assert.deepEqual(moved(jobProgress(), time(100)), [
        {name: 'alpha', in: {bytes: 0, seconds: 0}, out: {bytes: 500, seconds: 10}},
        {name: 'beta', in: {bytes: 1000, seconds: 10}, out: {bytes: 0, seconds: 0}},
    ]);
});

test('a job ends when the rounds that are left have taken as long as those before', () => {
    const one = jobProgress();
    assert.equal(expectedEnd(one, time(100)), time(60 + 3 * 60));
    assert.equal(expectedEnd(one, time(1000)), time(1000), 'never before now');
    one.job.state = 'completed';
    assert.equal(expectedEnd(one, time(100)), null);
});
