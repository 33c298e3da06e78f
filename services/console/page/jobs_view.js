// All jobs, newest first.

import {showBoard} from './board_view.js';
import {badge, bar, h, notice, refresh, table} from './dom.js';
import {age, between, closedRounds, moment, roundOf} from './format.js';
import {boards} from './panels.js';
import {poll} from './poll.js';

const intervalMs = 5000;

function progress(job) {
    const closed = closedRounds(job);
    return [`${roundOf(job)} `, bar(closed, job.rounds, `${closed} of ${job.rounds} rounds closed`)];
}

// What its tasks wait for: each facility with its reason.
function waits(job, now) {
    return (job.waits ?? []).map((one) => notice(`${one.facility}: ${one.reason}, first ${age(one.since, now)}`, ''));
}

function row(job, now) {
    return [
        h('a', {href: `#/jobs/${encodeURIComponent(job.id)}`, 'data-key': job.id}, job.name),
        [badge(job.state), job.error ? notice(job.error, 'bad') : null, waits(job, now)],
        progress(job),
        h('time', {datetime: job.created_at, title: moment(job.created_at)}, age(job.created_at, now)),
        between(job.created_at, job.finished_at, now),
        job.output_model,
    ];
}

function content(jobs, now) {
    if (jobs.length === 0)
        return notice(
            'There is no job yet. "atoll job init job.yaml" writes a file to start from, "atoll job submit" runs it.'
        );
    const columns = ['Job', 'State', 'Round', 'Started', 'Took', 'Model'];
    return table(
        'Jobs, newest first',
        columns,
        jobs.map((job) => row(job, now))
    );
}

export async function showJobs(view) {
    const list = h('section', {'aria-label': 'Jobs'});
    const board = h('section', {'aria-label': 'The federation in time'});
    await poll(view, intervalMs, async () => {
        const jobs = await view.api.all('/dispatch/v1/jobs', {signal: view.signal});
        if (!list.isConnected) {
            view.main.replaceChildren(h('h1', null, 'Jobs'), list, jobs.length > 0 ? board : '');
            showBoard(view, board, 'The federation in time', boards.federation);
        }
        const now = Date.now();
        refresh(
            list,
            jobs.map((job) => [
                job.id,
                job.state,
                job.round,
                job.error,
                job.waits,
                age(job.created_at, now),
                between(job.created_at, job.finished_at, now),
            ]),
            () => content(jobs, now)
        );
    });
}
