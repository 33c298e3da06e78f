// The parts of a job's view that are tables: what runs now, the rounds, the lineage of the model.

import {failedEvaluations, newestLoss, newestValidation, opposedUpdates, participantsWithRefusals, shownRound, stepsOf, tasksOfRound} from './job_progress.js';
import {badge, bar, digest, h, notice, table} from './dom.js';
import {age, between, bytes, count, duration, moment, number, roundOf} from './format.js';
import {gantt} from './gantt.js';
import {roundTimeline} from './timeline.js';

const lineageShown = 5;

// Of a task in work what its attempt does: "staging", "queued", "running", "collecting".
function stateOf(task) {
    const error = task.error || task.waiting?.reason || (task.state !== 'done' && task.attempt_error);
    const kind = task.state === 'cancelled' ? '' : 'bad'; // its round went on without it
    return [
        badge(task.state === 'running' ? (task.step ?? 'running') : task.state),
        task.queue_reason && notice(`${task.queue_reason}, first ${age(task.queue_reason_since, Date.now())}`, ''),
        error && notice(error, kind),
        (task.earlier_attempts ?? []).map((one) => notice(`attempt ${one.attempt} ended: ${one.error}`, '')),
    ];
}

// Who has had updates refused, and who trains no more for it; null: nobody.
export function participantsTable(job) {
    const refused = participantsWithRefusals(job);
    if (refused.length === 0) return null;
    const rows = refused.map((one) => [
        one.facility,
        [
            badge(one.state),
            one.state !== 'active' && h('span', {class: 'soft'}, ', trains in no later round'),
        ],
        `${one.refusals}`,
        notice(one.reason, one.state === 'quarantined' ? 'bad' : ''),
    ]);
    return [
        h('h2', null, 'Refused updates'),
        table('Participants whose updates were refused', ['Facility', 'State', 'Refused', 'The newest because'], rows),
    ];
}

function steps(jobProgress, task) {
    const at = task.state === 'done' ? (task.metrics?.steps ?? task.progress?.step) : task.progress?.step;
    if (at === undefined || at === null) return '\u2013';
    const all = stepsOf(jobProgress.job, task);
    return all > 0 ? [`${at}/${all} `, bar(at, all, `step ${at} of ${all} at ${task.facility}`)] : `${at}`;
}

function trainingRow(jobProgress, task, validates) {
    // Of all steps, while it runs of the last.
    const speed = task.state === 'done' ? task.metrics?.tokens_per_s : task.progress?.tokens_per_s;
    return [
        task.facility,
        task.dataset ?? '\u2013',
        stateOf(task),
        `${task.attempt ?? '\u2013'}`,
        steps(jobProgress, task),
        number(newestLoss(task)),
        ...(validates ? [number(newestValidation(task))] : []),
        count(speed),
    ];
}

function trainingTable(jobProgress, round) {
    const tasks = tasksOfRound(jobProgress, round, 'train');
    if (tasks.length === 0) return null;
    const validates = tasks.some((task) => Number.isFinite(newestValidation(task)));
    const validation = validates ? ['Validation loss'] : [];
    const columns = ['Facility', 'Dataset', 'State', 'Attempt', 'Step', 'Last loss', ...validation, 'Tokens/s'];
    return table(
        `Training in round ${round}`,
        columns,
        tasks.map((task) => trainingRow(jobProgress, task, validates))
    );
}

// Evaluations still to come, of whatever round: they run beside the training.
function pendingEvaluations(jobProgress) {
    const waiting = [...jobProgress.tasks.values()].filter(
        (task) => task.kind === 'evaluate' && task.state !== 'done' && task.state !== 'cancelled'
    );
    if (waiting.length === 0) return null;
    const rows = waiting.map((task) => [
        task.facility,
        task.dataset ?? '\u2013',
        `${task.round}`,
        stateOf(task),
        `${task.attempt ?? '\u2013'}`,
    ]);
    return [
        h('h2', null, 'Evaluations'),
        table('Evaluations not done yet', ['Facility', 'Dataset', 'Round', 'State', 'Attempt'], rows),
    ];
}

export function nowTables(jobProgress) {
    const round = jobProgress.job.round;
    const {state, waiting} = jobProgress.rounds.get(round) ?? {};
    const heading = h('h2', null, `Round ${roundOf(jobProgress.job)} `, state && badge(state));
    return [
        heading,
        waiting ? notice(`Its aggregation waits, first ${age(waiting.since, Date.now())}: ${waiting.reason}`, 'bad') : null,
        trainingTable(jobProgress, round) ?? notice('No training has begun yet.'),
        pendingEvaluations(jobProgress),
    ];
}

// Perplexities of a round: a line a model, a column a place.
function perplexities(jobProgress, round) {
    const all = [...jobProgress.evaluations.values()].filter((one) => one.round === round);
    if (all.length === 0) return null;
    const place = (one) => `${one.dataset} at ${one.facility}`;
    const places = [...new Set(all.map(place))].sort();
    const models = [...new Set(all.map((one) => one.which))];
    const value = (which, where) => number(all.find((one) => one.which === which && place(one) === where)?.perplexity);
    const name = (which) =>
        which === 'base' ? 'base model' : which === 'global' ? 'global model' : `update of ${which}`;
    const rows = models.map((which) => [name(which), ...places.map((where) => value(which, where))]);
    return table(`Perplexity in round ${round}`, ['Perplexity of', ...places], rows);
}

