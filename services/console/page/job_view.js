// One job: what runs, its charts, the lineage of its model, its rounds. Follows the events for as long as it is shown.

import {showBoard} from './board_view.js';
import {lineChart} from './chart.js';
import {isFinished, newProgress, applyEvent, applyJob, applyRounds} from './job_progress.js';
import {badge, bar, digest, h, notice, refresh} from './dom.js';
import {follow} from './follow.js';
import {gantt} from './gantt.js';
import {age, between, closedRounds, language, moment, roundOf} from './format.js';
import {boards} from './panels.js';
import {pause, poll} from './poll.js';
import {lineageTable, movedTable, nowTables, participantsTable, roundsList} from './rounds_view.js';
import {facilitiesOf, lineage, lossSeries, perplexityPanels} from './series.js';
import {expectedEnd, moved, roundTimeline, timeSpent} from './timeline.js';

const intervalMs = 4000; // steps of an attempt (staging, queued) are no events
const drawMs = 250;
const colours = 6;

class JobView {
    constructor(view, id) {
        this.view = view;
        this.path = `/dispatch/v1/jobs/${encodeURIComponent(id)}`;
        this.jobProgress = newProgress();
        this.languages = new Map(); // dataset -> language tag
        this.versions = [];
        this.versionsOfRounds = -1; // how many rounds had made a model when `versions` were read
        const section = (label) => h('section', {'aria-label': label});
        this.parts = {
            head: section('Job'),
            participants: section('Participants'),
            now: section('Now'),
            phases: section('The round in time'),
            loss: section('Loss'),
            perplexity: section('Perplexity'),
            training: section('How it trains'),
            time: section('Where the time went'),
            model: section('Model'),
            rounds: section('Rounds'),
        };
    }

    get(path) {
        return this.view.api.get(path, {signal: this.view.signal});
    }

    async load() {
        const rounds = this.view.api.all(`${this.path}/rounds`, {signal: this.view.signal});
        const [job, items] = await Promise.all([this.get(this.path), rounds]);
        applyJob(this.jobProgress, job);
        applyRounds(this.jobProgress, items);
        await this.loadVersions(job);
        this.draw();
    }

    // The store's records of the model tell the weights. They are an addition: the view is right without them.
    async loadVersions(job) {
        const made = [...this.jobProgress.rounds.values()].filter((round) => round.round > 0 && round.version).length;
        if (made === this.versionsOfRounds || made === 0) return;
        try {
            const path = `/store/v1/models/${encodeURIComponent(job.output_model)}/versions`;
            this.versions = await this.view.api.all(path, {signal: this.view.signal});
            this.versionsOfRounds = made;
        } catch (error) {
            if (!('status' in error)) throw error;
        }
    }

    async loadLanguages() {
        const datasets = await this.view.api.all('/registry/v1/datasets', {signal: this.view.signal}).catch(() => []);
        for (const dataset of datasets) this.languages.set(dataset.name, dataset.language);
    }

    async start() {
        await Promise.all([this.loadLanguages(), this.load()]);
        this.view.main.replaceChildren(...Object.values(this.parts));
        this.draw();
        showBoard(this.view, this.parts.training, 'How it trains', boards.training, this.jobProgress.job.name);
        const resized = new ResizeObserver(() => this.drawSoon());
        resized.observe(this.view.main);
        this.view.signal.addEventListener('abort', () => resized.disconnect());
        await Promise.all([this.followEvents(), this.lookAgain()]);
    }

    followEvents() {
        const {signal, say} = this.view;
        return follow({
            read: (cursor) => this.get(`${this.path}/events?after=${cursor}&wait=20s&limit=1000`),
            take: (events) => this.takeEvents(events),
            trouble: (error, wait) =>
                say(error ? `${error.message} Trying again in ${Math.ceil(wait / 1000)} s.` : 'Live.'),
            pause: (wait) => pause(wait, signal),
            stopped: () => signal.aborted,
        });
    }

