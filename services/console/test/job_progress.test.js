import assert from 'node:assert/strict';
import {test} from 'node:test';

import {
    newestLoss,
    newestValidation,
    newProgress,
    participantsWithRefusals,
    shownRound,
    stepsOf,
    applyEvent,
    applyJob,
    applyRounds,
    failedEvaluations,
    opposedUpdates,
    tasksOfRound,
} from '../page/job_progress.js';

let number = 0;
function event(type, data, at = ++number) {
    return {number: at, type: `atoll.${type}.v1`, time: '2026-01-01T00:00:00.000Z', data: {job: 'j', ...data}};
}
function progress(step, loss, more = {}) {
    return event('task.progress', {
        round: 1,
        task: 't1',
        kind: 'train',
        facility: 'a',
        attempt: 1,
        step,
        loss,
        tokens_per_s: 10,
        ...more,
    });
}
function started() {
    number = 0;
    return newProgress();
}
function task(more) {
    return {
        id: 't1',
        kind: 'train',
        facility: 'a',
        dataset: 'd',
        state: 'running',
        attempt: 1,
        step: 'running',
        progress: null,
        ...more,
    };
}
function round(tasks, more = {}) {
    return {round: 1, state: 'training', base: 'b', version: '', evaluated: false, tasks, evaluations: [], ...more};
}

test('progress is gathered into a line of losses', () => {
    const jobProgress = started();
    assert.equal(applyEvent(jobProgress, progress(1, 3)), false);
    applyEvent(jobProgress, progress(2, 2.5));
    const [one] = tasksOfRound(jobProgress, 1, 'train');
    assert.deepEqual(one.points, [
        {step: 1, loss: 3},
        {step: 2, loss: 2.5},
    ]);
    assert.equal(one.progress.step, 2);
    assert.equal(one.facility, 'a');
});

test('an event that comes twice counts once', () => {
    const jobProgress = started();
    const first = progress(1, 3);
    applyEvent(jobProgress, first);
    applyEvent(jobProgress, first);
    applyEvent(jobProgress, progress(1, 3));
    assert.equal(jobProgress.tasks.get('t1').points.length, 1);
    assert.equal(jobProgress.cursor, 2);
    const closed = event('round.closed', {round: 1});
    assert.deepEqual([applyEvent(jobProgress, closed), applyEvent(jobProgress, closed)], [true, false]);
});

test('another attempt begins its line anew, and what the attempt before still says is not taken', () => {
    const jobProgress = started();
    applyEvent(jobProgress, progress(1, 3));
    applyEvent(jobProgress, progress(2, 2));
    applyEvent(jobProgress, progress(1, 3.1, {attempt: 2}));
    applyEvent(jobProgress, progress(3, 1, {attempt: 1}));
    const one = jobProgress.tasks.get('t1');
    assert.deepEqual(one.points, [{step: 1, loss: 3.1}]);
    assert.equal(one.attempt, 2);
    assert.equal(one.progress.step, 1);
});

test('events of an earlier attempt do not take a task back from what the rounds said', () => {
    const jobProgress = started();
    applyRounds(jobProgress, [round([task({attempt: 2, progress: {step: 1, loss: 5}})])]);
    applyEvent(jobProgress, progress(7, 3, {attempt: 1}));
    assert.equal(jobProgress.tasks.get('t1').attempt, 2);
    assert.equal(jobProgress.tasks.get('t1').progress.loss, 5);
});

test('an answer older than the events does not take them back, but tells the state', () => {
    const jobProgress = started();
    applyEvent(jobProgress, progress(5, 2));
    applyRounds(jobProgress, [round([task({progress: {step: 3, loss: 4}, state: 'done'})])]);
    const one = jobProgress.tasks.get('t1');
    assert.equal(one.progress.step, 5);
    assert.equal(one.state, 'done');
    assert.equal(one.dataset, 'd');
    assert.equal(one.points.length, 1);
});

test('a newer answer wins', () => {
    const jobProgress = started();
    applyEvent(jobProgress, progress(5, 2));
    applyRounds(jobProgress, [round([task({attempt: 2, progress: {step: 1, loss: 4}})])]);
    assert.equal(jobProgress.tasks.get('t1').progress.loss, 4);
    assert.equal(jobProgress.tasks.get('t1').attempt, 2);
});

