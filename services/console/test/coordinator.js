// A coordinator for pictures of the page: its files, and a job of four rounds at three facilities with something wrong.

import {readFile} from 'node:fs/promises';
import {createServer} from 'node:http';

const page = new URL('../page/', import.meta.url);
const types = {html: 'text/html', css: 'text/css', js: 'text/javascript', svg: 'image/svg+xml'};
const minute = 60_000;
const begin = Date.now() - 100 * minute;
const at = (minutes) => new Date(begin + minutes * minute).toISOString();
const digest = (seed) => seed.repeat(64).slice(0, 64);
const sites = [
    {facility: 'leonardo', dataset: 'diaries-it', queue: 4, run: 18, bytes: 2.4e9},
    {facility: 'karolina', dataset: 'letters-cs', queue: 9, run: 12, bytes: 2.4e9},
    {facility: 'a-site-with-a-long-name-of-many-letters', dataset: 'court-files', queue: 1, run: 15, bytes: 2.4e9},
];

const phase = (name, from, to, bytes = 0) => ({
    phase: name,
    began_at: at(from),
    ended_at: to === null ? null : at(to),
    bytes,
});

function training(round, site, opened, isOpen) {
    const queued = opened + 1.5;
    const running = queued + site.queue;
    const phases = [phase('staging', opened, queued, site.bytes), phase('queued', queued, running)];
    if (isOpen) phases.push(phase('running', running, null));
    else phases.push(phase('running', running, running + site.run), phase('collecting', running + site.run, running + site.run + 2, 1.2e9));
    return {
        id: `t${round}-${site.facility}`,
        kind: 'train',
        facility: site.facility,
        dataset: site.dataset,
        state: isOpen ? 'running' : 'done',
        step: isOpen ? 'running' : 'done',
        error: '',
        attempt: isOpen && site.facility === 'karolina' ? 2 : 1,
        earlier_attempts:
            isOpen && site.facility === 'karolina' ? [{attempt: 1, error: 'its node failed (NODE_FAIL)'}] : [],
        phases,
        progress: {step: isOpen ? 40 : 60, loss: 3.2 - 0.3 * round, tokens_per_s: 48210},
        ...(isOpen ? {} : {version: digest(`${round}a`), samples: 900, tokens: 1.2e6, metrics: {steps: 60, tokens_per_s: 48000}}),
    };
}

function round(number) {
    const opened = (number - 1) * 30;
    const isOpen = number === 4;
    const places = sites.map(({facility, dataset}) => ({facility, dataset}));
    return {
        round: number,
        index: number,
        state: isOpen ? 'training' : 'closed',
        base: digest(`${number}`),
        version: isOpen ? '' : digest(`${number + 1}`),
        evaluated: !isOpen,
        error: '',
        opened_at: at(opened),
        aggregating_at: isOpen ? null : at(opened + 25.5),
        closed_at: isOpen ? null : at(opened + 28),
        evaluated_at: isOpen ? null : at(opened + 31),
        deadline_at: null,
        evaluate_by: null,
        accepted: [],
        tasks: sites.map((site) => training(number, site, opened, isOpen)),
        evaluations: isOpen
            ? []
            : places.map((place, i) => ({...place, which: 'global', perplexity: 40 / (number + i + 1), tokens: 5000})),
    };
}

const job = {
    id: '01jd3v7e8m2k4t6w8y0a2c4e6g',
    name: 'italian-czech',
    state: 'running',
    round: 4,
    index: 4,
    rounds: 6,
    error: '',
    base: digest('1'),
    output_model: 'italian-czech',
    version: digest('4'),
    spoiled: null,
    waits: [{facility: 'karolina', reason: 'slurmctld gives no answer', since: at(79)}],
    participants: [],
    created_at: at(0),
    finished_at: null,
    spec: {
        rounds: 6,
        model: {name: 'llama'},
        strategy: {name: 'fedavg', weighting: 'tokens'},
        training: {steps: 60},
        participants: sites.map(({facility, dataset}) => ({facility, dataset})),
    },
};

// The same, paused because its model got worse; its events do not reach Kafka, and a round's evaluations all failed.
const spoiled = {
    ...job,
    id: '01jd3v7e8m2k4t6w8y0a2c4e6h',
    name: 'spoiled',
    state: 'paused',
    waits: [],
    spoiled: {reason: 'the model of round 3 is worse at 2 of 3 facilities; the update of karolina stands out'},
};

const failed = {count: 3, of: 3, reason: 'exit code 1: no tokenizer'};
const spoiledRounds = () => [
    ...[1, 2].map(round),
    {...round(3), evaluations: [], failed_evaluations: failed},
    {...round(4), state: 'aggregating', waiting: {reason: 'Kafka does not take the events of this job', since: at(99)}},
];