    // False when there is nothing more to come.
    takeEvents(events) {
        let isNews = false;
        for (const event of events) isNews = applyEvent(this.jobProgress, event) || isNews;
        if (isNews) this.mustLoad = true;
        this.drawSoon();
        const isOver = events.length === 0 && isFinished(this.jobProgress.job.state);
        this.view.say(isOver ? 'The job has ended: all of it is here.' : 'Live: follows the job\u2019s events.');
        return !isOver;
    }

    // What events do not tell. Ends with the job. Of failures the events' loop speaks.
    async lookAgain() {
        const over = new AbortController();
        this.view.signal.addEventListener('abort', () => over.abort());
        await poll({signal: over.signal, say: () => {}}, intervalMs, async () => {
            const wasFinished = isFinished(this.jobProgress.job.state) && !this.mustLoad;
            this.mustLoad = false;
            await this.load();
            if (wasFinished) over.abort();
        });
    }

    drawSoon() {
        this.timer ??= setTimeout(() => {
            this.timer = null;
            if (!this.view.signal.aborted) this.draw();
        }, drawMs);
    }

    draw() {
        const {jobProgress, parts} = this;
        const now = Date.now();
        const {name, state} = jobProgress.job;
        this.view.title(`${name}, ${isFinished(state) ? state : `round ${roundOf(jobProgress.job)}`}`);
        const took = between(jobProgress.job.created_at, jobProgress.job.finished_at, now);
        const end = expectedEnd(jobProgress, now);
        this.expectedEnd = end === null ? null : new Date(end).toISOString();
        refresh(parts.head, [jobProgress.job, took, moment(this.expectedEnd)], () => this.head(took, now));
        const participants = participantsTable(jobProgress.job);
        parts.participants.hidden = participants === null;
        refresh(parts.participants, [jobProgress.job.participants], () => participants ?? []);
        parts.now.hidden = parts.training.hidden = isFinished(jobProgress.job.state);
        const tasks = [...jobProgress.tasks.values()].map(({points, validations, ...task}) => ({
            ...task,
            validation: validations?.at(-1),
        }));
        refresh(parts.now, [jobProgress.job.round, [...jobProgress.rounds.values()].at(-1), tasks], () => nowTables(jobProgress));
        const steps = lineage(jobProgress, this.versions);
        refresh(parts.model, steps, () => lineageTable(jobProgress, steps));
        refresh(
            parts.rounds,
            [this.width(), [...jobProgress.rounds.values()], tasks, [...jobProgress.evaluations.values()]],
            () => roundsList(jobProgress, now, this.width())
        );
        this.drawTimes(now);
        this.drawLoss();
        this.drawPerplexity();
    }

    head(took, now) {
        const {job} = this.jobProgress;
        const fact = (name, ...value) => h('div', null, h('dt', null, name), h('dd', null, value));
        const {strategy, participants} = job.spec;
        return [
            h('h1', null, job.name, ' ', badge(job.state)),
            job.error && notice(job.error, 'bad'),
            job.spoiled && notice(`${job.spoiled.reason}. atoll job resume goes on.`, 'bad'),
            job.state === 'failed' &&
                notice(`"atoll job resume ${job.name}" trains round ${job.round} again, from the model of the round before it.`),
            h(
                'dl',
                {class: 'facts'},
                fact('Round', `${roundOf(job)} `, bar(closedRounds(job), job.rounds, `${closedRounds(job)} of ${job.rounds} rounds closed`)),
                fact(
                    'Started',
                    h('time', {datetime: job.created_at, title: age(job.created_at, now)}, moment(job.created_at))
                ),
                fact(job.finished_at ? 'Took' : 'Running for', took),
                this.expectedEnd !== null && fact('Ends about', moment(this.expectedEnd)),
                fact('Participants', participants.map((one) => one.facility).join(', ')),
                fact('Strategy', [strategy?.name, strategy?.weighting].filter(Boolean).join(', ')),
                fact('Base model', job.spec.model.name),
                job.spec.adapter_of && fact('Trains', `adapters of rank ${job.spec.training.lora_rank}`),
                fact('Newest version', digest(job.version || job.base, 'newest'))
            ),
        ];
    }

