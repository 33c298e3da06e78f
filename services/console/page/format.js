// Numbers, times and names as people read them. No DOM in here.

const missing = '\u2013';

export function shortDigest(digest) {
    return digest ? digest.slice(0, 12) : missing;
}

// Four significant digits: losses, perplexities.
export function number(value) {
    if (!Number.isFinite(value)) return missing;
    const magnitude = Math.abs(value);
    if (magnitude !== 0 && (magnitude < 0.001 || magnitude >= 1e6)) return value.toExponential(2);
    return magnitude >= 1000 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(4)));
}

// "3 of 12"; once the job has gone back to an earlier model "14 (as 5 of 12)".
export function roundOf({round, index = round, rounds}) {
    return index === round ? `${round} of ${rounds}` : `${round} (as ${index} of ${rounds})`;
}

// The round that is open, or in which the job ended, is not among them.
export function closedRounds({state, round, index = round, rounds}) {
    return state === 'completed' ? rounds : Math.max(Math.min(index, rounds) - 1, 0);
}

// A number that a site claims may have 300 digits.
export function count(value) {
    if (Math.abs(value) >= 1e15) return number(value);
    return Number.isFinite(value) ? Math.round(value).toLocaleString('en') : missing;
}

export function bytes(value) {
    if (!Number.isFinite(value)) return missing;
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0;
    while (value >= 1024 && unit < units.length - 1) {
        value /= 1024;
        ++unit;
    }
    return `${Number(value.toPrecision(3))}\u00a0${units[unit]}`;
}

// "42 s", "3 min 4 s", "2 h 5 min", "3 d 4 h"
export function duration(seconds) {
    if (!Number.isFinite(seconds)) return missing;
    const whole = Math.round(seconds);
    const units = [
        ['d', 86400],
        ['h', 3600],
        ['min', 60],
        ['s', 1],
    ];
    const first = units.findIndex(([, length]) => whole >= length);
    if (first < 0) return '0 s';
    const [name, length] = units[first];
    const text = `${Math.floor(whole / length)} ${name}`;
    if (first === units.length - 1) return text;
    const [next, nextLength] = units[first + 1];
    const rest = Math.floor((whole % length) / nextLength);
    return rest > 0 ? `${text} ${rest} ${next}` : text;
}

// From one ISO time to another, or to now (milliseconds) while there is no other.
export function between(from, to, now) {
    if (!from) return missing;
    return duration(((to ? Date.parse(to) : now) - Date.parse(from)) / 1000);
}

export function age(time, now) {
    return time ? `${between(time, null, now)} ago` : missing;
}

// "2026-03-01 12:30 UTC"
export function moment(time) {
    return time ? `${time.slice(0, 10)} ${time.slice(11, 16)} UTC` : missing;
}

// "it" -> "Italian"; a tag that nobody knows stays as it is.
export function language(tag) {
    try {
        return new Intl.DisplayNames(['en'], {type: 'language'}).of(tag);
    } catch {
        return tag;
    }
}
