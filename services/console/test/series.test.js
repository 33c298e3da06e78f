import assert from 'node:assert/strict';
import {test} from 'node:test';

import {newProgress, applyJob, applyRounds} from '../page/job_progress.js';
import {facilitiesOf, lineage, lossSeries, perplexityPanels} from '../page/series.js';

function jobProgressWith(rounds, job = {}) {
    const jobProgress = newProgress();
    applyJob(jobProgress, {id: 'j', spec: {participants: []}, ...job});
    applyRounds(
        jobProgress,
        rounds.map((round) => ({state: 'closed', base: '', version: '', tasks: [], evaluations: [], ...round}))
    );
    return jobProgress;
}
function training(id, facility, dataset, more = {}) {
    return {id, kind: 'train', facility, dataset, state: 'done', attempt: 1, progress: null, ...more};
}

test('losses of several rounds follow one another on one axis of steps', () => {
    const jobProgress = jobProgressWith([
        {round: 1, tasks: [training('1a', 'a', 'd'), training('1b', 'b', 'd')]},
        {round: 2, tasks: [training('2a', 'a', 'd')]},
    ]);
    jobProgress.tasks.get('1a').points = [
        {step: 1, loss: 3},
        {step: 4, loss: 2},
    ];
    jobProgress.tasks.get('1b').points = [
        {step: 1, loss: 5},
        {step: 9, loss: 4},
    ];
    jobProgress.tasks.get('2a').points = [{step: 1, loss: 1}];
    const {series, starts} = lossSeries(jobProgress);
    assert.deepEqual(starts, [
        [1, 0],
        [2, 9],
    ]);
    assert.deepEqual(
        series.map((one) => one.name),
        ['a', 'b']
    );
    assert.deepEqual(series[0].points, [
        {x: 1, y: 3},
        {x: 4, y: 2},
        {x: 10, y: 1},
    ]);
});

test('a training that validates has a second line, which each round begins anew', () => {
    const jobProgress = jobProgressWith([
        {round: 1, tasks: [training('1a', 'a', 'd'), training('1b', 'b', 'd')]},
        {round: 2, tasks: [training('2a', 'a', 'd')]},
    ]);
    const give = (id, points, validations) => Object.assign(jobProgress.tasks.get(id), {points, validations});
    give('1a', [{step: 1, loss: 3}, {step: 4, loss: 2}], [{step: 2, loss: 2.75}, {step: 4, loss: 2.5}]);
    give('1b', [{step: 4, loss: 4}], []);
    give('2a', [{step: 2, loss: 1}], [{step: 2, loss: 1.5}]);
    const {series} = lossSeries(jobProgress);
    assert.deepEqual(
        series.map((one) => [one.name, one.facility, one.isValidation]),
        [
            ['a', 'a', false],
            ['a, validation', 'a', true],
            ['b', 'b', false],
        ]
    );
    assert.deepEqual(series[1].points, [
        {x: 2, y: 2.75, gap: true},
        {x: 4, y: 2.5},
        {x: 6, y: 1.5, gap: true},
    ]);
});

test('a facility that takes part with two datasets has two lines', () => {
    const jobProgress = jobProgressWith([
        {round: 1, tasks: [training('1', 'a', 'd'), training('2', 'a', 'e'), training('3', 'b', 'd')]},
    ]);
    for (const task of jobProgress.tasks.values()) task.points = [{step: 1, loss: 1}];
    assert.deepEqual(
        lossSeries(jobProgress).series.map((one) => one.name),
        ['a d', 'a e', 'b']
    );
    assert.deepEqual(facilitiesOf(jobProgress), ['a', 'b']);
});

test('nothing trained is no series', () => {
    assert.deepEqual(lossSeries(jobProgressWith([{round: 1, tasks: [training('1', 'a', 'd')]}])).series, []);
    assert.deepEqual(perplexityPanels(newProgress()), []);
});

test('a panel a place: the global line begins at the base, each update has its own', () => {
    const at = (which, perplexity, dataset = 'd') => ({facility: 'a', dataset, which, model: which, perplexity});
    const jobProgress = jobProgressWith([
        {round: 1, evaluations: [at('global', 40), at('x', 30), at('a', 0)]},
        {round: 0, evaluations: [at('base', 90), at('base', 80, 'c')]},
    ]);
    const panels = perplexityPanels(jobProgress);
    assert.deepEqual(
        panels.map((panel) => panel.dataset),
        ['c', 'd']
    );
    assert.deepEqual(
        panels[1].series,
        [
            {
                name: 'global',
                isGlobal: true,
                points: [
                    {x: 0, y: 90},
                    {x: 1, y: 40},
                ],
            },
            {name: 'x', isGlobal: false, points: [{x: 1, y: 30}]},
        ],
        'what has no logarithm is left out'
    );
});

test("the lineage takes the weights of the store's records of this job", () => {
    const jobProgress = jobProgressWith([
        {round: 0, base: 'b', version: 'b'},
        {round: 1, base: 'b', version: 'v1', tasks: [training('1', 'a', 'd', {version: 'u1', tokens: 10})]},
        {round: 2, base: 'v1', version: '', state: 'training'},
    ]);
    const records = [
        {kind: 'update', job: 'j', round: 1, contributions: []},
        {
            kind: 'global',
            job: 'j',
            round: 1,
            size: 7,
            tags: ['t'],
            contributions: [
                {facility: 'a', version: 'u1', weight: 3, tokens: 30},
                {facility: 'b', version: 'u2', weight: 1, tokens: 10},
            ],
        },
    ];
    records.push({kind: 'global', job: 'another', round: 1, contributions: []});
    const [only, ...more] = lineage(jobProgress, records);
    assert.equal(more.length, 0, 'neither the base nor an open round made one');
    assert.deepEqual([only.round, only.parent, only.version, only.size], [1, 'b', 'v1', 7]);
    assert.deepEqual(
        only.contributions.map((one) => one.share),
        [0.75, 0.25]
    );
    const [without] = lineage(jobProgress, []);
    const [update] = without.contributions;
    assert.deepEqual([update.facility, update.version, update.tokens, update.share], ['a', 'u1', 10, null]);
    assert.equal(update.norm, undefined, 'nothing was measured');
});
