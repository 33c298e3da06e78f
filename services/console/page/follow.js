// Reading a job's events on from a cursor for as long as anyone looks. No DOM in here.

const pauseMs = {first: 1000, longest: 30000};

// The pause before the n-th repeat: doubled each time up to half a minute, less up to a half by chance, so that many
// pages do not come back at once.
export function backoffMs(failures, random = Math.random) {
    const whole = Math.min(pauseMs.first * 2 ** (failures - 1), pauseMs.longest);
    return whole * (1 - random() / 2);
}

// An answer that a repeat would not change: 4xx but "too many requests" and "timeout".
export function isFinal(error) {
    return error.status >= 400 && error.status < 500 && error.status !== 408 && error.status !== 429;
}

// Gives pages of events to `take` until it returns false or `stopped()`. `read(cursor)` answers
// {items: [{number, …}]}, late if there are none yet. `trouble(error, pause)` hears of each failure that will be
// repeated, `trouble(null)` when it is over. Throws what no repeat would change.
export async function follow({read, take, trouble, pause, stopped, random}) {
    let cursor = 0;
    let failures = 0;
    while (!stopped()) {
        try {
            const page = await read(cursor);
            if (stopped()) return;
            if (failures > 0) trouble(null);
            failures = 0;
            const last = page.items[page.items.length - 1];
            if (last) cursor = Math.max(cursor, last.number);
            if (take(page.items) === false) return;
        } catch (error) {
            if (stopped()) return;
            if (isFinal(error) || !('status' in error)) throw error;
            const wait = backoffMs(++failures, random);
            trouble(error, wait);
            await pause(wait);
        }
    }
}