test('what changes rounds asks for them to be read again', () => {
    const jobProgress = started();
    for (const type of [
        'job.submitted',
        'round.opened',
        'task.queued',
        'task.running',
        'task.done',
        'round.closed',
        'round.aggregated',
        'round.evaluated',
    ])
        assert.equal(applyEvent(jobProgress, event(type, {round: 1})), true, type);
    assert.equal(applyEvent(jobProgress, event('something.new', {})), true, 'of a kind that is not known yet');
});

test('an evaluation that is done tells its perplexities, as the rounds do', () => {
    const jobProgress = started();
    const evaluations = [{which: 'global', model: 'm', perplexity: 40, loss: 3.7, tokens: 9}];
    const done = {round: 2, kind: 'evaluate', facility: 'a', dataset: 'd', result: {dataset: 'd', evaluations}};
    assert.equal(applyEvent(jobProgress, event('task.done', done)), true);
    assert.equal(jobProgress.evaluations.size, 1);
    applyRounds(jobProgress, [round([], {round: 2, evaluations: [{facility: 'a', dataset: 'd', ...evaluations[0]}]})]);
    assert.equal(jobProgress.evaluations.size, 1);
    const [one] = jobProgress.evaluations.values();
    assert.deepEqual([one.round, one.which, one.perplexity], [2, 'global', 40]);
});

test('the event that ends a job ends it', () => {
    const jobProgress = started();
    applyJob(jobProgress, {id: 'j', state: 'running'});
    applyEvent(jobProgress, event('job.submitted', {}));
    assert.equal(jobProgress.job.state, 'running');
    applyEvent(jobProgress, event('job.failed', {error: 'no'}));
    assert.equal(jobProgress.job.state, 'failed');
});

test('a long training keeps a bounded line from its first to its latest steps', () => {
    const jobProgress = started();
    for (let step = 1; step <= 10000; ++step) applyEvent(jobProgress, progress(step, 1 / step));
    const {points} = jobProgress.tasks.get('t1');
    assert.ok(points.length > 150 && points.length <= 400, `${points.length}`);
    assert.equal(points[0].step, 1);
    assert.ok(points.at(-1).step > 9900);
    assert.ok(points.every((point, i) => i === 0 || point.step > points[i - 1].step));
});

test('an event of many steps is a line through all of them, and what is missing is a gap', () => {
    const jobProgress = started();
    applyEvent(jobProgress, progress(3, 1, {points: {step: [1, 2, 3], loss: [3, null, 1]}}));
    applyEvent(jobProgress, progress(6, 0.5));
    applyEvent(jobProgress, progress(206, 0.2, {points: {step: [106, 206], loss: [0.3, 0.2], steps: [100, 100]}}));
    assert.deepEqual(jobProgress.tasks.get('t1').points, [
        {step: 1, loss: 3},
        {step: 3, loss: 1},
        {step: 6, loss: 0.5, gap: true},
        {step: 106, loss: 0.3},
        {step: 206, loss: 0.2},
    ]);
});

test('validations are points at their steps, whether they come with their step or after it', () => {
    const jobProgress = started();
    applyEvent(jobProgress, progress(3, 1, {points: {step: [1, 2, 3], loss: [3, 2, 1], val_loss: [null, 2.5, null]}}));
    applyEvent(jobProgress, progress(4, 0.9));
    applyEvent(jobProgress, event('task.progress', {round: 1, task: 't1', kind: 'train', facility: 'a', attempt: 1, step: 4, val_loss: 2}));
    const one = jobProgress.tasks.get('t1');
    assert.deepEqual(one.validations, [
        {step: 2, loss: 2.5},
        {step: 4, loss: 2},
    ]);
    assert.equal(one.points.length, 4);
    assert.equal(one.progress.loss, 0.9, 'a validation takes nothing from its step');
    assert.equal(newestValidation(one), 2);
    applyEvent(jobProgress, progress(4, 0.8, {attempt: 2}));
    assert.deepEqual(one.validations, [{step: 2, loss: 2.5}], 'trained again');
    for (let step = 5; step <= 2000; ++step) applyEvent(jobProgress, progress(step, 1, {attempt: 2, val_loss: 1}));
    assert.ok(one.validations.length > 150 && one.validations.length <= 400, `${one.validations.length}`);
    assert.equal(one.validations.at(-1).step, 2000);
    assert.equal(newestValidation({progress: {val_loss: 7}}), 7, 'as the rounds have it');
    assert.equal(newestValidation({}), undefined);
});