// Bytes and their time, of the newest attempts.
export function movedTable(data) {
    const cells = ({bytes: size, seconds}) =>
        size > 0 ? [bytes(size), duration(seconds), seconds > 0 ? `${bytes(size / seconds)}/s` : '\u2013'] : ['\u2013', '\u2013', '\u2013'];
    return [
        h('h2', null, 'Data moved'),
        table(
            'Bytes that reached a facility and left it, and the time that took',
            ['Facility', 'In', 'Time', 'Rate', 'Out', 'Time', 'Rate'],
            data.map((one) => [one.name, ...cells(one.in), ...cells(one.out)])
        ),
    ];
}

function inTime(jobProgress, round, now, width) {
    const {rows} = roundTimeline(jobProgress, round.round, now);
    if (rows.length === 0 || width < 100) return null;
    return gantt({
        key: `phases-${round.round}`,
        title: `Round ${round.round} in time`,
        xName: 'since it was opened',
        width,
        rows,
    });
}

function opposition({facility, contribution: {opposed_rounds: rounds, cosine}}) {
    return notice(
        `${facility}'s updates have opposed the other sites' for ${rounds} rounds in a row (cosine ${number(cosine)}) and may be undoing their training. To continue without it, run "atoll job pause JOB", then "atoll job resume JOB --without ${facility}".`,
        'bad'
    );
}

function evaluatedAs({failed_evaluations: failed}) {
    return failed && failed.count - (failed.partly ?? 0) === failed.of ? 'evaluation failed' : 'evaluated';
}

function oneRound(jobProgress, round, now, width) {
    const took =
        round.round > 0 && `${round.closed_at ? ' in' : ' for'} ${between(round.opened_at, round.closed_at, now)}`;
    const title = round.round === 0 ? 'Round 0, the base model ' : `Round ${round.round}${round.index < round.round ? ` (as ${round.index})` : ''} `;
    return h(
        'details',
        {'data-key': `round-${round.round}`},
        h(
            'summary',
            null,
            title,
            badge(round.state),
            h('span', {class: 'soft'}, took, round.evaluated ? `, ${evaluatedAs(round)}` : '')
        ),
        round.error && notice(round.error, 'bad'),
        opposedUpdates(jobProgress, round.round).map(opposition),
        h(
            'p',
            {class: 'soft'},
            `opened ${moment(round.opened_at)}`,
            round.deadline_at && `, deadline ${moment(round.deadline_at)}`
        ),
        inTime(jobProgress, round, now, width),
        trainingTable(jobProgress, round.round),
        perplexities(jobProgress, round.round),
        round.failed_evaluations && notice(failedEvaluations(round.failed_evaluations), 'bad')
    );
}

export function roundsList(jobProgress, now, width) {
    const rounds = [...jobProgress.rounds.values()].sort((a, b) => b.round - a.round);
    return [h('h2', null, 'Rounds'), rounds.map((round) => oneRound(jobProgress, shownRound(jobProgress, round), now, width))];
}

function contribution(one, round) {
    const share = one.share === null ? '' : `${number(one.share * 100)}\u00a0%, `;
    const norm = one.norm === undefined ? '' : `, norm ${number(one.norm)}`;
    const cosine = one.cosine === undefined ? '' : `, cosine ${number(one.cosine)} to the others`;
    const counted = (one.counted ?? 1) < 1 ? `, ${number(one.counted * 100)}\u00a0% of its change counted` : '';
    return h(
        'div',
        null,
        `${one.facility}: `,
        digest(one.version, `update-${round}-${one.facility}-${one.version}`),
        h('span', {class: 'soft'}, ` ${share}${count(one.tokens)} tokens${norm}${cosine}${counted}`)
    );
}

function lineageRow(step) {
    return [
        `${step.round}`,
        [
            digest(step.version, `version-${step.round}`),
            step.tags.map((tag) => h('span', {class: 'soft'}, ` ${tag}`)),
            step.size !== undefined && h('span', {class: 'soft'}, ` ${bytes(step.size)}`),
        ],
        digest(step.parent, `parent-${step.round}`),
        h(
            'div',
            null,
            step.contributions.map((one) => contribution(one, step.round))
        ),
    ];
}

export function lineageTable(jobProgress, steps) {
    const {adapter_of: adapterOf} = jobProgress.job.spec;
    const base = h(
        'p',
        null,
        'Base ',
        digest(jobProgress.job.base, 'base'),
        adapterOf && [', as all versions below an adapter of the model ', digest(adapterOf, 'model')]
    );
    const heading = h('h2', null, `Model ${jobProgress.job.output_model}`);
    if (steps.length === 0) return [heading, base, notice('No round has made a model yet.')];
    const rows = [...steps].reverse().map(lineageRow);
    const columns = ['Round', 'Version', 'From', 'Updates'];
    const older = rows.slice(lineageShown);
    return [
        heading,
        base,
        table('Lineage of the model, newest first', columns, rows.slice(0, lineageShown)),
        older.length > 0 &&
            h(
                'details',
                {'data-key': 'older'},
                h('summary', null, `${older.length} older`),
                table('Lineage of the model, older versions', columns, older)
            ),
    ];
}
