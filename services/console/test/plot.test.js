import assert from 'node:assert/strict';
import {test} from 'node:test';

import {nearest, path, spread, thin} from '../page/plot.js';

test('labels move apart, keep their order and stay within', () => {
    assert.deepEqual(spread([50, 52, 10], 14, 0, 100), [50, 64, 10]);
    const places = spread([99, 98, 97], 14, 0, 100);
    assert.deepEqual(places, [100, 86, 72]);
    assert.deepEqual(spread([], 14, 0, 100), []);
});

test('a long line is thinned to means, its last point stays', () => {
    const points = Array.from({length: 1000}, (_, i) => ({x: i, y: i % 2}));
    const few = thin(points, 100);
    assert.ok(few.length <= 100);
    assert.deepEqual(few[0], {x: 4.5, y: 0.5});
    assert.deepEqual(few.at(-1), {x: 999, y: 1});
    assert.equal(thin(few, 100), few);
});

test('a path goes through its points', () => {
    const same = (value) => value;
    assert.equal(
        path(
            [
                {x: 0, y: 1},
                {x: 2, y: 3.25},
            ],
            same,
            same
        ),
        'M0.0 1.0L2.0 3.3'
    );
});

test('a line ends at a gap and begins anew behind it, however it is thinned', () => {
    const same = (value) => value;
    const points = [{x: 0, y: 0}, {x: 1, y: 0}, {x: 5, y: 0, gap: true}, {x: 9, y: 0, gap: true}, {x: 10, y: 0}];
    assert.equal(path(points, same, same), 'M0.0 0.0L1.0 0.0M5.0 0.0h0M9.0 0.0L10.0 0.0');
    const many = Array.from({length: 1000}, (_, i) => ({x: i, y: 1, ...(i === 500 && {gap: true})}));
    const few = thin(many, 100);
    assert.deepEqual(
        few.filter((point) => point.gap).map((point) => Math.floor(point.x / 10)),
        [50]
    );
});

test('the nearest point is found', () => {
    assert.deepEqual(nearest([{x: 0}, {x: 5}, {x: 9}], 6), {x: 5});
});