// What the store keeps of the rounds' models.
const versions = [1, 2, 3].map((number) => ({
    kind: 'global',
    job: job.id,
    round: number,
    version: digest(`${number + 1}`),
    size: 2.4e9,
    tags: [],
    contributions: sites.map(({facility}, i) => ({
        facility,
        version: digest(`${number}a`),
        tokens: 1.2e6,
        weight: 1,
        norm: 3.25 + i,
        cosine: 0.125 * (i + 1),
        counted: 1,
    })),
}));

function events() {
    let number = 0;
    const steps = [];
    for (const one of [1, 2, 3, 4])
        for (const [i, {facility}] of sites.entries())
            for (let step = 1; step <= (one === 4 ? 40 : 60); ++step)
                steps.push({
                    number: ++number,
                    type: 'atoll.task.progress.v1',
                    time: at(0),
                    data: {
                        task: `t${one}-${facility}`,
                        round: one,
                        facility,
                        kind: 'train',
                        attempt: 1,
                        step,
                        loss: 4 * Math.exp(-0.25 * (one - 1 + step / 60)) + 0.05 * Math.sin(step + i) + 0.1 * i,
                        ...(i === 0 && step % 20 === 0 && {val_loss: 0.2 + 4 * Math.exp(-0.25 * (one - 1 + step / 60))}),
                    },
                });
    return steps;
}

// What the services serve to Prometheus at the n-th look.
const names = sites.map(({facility}) => facility);
const lines = (metric, label, value) => names.map((name, i) => `${metric}{facility="${name}"${label}} ${value(i)}\n`).join('');
const common = (n, service) =>
    ['postgres', 'kafka'].map((one) => `atoll_ready{dependency="${one}"} ${Number(!(one === 'kafka' && n === 3))}\n`).join('') +
    `atoll_http_requests_total{method="GET",route="/v1/jobs",status="200"} ${n * 40 + service.length * n}\n` +
    `atoll_http_requests_total{method="GET",route="/v1/jobs",status="503"} ${n}\n` +
    `atoll_http_request_duration_seconds_sum{method="GET",route="/v1/jobs"} ${n * 0.4 + Math.sin(n) / 10}\n` +
    `atoll_http_request_duration_seconds_count{method="GET",route="/v1/jobs"} ${n * 40}\n` +
    `atoll_pg_pool_connections{state="lent"} ${n % 3}\natoll_pg_pool_connections_max 8\n` +
    `process_resident_memory_bytes ${4e7 + 1e6 * n + 1e7 * service.length}\nprocess_cpu_seconds_total ${n * 0.7}\n` +
    `atoll_outbox_lag_seconds ${n % 4}\n`;
const metrics = {
    registry: () => '',
    store: (n) =>
        'atoll_store_disk_reserve_bytes 1e10\natoll_store_blobs 412\natoll_store_blobs_damaged 0\n' +
        `atoll_store_disk_free_bytes ${1.4e10 - 2e8 * n}\natoll_store_blobs_bytes ${3e9 + 2e8 * n}\n` +
        `atoll_store_received_bytes_total ${n * 2e8}\natoll_store_sent_bytes_total ${n * 3e8}\n`,
    dispatch: (n) =>
        'atoll_facility_silent_seconds{facility="karolina"} 1250\n' +
        lines('atoll_facility_up', '', (i) => Number(!(i === 1 && n > 4))) +
        lines('atoll_facility_login_budget_remaining', '', (i) => 4 - ((i + n) % 3)) +
        lines('atoll_tasks', ',kind="train",state="queued"', () => Number(n < 6)) +
        lines('atoll_tasks', ',kind="train",state="running"', () => Number(n >= 6)) +
        lines('atoll_attempts_failed_total', '', (i) => (i === 1 ? Math.floor(n / 4) : 0)) +
        lines('atoll_tasks_waiting', ',reason="unreachable"', (i) => Number(i === 1 && n > 4)) +
        lines('atoll_tasks_ended_total', ',kind="train",outcome="done"', (i) => 3 + Math.floor(n / (3 + i))) +
        ['queued', 'running', 'staging', 'collecting']
            .map((one, k) => lines('atoll_phase_seconds_total', `,phase="${one}"`, (i) => n * (20 - 4 * k + i)))
            .join('') +
        lines('atoll_node_seconds_total', ',outcome="used"', (i) => n * 60 * (i + 1)) +
        lines('atoll_queue_wait_seconds_sum', '', (i) => n * 70 * (i + 1)) +
        lines('atoll_queue_wait_seconds_count', '', () => n) +
        lines('atoll_transfer_seconds_total', ',direction="in"', (i) => n * (i + 2)) +
        lines('atoll_transfer_bytes_total', ',direction="in"', (i) => n * 2e7 * (i + 1)) +
        lines('atoll_training_step', `,atoll_job="${job.name}"`, (i) => 10 * n + i) +
        lines('atoll_training_gradient_norm', `,atoll_job="${job.name}"`, (i) => 1 / (1 + n) + 0.1 * i) +
        lines('atoll_training_tokens_per_second', `,atoll_job="${job.name}"`, (i) => 48000 + 900 * Math.sin(n + i)) +
        `atoll_rounds{phase="training"} 1\natoll_round_age_seconds{phase="training"} ${300 + 15 * n}\n` +
        `atoll_round_age_ratio ${(0.4 + 0.02 * n).toFixed(2)}\n` +
        `atoll_round_updates_total{facility="leonardo",outcome="accepted"} ${9 + Math.floor(n / 5)}\n` +
        `atoll_workers 4\natoll_workers_busy ${n % 4}\natoll_due_tasks ${n % 2}\n` +
        `atoll_certificate_expiry_timestamp_seconds{use="gateway"} ${Date.now() / 1000 + 3 * 86400}\n` +
        `atoll_token_expiry_timestamp_seconds{token="aggregation"} ${Date.now() / 1000 + 200 * 86400}\n`,
    aggregation: (n) => `atoll_inbox_lag_messages{consumer="aggregation"} ${n % 5}\natoll_inbox_dead_letters{consumer="aggregation"} 0\n`,
};
let looks = {};
function measured(service) {
    looks[service] = (looks[service] ?? 0) + 1;
    return common(looks[service], service) + metrics[service](looks[service]);
}

