// What is wrong now, above every view.

import {diagnose, readSamples} from './problems.js';
import {badge, h, refresh, table} from './dom.js';
import {poll} from './poll.js';

export const intervalMs = 15000;
const services = ['registry', 'store', 'dispatch', 'aggregation'];

async function lookAt(api, name, signal) {
    try {
        return {name, samples: readSamples(await api.text(`/${name}/v1/metrics`, {signal}))};
    } catch (error) {
        if (!('status' in error) || error.status === 401) throw error;
        return {name, error: error.message};
    }
}

function content(problems) {
    if (problems.length === 0) return h('p', {class: 'soft'}, 'Nothing is wrong with the coordinator.');
    const critical = problems.filter(({severity}) => severity === 'critical').length;
    const count = `${problems.length} ${problems.length === 1 ? 'problem' : 'problems'}`;
    const rows = problems.map(({severity, about, what, remedy}) => [about, badge(severity), what, remedy]);
    return h(
        'details',
        {'data-key': 'problems', open: true},
        h('summary', {class: critical > 0 ? 'bad' : 'warn'}, critical > 0 ? `${count}, ${critical} critical` : count),
        table('What is wrong now', ['Where', 'Severity', 'What is wrong', 'What to do'], rows)
    );
}

export async function showProblems(view, region) {
    const {api, history, signal} = view;
    await poll({signal, say: () => {}}, intervalMs, async () => {
        const facilities = api.all('/dispatch/v1/facilities', {signal}).catch(() => []);
        const seen = await Promise.all(services.map((name) => lookAt(api, name, signal)));
        const nowS = Date.now() / 1000;
        const problems = diagnose(seen, await facilities, nowS);
        if (signal.aborted) return;
        history.add(nowS, seen);
        region.hidden = false;
        refresh(region, problems, () => content(problems));
    });
}
