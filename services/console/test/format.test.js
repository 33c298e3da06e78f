import assert from 'node:assert/strict';
import {test} from 'node:test';

import {age, between, bytes, closedRounds, count, duration, language, moment, number, roundOf, shortDigest} from '../page/format.js';

test('numbers keep four digits', () => {
    assert.deepEqual([3.14159, 95.8249, 749.51, 1743.28, 0.00001, 12345678, 0].map(number), [
        '3.142',
        '95.82',
        '749.5',
        '1,743',
        '1.00e-5',
        '1.23e+7',
        '0',
    ]);
    assert.equal(number(undefined), '\u2013');
    assert.equal(count(531252.4), '531,252');
    assert.equal(count(1e308), '1.00e+308');
    assert.equal(count(undefined), '\u2013');
    assert.equal(bytes(2663424), '2.54\u00a0MiB');
    assert.equal(bytes(0), '0\u00a0B');
});

test('a round that stands for an earlier one says so', () => {
    assert.equal(roundOf({round: 3, index: 3, rounds: 12}), '3 of 12');
    assert.equal(roundOf({round: 14, index: 5, rounds: 12}), '14 (as 5 of 12)');
});

test('only closed rounds count as done', () => {
    assert.equal(closedRounds({state: 'running', round: 1, rounds: 1}), 0);
    assert.equal(closedRounds({state: 'failed', round: 5, index: 3, rounds: 4}), 2);
    assert.equal(closedRounds({state: 'completed', round: 4, rounds: 4}), 4);
});

test('durations have two units at most', () => {
    assert.deepEqual([0.2, 42, 60, 184, 7500, 360000].map(duration), [
        '0 s',
        '42 s',
        '1 min',
        '3 min 4 s',
        '2 h 5 min',
        '4 d 4 h',
    ]);
    assert.equal(duration(-5), '0 s', 'clocks differ');
});

test('times are told from now, or from end to end', () => {
    const now = Date.parse('2026-03-01T12:00:30Z');
    assert.equal(age('2026-03-01T12:00:00Z', now), '30 s ago');
    assert.equal(between('2026-03-01T12:00:00Z', null, now), '30 s');
    assert.equal(between('2026-03-01T12:00:00Z', '2026-03-01T13:00:00Z', now), '1 h');
    assert.equal(moment('2026-03-01T12:30:59.123Z'), '2026-03-01 12:30 UTC');
    assert.equal(moment(null), '\u2013');
});

test('languages have names, and an unknown tag stays', () => {
    assert.equal(language('cs'), 'Czech');
    assert.equal(language('not a tag'), 'not a tag');
});

test('digests are shortened', () => {
    assert.equal(shortDigest('0123456789abcdef'), '0123456789ab');
    assert.equal(shortDigest(''), '\u2013');
});
