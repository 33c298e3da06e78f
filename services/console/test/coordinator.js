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
        attempt: 1,
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
    waits: [],
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
                    },
                });
    return steps;
}

const metrics = {
    registry: 'atoll_ready{dependency="postgres"} 1\n',
    store: 'atoll_ready{dependency="postgres"} 1\natoll_store_disk_free_bytes 1.2e10\natoll_store_disk_reserve_bytes 1e10\n',
    dispatch:
        'atoll_facility_silent_seconds{facility="karolina"} 1250\n' +
        `atoll_certificate_expiry_timestamp_seconds{use="gateway"} ${Date.now() / 1000 + 3 * 86400}\n`,
    aggregation: 'atoll_ready{dependency="kafka"} 1\n',
};
const facilities = [{name: 'karolina', waiting: {reason: 'ssh: connect to host login1 port 22: Connection timed out', since: at(79)}}];

function answer(path, query) {
    const list = (items) => ({items, next: null});
    if (path === '/dispatch/v1/jobs') return list([job]);
    if (path.endsWith('/rounds')) return list([1, 2, 3, 4].map(round));
    if (path.endsWith('/events')) return query.get('after') === '0' ? list(events()) : null;
    if (path.startsWith('/dispatch/v1/jobs/')) return job;
    if (path === '/dispatch/v1/facilities') return list(facilities);
    return list([]);
}

// The page counts as loaded when it has had all events, and a while to draw them.
const late = '<img src="/late" alt="" hidden></body>';
const drawMs = 2500;

// Serves on a free port of this machine; the promise's value is the address. /enter?VIEW opens a view with a token.
export async function serve() {
    const waiting = [];
    const server = createServer(async (request, response) => {
        const {pathname, searchParams, search} = new URL(request.url, 'http://127.0.0.1');
        const send = (type, body) => response.writeHead(200, {'Content-Type': type}).end(body);
        if (pathname === '/enter')
            return send(
                'text/html',
                `<script>sessionStorage.setItem('atoll.token', 'a.b.c'); location.replace('/console/#/${search.slice(1)}')</script>`
            );
        if (pathname === '/late') return waiting.push(() => send('image/png', ''));
        const [, service] = pathname.match(/^\/(\w+)\/v1\/metrics$/) ?? [];
        if (service) return send('text/plain', metrics[service]);
        if (!pathname.startsWith('/console/')) {
            const body = answer(pathname, searchParams);
            if (body !== null) return send('application/json', JSON.stringify(body));
            return setTimeout(() => waiting.splice(0).forEach((go) => go()), drawMs); // no news: the page waits
        }
        const name = pathname.slice('/console/'.length) || 'index.html';
        try {
            const text = await readFile(new URL(name, page), 'utf8');
            send(types[name.split('.').pop()], name === 'index.html' ? text.replace('</body>', late) : text);
        } catch {
            response.writeHead(404).end();
        }
    });
    await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
    server.unref();
    return {address: `http://127.0.0.1:${server.address().port}`, job: job.id};
}
