// A headless Chromium with a profile of its own, which is removed afterwards.

import {execFile} from 'node:child_process';
import {mkdtemp, rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {promisify} from 'node:util';

const run = promisify(execFile);
const program = process.env.CHROMIUM ?? 'chromium';

export async function isThere() {
    return run(program, ['--version']).then(
        () => true,
        () => false
    );
}

// What it prints of the page at `address`. `size`: "WIDTH,HEIGHT"; `options`: what it shall do with the page.
export async function open(address, {size, options, timeoutMs}) {
    const home = await mkdtemp(join(tmpdir(), 'console-'));
    const common = ['--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', `--user-data-dir=${home}`];
    try {
        const words = [...common, `--window-size=${size}`, ...options, address];
        return (await run(program, words, {maxBuffer: 1 << 26, timeout: timeoutMs})).stdout;
    } finally {
        await rm(home, {recursive: true, force: true, maxRetries: 5});
    }
}