test('the newest loss stays where a step tells none', () => {
    const jobProgress = started();
    applyEvent(jobProgress, progress(1, 2.5));
    applyEvent(jobProgress, progress(2, undefined));
    const one = jobProgress.tasks.get('t1');
    assert.equal(one.progress.step, 2);
    assert.equal(newestLoss(one), 2.5);
    assert.equal(newestLoss({points: []}), undefined);
});

test('an attempt that goes on from a saved state keeps the line up to there', () => {
    const jobProgress = started();
    for (let step = 1; step <= 4; ++step) applyEvent(jobProgress, progress(step, step));
    applyEvent(jobProgress, progress(3, 30, {attempt: 2}));
    assert.deepEqual(jobProgress.tasks.get('t1').points, [
        {step: 1, loss: 1},
        {step: 2, loss: 2},
        {step: 3, loss: 30},
    ]);
});

test('a gap stays where a long line is thinned', () => {
    const jobProgress = started();
    for (let step = 1; step <= 3000; ++step)
        if (step <= 1000 || step > 2000) applyEvent(jobProgress, progress(step, 1));
    const gaps = jobProgress.tasks.get('t1').points.filter((point) => point.gap);
    assert.equal(gaps.length, 1);
    assert.ok(gaps[0].step > 2000 && gaps[0].step < 2020, `${gaps[0].step}`);
});

test('a round that is open when its job ends has ended with it', () => {
    const jobProgress = started();
    const open = {round: 2, state: 'training', opened_at: 'x', closed_at: null};
    applyJob(jobProgress, {id: 'j', state: 'running', finished_at: null});
    assert.equal(shownRound(jobProgress, open).state, 'training');
    applyJob(jobProgress, {id: 'j', state: 'cancelled', finished_at: 'y'});
    assert.deepEqual(shownRound(jobProgress, open), {...open, state: 'cancelled', closed_at: 'y'});
});

test('a loss that is no number is left out of the line', () => {
    const jobProgress = started();
    applyEvent(jobProgress, progress(1, null));
    assert.equal(jobProgress.tasks.get('t1').points.length, 0);
});

test("the steps of a training are the participant's own, else the job's, else unknown", () => {
    const spec = {training: {steps: 20}, participants: [{facility: 'a', dataset: 'd', training: {steps: 5}}]};
    assert.equal(stepsOf({spec}, {facility: 'a', dataset: 'd'}), 5);
    assert.equal(stepsOf({spec}, {facility: 'b', dataset: 'd'}), 20);
    assert.equal(stepsOf({spec: {training: {epochs: 1}, participants: []}}, {facility: 'b'}), 0);
});

test('who has had updates refused is listed, the worst first', () => {
    const one = (facility, refusals, state = 'active') => ({facility, refusals, state, reason: 'NaN'});
    const job = {participants: [one('a', 0), one('c', 1), one('b', 1), one('d', 2, 'quarantined')]};
    assert.deepEqual(
        participantsWithRefusals(job).map((each) => each.facility),
        ['d', 'b', 'c']
    );
    assert.deepEqual(participantsWithRefusals({}), [], 'a coordinator of before');
});

test('who has pointed away from the others for rounds is found', () => {
    const jobProgress = started();
    const apart = task({id: 't2', facility: 'b', contribution: {share: 0.5, cosine: -0.9, opposed_rounds: 3}});
    applyRounds(jobProgress, [round([task({contribution: {share: 0.5, cosine: 0.1}}), apart])]);
    assert.deepEqual(
        opposedUpdates(jobProgress, 1).map((one) => one.facility),
        ['b']
    );
    assert.deepEqual(opposedUpdates(jobProgress, 2), []);
});

test('of evaluations that failed it is said how many and why', () => {
    const reason = 'exit code 1';
    assert.equal(failedEvaluations({count: 3, of: 3, reason}), 'All 3 evaluations failed: exit code 1');
    assert.equal(failedEvaluations({count: 1, of: 3, reason}), '1 of 3 evaluations failed: exit code 1');
    assert.equal(failedEvaluations({count: 1, of: 1, reason: ''}), 'Its evaluation failed.');
    assert.equal(
        failedEvaluations({count: 1, of: 3, reason, partly: 1}),
        '1 of 3 evaluations failed for some of the models: exit code 1'
    );
    assert.equal(failedEvaluations({count: 2, of: 2, reason: '', partly: 1}), 'All 2 evaluations failed, 1 for some of the models.');
});
