// Looking again and again for as long as a view is shown. No DOM in here but whether the page is seen.

import {backoffMs, isFinal} from './follow.js';

export function pause(milliseconds, signal) {
    return new Promise((resolve) => {
        const timer = setTimeout(resolve, milliseconds);
        signal.addEventListener(
            'abort',
            () => {
                clearTimeout(timer);
                resolve();
            },
            {once: true}
        );
    });
}

// Calls `look` now and every `interval` milliseconds. A failure that a repeat may mend is said and repeated; what no
// repeat would change is thrown.
export async function poll({signal, say}, interval, look) {
    let failures = 0;
    while (!signal.aborted) {
        let wait = interval;
        try {
            if (!document.hidden || failures > 0) await look();
            if (failures > 0) say('');
            failures = 0;
        } catch (error) {
            if (signal.aborted) return;
            if (isFinal(error) || !('status' in error)) throw error;
            wait = backoffMs(++failures);
            say(`${error.message} Trying again in ${Math.ceil(wait / 1000)} s.`);
        }
        await pause(wait, signal);
    }
}
