import assert from 'node:assert/strict';
import {test} from 'node:test';

import {ApiError, connect, tokenProblem} from '../page/api.js';
import {backoffMs, follow} from '../page/follow.js';

// Follows what `answers` say, one a read: a list of event numbers, or an error. Returns what happened.
async function followed(answers) {
    const seen = {cursors: [], events: [], troubles: [], pauses: []};
    const rest = [...answers];
    const loop = follow({
        read: async (cursor) => {
            seen.cursors.push(cursor);
            const answer = rest.shift();
            if (answer instanceof Error) throw answer;
            return {items: answer.map((number) => ({number}))};
        },
        take: (events) => {
            seen.events.push(...events.map((event) => event.number));
            return rest.length > 0;
        },
        trouble: (error) => seen.troubles.push(error?.status ?? 'over'),
        pause: async (milliseconds) => seen.pauses.push(milliseconds),
        stopped: () => false,
        random: () => 0,
    });
    seen.error = await loop.then(
        () => null,
        (error) => error
    );
    return seen;
}

test('each read goes on where the last ended', async () => {
    const seen = await followed([[1, 2], [], [3]]);
    assert.deepEqual(seen.cursors, [0, 2, 2]);
    assert.deepEqual(seen.events, [1, 2, 3]);
    assert.equal(seen.error, null);
});

test('a failure is repeated from the same cursor after growing pauses', async () => {
    const away = new ApiError(0, 'away');
    const seen = await followed([[1], away, new ApiError(503, 'busy'), away, [2], away, [3]]);
    assert.deepEqual(seen.cursors, [0, 1, 1, 1, 1, 2, 2]);
    assert.deepEqual(seen.pauses, [1000, 2000, 4000, 1000]);
    assert.deepEqual(seen.troubles, [0, 503, 0, 'over', 0, 'over']);
    assert.deepEqual(seen.events, [1, 2, 3]);
});

test('what no repeat would change ends it', async () => {
    assert.equal((await followed([[1], new ApiError(401, 'token')])).error.status, 401);
    assert.equal((await followed([new ApiError(429, 'slower'), []])).error, null);
    assert.ok((await followed([new TypeError('a mistake of ours')])).error instanceof TypeError);
});

test('pauses are bounded and scattered', () => {
    assert.equal(
        backoffMs(50, () => 0),
        30000
    );
    assert.equal(
        backoffMs(3, () => 1),
        2000
    );
});

function answer(status, body) {
    return {ok: status < 300, status, json: async () => body};
}

test('the token travels in the header and nowhere else', async () => {
    const calls = [];
    const api = connect('a.b.c', async (path, options) => {
        calls.push([path, options]);
        return answer(200, {items: [], next: null});
    });
    await api.all('/dispatch/v1/jobs');
    const [[path, options]] = calls;
    assert.equal(path, '/dispatch/v1/jobs?limit=1000');
    assert.equal(options.headers.Authorization, 'Bearer a.b.c');
    assert.equal(options.method ?? 'GET', 'GET');
});

test('a list is read to its end', async () => {
    const pages = {'/x?limit=1000': {items: [1], next: 'a&b'}, '/x?limit=1000&after=a%26b': {items: [2], next: null}};
    const api = connect('a.b.c', async (path) => answer(200, pages[path]));
    assert.deepEqual(await api.all('/x'), [1, 2]);
});

test('failures say what they mean', async () => {
    const failure = (status, body) =>
        connect('a.b.c', async () => answer(status, body))
            .get('/x')
            .then(
                () => null,
                (error) => error
            );
    assert.match((await failure(401, {})).message, /does not accept this token/);
    assert.equal((await failure(422, {field: 'after', detail: 'no cursor'})).message, 'after: no cursor');
    assert.equal((await failure(409, {detail: 'it runs'})).message, 'it runs');
    const away = await connect('a.b.c', async () => Promise.reject(new TypeError('network')))
        .get('/x')
        .then(
            () => null,
            (error) => error
        );
    assert.deepEqual([away.status, away.message], [0, 'The coordinator does not answer.']);
});

test('what cannot be a token is refused before it is sent', () => {
    assert.equal(tokenProblem('eyJ0.eyJz.c2ln_-'), null);
    for (const wrong of ['', 'x', 'a.b', 'a.b.c\nd', 'Bearer a.b.c', 'a.b.c.d']) assert.ok(tokenProblem(wrong), wrong);
});