    // The colour of a facility, the same in every chart; beyond six they come again, dashed.
    styleOf(name) {
        const index = facilitiesOf(this.jobProgress).indexOf(name);
        return index < 0 ? 'global' : `c${index % colours}${index >= colours ? ' second' : ''}`;
    }

    // Of what a section holds.
    width() {
        return this.parts.head.clientWidth - 2 * parseFloat(getComputedStyle(this.parts.head).paddingLeft || '0');
    }

    // The newest round of which something is known, and all of them together.
    drawTimes(now) {
        const width = this.width();
        const numbers = [...this.jobProgress.rounds.keys()].sort((a, b) => b - a);
        const newest = numbers.find((number) => roundTimeline(this.jobProgress, number, now).rows.length > 0);
        const {rows} = roundTimeline(this.jobProgress, newest, now);
        const spent = timeSpent(this.jobProgress, now);
        const data = moved(this.jobProgress, now);
        const [{phases, time}, isSeen] = [this.parts, width >= 100];
        phases.hidden = !(isSeen && rows.length > 0);
        time.hidden = !(isSeen && spent.length > 0);
        if (!phases.hidden)
            refresh(phases, [width, newest, rows], () =>
                gantt({key: 'phases', title: `Round ${newest} in time`, xName: 'since it was opened', width, rows})
            );
        if (!time.hidden)
            refresh(time, [width, spent, data], () => [
                gantt({
                    key: 'spent',
                    title: 'Where the time went: waiting in the queue, computing and moving data, all rounds',
                    xName: 'of all tasks together',
                    width,
                    rows: spent,
                }),
                data.length > 0 && movedTable(data),
            ]);
    }

    drawLoss() {
        const {series, starts} = lossSeries(this.jobProgress);
        const width = this.width();
        refresh(this.parts.loss, [width, series], () => {
            if (series.length === 0 || width < 100)
                return [
                    h('h2', null, 'Loss'),
                    notice(isFinished(this.jobProgress.job.state) ? 'No step was made.' : 'No step has been reported yet.'),
                ];
            return lineChart({
                key: 'loss',
                title: series.some((one) => one.isValidation)
                    ? 'Training loss, and the loss on validation rows (dotted)'
                    : 'Training loss',
                xName: 'step',
                yName: 'loss',
                width,
                height: 260,
                xLeast: [0, 1],
                borders: starts.map(([round, at]) => ({name: `round ${round}`, at})),
                series: series.map((one) => ({
                    ...one,
                    hasMarks: one.isValidation,
                    style: `${this.styleOf(one.facility)}${one.isValidation ? ' validation' : ''}`,
                })),
            });
        });
    }

    panelTitle({dataset, facility}) {
        const tag = this.languages.get(dataset);
        return `Perplexity: ${tag ? `${language(tag)}, ` : ''}${dataset} at ${facility}`;
    }

    drawPerplexity() {
        const panels = perplexityPanels(this.jobProgress);
        const width = this.width();
        const isTwo = panels.length > 1 && width > 720;
        const each = isTwo ? (width - 16) / 2 : width;
        refresh(this.parts.perplexity, [each, panels, [...this.languages]], () => {
            if (panels.length === 0 || width < 100)
                return [h('h2', null, 'Perplexity'), notice('Nothing has been evaluated yet.')];
            return [
                h(
                    'div',
                    {class: 'panels'},
                    panels.map((panel) =>
                        lineChart({
                            key: `perplexity ${panel.dataset} ${panel.facility}`,
                            title: this.panelTitle(panel),
                            xName: 'round',
                            yName: 'perplexity (log)',
                            isLog: true,
                            hasMarks: true,
                            width: each,
                            height: 230,
                            xLeast: [0, 1],
                            series: panel.series.map((one) => ({
                                ...one,
                                style: this.styleOf(one.isGlobal ? null : one.name),
                            })),
                        })
                    )
                ),
                h(
                    'p',
                    {class: 'soft'},
                    'global: the model of the round, from round 0, the base. A facility\u2019s name: its update alone.'
                ),
            ];
        });
    }
}

export function showJob(view, id) {
    return new JobView(view, id).start();
}
