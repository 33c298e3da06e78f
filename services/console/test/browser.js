// The page in a headless Chromium: light, dark and on a phone, after some looks at the metrics. Pictures go into the
// directory that is given; nothing may stand beside the window, and each panel must be there. Exit status 77: there is no
// Chromium.

import assert from 'node:assert/strict';
import {join} from 'node:path';

import {boards} from '../page/panels.js';
import {isThere, open} from './chromium.js';
import {serve} from './coordinator.js';

const out = process.argv[2];
if (!(await isThere())) {
    console.log('no chromium: install chromium');
    process.exit(77);
}

const {address, job, spoiled} = await serve();
const looks = [
    {name: 'light', size: '1280,3600', scheme: 1},
    {name: 'dark', size: '1280,3600', scheme: 0},
    {name: 'phone', size: '500,6200', scheme: 1},
];

const look = ({size, scheme}, view, what) =>
    open(`${address}/enter?${view}`, {
        size,
        options: [`--blink-settings=preferredColorScheme=${scheme}`, what],
        timeoutMs: 120_000,
    });

const problems = ['3 problems, 1 critical', 'Connection timed out'];
const titles = (board) => board.map(({title}) => title);
const views = [
    {
        view: `jobs/${job}`,
        name: 'job',
        panels: [
            'Round 4 in time',
            'Where the time went',
            'Data moved',
            'Training loss',
            'Perplexity: ',
            'minutes since it was opened',
            'of all tasks together',
            'Ends about',
            'Tokens a second',
            'attempt 1 ended: its node failed (NODE_FAIL)',
            'norm 4.25, cosine 0.25 to the others',
        ],
    },
    {
        view: `jobs/${spoiled}`,
        name: 'spoiled',
        panels: [
            'the update of karolina stands out. atoll job resume goes on.',
            'Its aggregation waits, first ',
            'Kafka does not take the events of this job',
            'All 3 evaluations failed: exit code 1: no tokenizer',
        ],
    },
    {view: 'jobs', name: 'jobs', panels: ['karolina: slurmctld gives no answer', 'Rounds at work', 'Age of the oldest round', 'Late?', 'Updates by outcome']},
    {view: 'facilities', name: 'facilities', panels: titles(boards.facilities)},
    {view: 'services', name: 'services', panels: titles(boards.services)},
];

// Each picture is as wide as its place.
function checkWidths(dom, size, where) {
    const widths = [...dom.matchAll(/<svg width="(\d+)[^"]*" height="\d+[^>]*data-key=/g)].map(([, width]) => Number(width));
    assert.ok(widths.length > 0, `${where}: no picture`);
    for (const width of widths) assert.ok(width > 250 && width < Number(size.split(',')[0]), `${where}: ${width} wide`);
}

for (const one of looks)
    for (const {view, name, panels} of views) {
        const where = `${one.name}, ${name}`;
        let dom = '';
        for (let tries = 0; dom === '' && tries < 3; ++tries) dom = await look(one, view, '--dump-dom');
        const text = dom.replaceAll('&gt;', '>');
        for (const panel of [...panels, ...problems])
            assert.ok(text.includes(panel), `${where}: no "${panel}" in ${dom.slice(0, 5000)}`);
        checkWidths(dom, one.size, where);
        if (out) await look(one, view, `--screenshot=${join(out, `${name}-${one.name}.png`)}`);
        console.log(`ok ${where}`);
    }
process.exit(0);
