// The page in a headless Chromium: light, dark and on a phone. Pictures go into the directory that is given; nothing may
// stand beside the window, and each panel must be there. Exit status 77: there is no Chromium.

import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {mkdtemp, rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {promisify} from 'node:util';

import {serve} from './coordinator.js';

const run = promisify(execFile);
const chromium = process.env.CHROMIUM ?? 'chromium';
const out = process.argv[2];

try {
    await run(chromium, ['--version']);
} catch {
    console.log('no chromium: install chromium');
    process.exit(77);
}

const {address, job} = await serve();
const looks = [
    {name: 'light', size: '1280,2600', scheme: 1},
    {name: 'dark', size: '1280,2600', scheme: 0},
    {name: 'phone', size: '500,4200', scheme: 1},
];

async function look({name, size, scheme}, view, what) {
    const home = await mkdtemp(join(tmpdir(), 'console-'));
    try {
        const {stdout} = await run(
            chromium,
            [
                '--headless',
                '--no-sandbox',
                '--disable-gpu',
                '--hide-scrollbars',
                `--user-data-dir=${home}`,
                `--window-size=${size}`,
                `--blink-settings=preferredColorScheme=${scheme}`,
                ...what(name),
                `${address}/enter?${view}`,
            ],
            {maxBuffer: 1 << 26, timeout: 120_000}
        );
        return stdout;
    } finally {
        await rm(home, {recursive: true, force: true, maxRetries: 5});
    }
}

const panels = [
    'Round 4 in time',
    'Where the time went',
    'Data moved',
    'Training loss',
    'Perplexity: ',
    'minutes since it was opened',
    'of all tasks together',
    '3 problems, 1 critical',
    'Connection timed out',
    'Ends about',
];

for (const one of looks) {
    let dom = '';
    for (let tries = 0; dom === '' && tries < 3; ++tries) dom = await look(one, `jobs/${job}`, () => ['--dump-dom']);
    for (const panel of panels) assert.ok(dom.includes(panel), `${one.name}: no "${panel}" in ${dom.slice(0, 5000)}`);
    const [, width] = dom.match(/<svg width="(\d+)[^"]*" height="\d+[^>]*data-key="phases"/) ?? [];
    assert.ok(Number(width) > 250 && Number(width) < Number(one.size.split(',')[0]), `${one.name}: ${width} wide`);
    if (out) await look(one, `jobs/${job}`, (name) => [`--screenshot=${join(out, `${name}.png`)}`]);
    console.log(`ok ${one.name}`);
}
process.exit(0);
