// Where the time of a job goes: from its progress to bars on an axis of time. No DOM in here.

import {nameParticipants} from './series.js';

export const phases = ['staging', 'queued', 'running', 'collecting'];

function barsOf(task, now) {
    return (task.phases ?? []).map(({phase, began_at, ended_at, bytes}) => ({
        phase,
        from: Date.parse(began_at),
        to: ended_at ? Date.parse(ended_at) : now,
        isOpen: !ended_at,
        bytes,
    }));
}

function tasksOf(jobProgress, round, kind) {
    return [...jobProgress.tasks.values()]
        .filter((task) => task.round === round && task.kind === kind && task.facility)
        .sort((a, b) => a.facility.localeCompare(b.facility));
}

// What the coordinator itself did of a round.
function aggregation({aggregating_at, closed_at, state}, now) {
    const isOpen = state === 'aggregating';
    if (!aggregating_at || !(closed_at || isOpen)) return [];
    const to = isOpen ? now : Date.parse(closed_at);
    return [{phase: 'aggregating', from: Date.parse(aggregating_at), to, isOpen}];
}

// Of one round, in seconds since it was opened: {rows: [{name, bars: [{phase, from, to, isOpen}]}], isOpen}; the phases
// of each participant's newest attempt, the aggregation, then evaluations.
export function roundTimeline(jobProgress, number, now) {
    const round = jobProgress.rounds.get(number);
    if (!round) return {rows: [], isOpen: false};
    const trainings = tasksOf(jobProgress, number, 'train');
    const nameOf = nameParticipants(trainings);
    const rows = trainings.map((task) => ({name: nameOf(task), bars: barsOf(task, now)}));
    rows.push({name: 'coordinator', bars: aggregation(round, now)});
    for (const task of tasksOf(jobProgress, number, 'evaluate'))
        rows.push({name: `${task.facility}: evaluation`, bars: barsOf(task, now)});
    const filled = rows.filter(({bars}) => bars.length > 0);
    const begin = Date.parse(round.opened_at);
    const seconds = (time) => Math.max(time - begin, 0) / 1000;
    return {
        rows: filled.map(({name, bars}) => ({
            name,
            bars: bars.map((bar) => ({...bar, from: seconds(bar.from), to: seconds(bar.to)})),
        })),
        isOpen: filled.some(({bars}) => bars.some((bar) => bar.isOpen)),
    };
}

// How long each facility's tasks of all rounds were in each phase, one phase behind the other: [{name, bars}], seconds.
export function timeSpent(jobProgress, now) {
    const sums = new Map();
    for (const task of jobProgress.tasks.values()) {
        if (!task.facility || !task.phases) continue;
        if (!sums.has(task.facility)) sums.set(task.facility, new Map(phases.map((phase) => [phase, 0])));
        const of = sums.get(task.facility);
        for (const {phase, from, to} of barsOf(task, now)) of.set(phase, of.get(phase) + Math.max(to - from, 0) / 1000);
    }
    const rows = [...sums].map(([name, of]) => {
        let at = 0;
        const bars = phases.map((phase) => ({phase, from: at, to: (at += of.get(phase))}));
        return {name, bars: bars.filter(({from, to}) => to > from)};
    });
    return rows.filter(({bars}) => bars.length > 0).sort((a, b) => a.name.localeCompare(b.name));
}

// What went to each facility and came from it: [{name, in: {bytes, seconds}, out: {…}}].
export function moved(jobProgress, now) {
    const sums = new Map();
    for (const task of jobProgress.tasks.values())
        for (const {phase, from, to, bytes} of barsOf(task, now)) {
            if (!task.facility || !(bytes > 0)) continue;
            const none = () => ({bytes: 0, seconds: 0});
            if (!sums.has(task.facility)) sums.set(task.facility, {name: task.facility, in: none(), out: none()});
            const sum = sums.get(task.facility)[phase === 'staging' ? 'in' : 'out'];
            sum.bytes += bytes;
            sum.seconds += Math.max(to - from, 0) / 1000;
        }
    return [...sums.values()].sort((a, b) => a.name.localeCompare(b.name));
}

const roundsOfMean = 5;

// When a running job ends (milliseconds) if its rounds take as long as its last five; null: nobody can say yet.
export function expectedEnd(jobProgress, now) {
    const {job, rounds} = jobProgress;
    if (job.state !== 'running') return null;
    const closed = [...rounds.values()].filter((one) => one.round > 0 && one.state === 'closed' && one.closed_at);
    const last = closed.sort((a, b) => b.round - a.round).slice(0, roundsOfMean);
    const current = rounds.get(job.round);
    if (last.length === 0 || !current) return null;
    const lengths = last.map((one) => Date.parse(one.closed_at) - Date.parse(one.opened_at));
    const mean = lengths.reduce((sum, one) => sum + one, 0) / lengths.length;
    return Math.max(now, Date.parse(current.opened_at) + (job.rounds - (job.index ?? job.round) + 1) * mean);
}