const facilities = names.map((name) => ({
    name,
    transport: {kind: 'ssh', host: `${name.slice(0, 8)}-login`, data: 'https'},
    batch: {kind: 'slurm', queues: {boost: {}, debug: {}}, default_queue: 'boost'},
    work_dir: `/scratch/${name.slice(0, 8)}/atoll`,
    updated_at: at(0),
    waiting:
        name === 'karolina'
            ? {reason: 'ssh: connect to host login1 port 22: Connection timed out', since: at(79)}
            : null,
}));

function answer(path, query) {
    const list = (items) => ({items, next: null});
    if (path === '/dispatch/v1/jobs') return list([job, spoiled]);
    if (path.endsWith('/rounds')) return list(path.includes(spoiled.id) ? spoiledRounds() : [1, 2, 3, 4].map(round));
    if (path.endsWith('/events')) return query.get('after') === '0' ? list(events()) : null;
    if (path.startsWith('/dispatch/v1/jobs/')) return path.includes(spoiled.id) ? spoiled : job;
    if (path.endsWith('/versions')) return list(versions);
    if (path === '/dispatch/v1/facilities') return list(facilities);
    return list([]);
}

// The page counts as loaded when it has had a while to ask for everything and draw it, and has looked at each service's
// metrics so often that what was wrong for one look is over. It looks more often than it would.
const late = '<img src="/late" alt="" hidden></body>';
const drawMs = 4000;
const lookMs = 250;
const looksMin = 8;
const hasLooked = () => Object.keys(metrics).every((service) => looks[service] >= looksMin);
function changed(name, text) {
    if (name === 'index.html') return text.replace('</body>', late);
    return name === 'problems_view.js' ? text.replace(/intervalMs = \d+/, `intervalMs = ${lookMs}`) : text;
}

// Serves on a free port of this machine; the promise's value is the address. /enter?VIEW opens a view with a token.
export async function serve() {
    const server = createServer(async (request, response) => {
        const {pathname, searchParams, search} = new URL(request.url, 'http://127.0.0.1');
        const send = (type, body) => response.writeHead(200, {'Content-Type': type}).end(body);
        if (pathname === '/enter') {
            looks = {};
            return send(
                'text/html',
                `<script>sessionStorage.setItem('atoll.token', 'a.b.c'); location.replace('/console/#/${search.slice(1)}')</script>`
            );
        }
        if (pathname === '/late') {
            const end = () => (hasLooked() ? send('image/png', '') : setTimeout(end, lookMs));
            return setTimeout(end, drawMs);
        }
        const [, service] = pathname.match(/^\/(\w+)\/v1\/metrics$/) ?? [];
        if (service) return send('text/plain', measured(service));
        if (!pathname.startsWith('/console/')) {
            const body = answer(pathname, searchParams);
            if (body !== null) return send('application/json', JSON.stringify(body));
            return; // no news: the page waits
        }
        const name = pathname.slice('/console/'.length) || 'index.html';
        try {
            const text = await readFile(new URL(name, page), 'utf8');
            send(types[name.split('.').pop()], changed(name, text));
        } catch {
            response.writeHead(404).end();
        }
    });
    await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
    server.unref();
    return {address: `http://127.0.0.1:${server.address().port}`, job: job.id, spoiled: spoiled.id};
}
