import assert from 'node:assert/strict';
import {test} from 'node:test';

import {extent, integerTicks, linearScale, linearTicks, logScale, logTicks, niceStep, padded} from '../page/scale.js';

test('the extent passes over what is no number', () => {
    assert.deepEqual(extent([3, NaN, 1, undefined, 2]), [1, 3]);
    assert.equal(extent([NaN]), null);
});

test('steps are 1, 2 or 5 times a power of ten', () => {
    assert.deepEqual([0.7, 1, 1.1, 3, 5.5, 0.012].map(niceStep), [1, 1, 2, 5, 10, 0.02]);
});

test('linear ticks are round and within', () => {
    assert.deepEqual(linearTicks(0.13, 1.02, 5), [0.2, 0.4, 0.6, 0.8, 1]);
    assert.deepEqual(linearTicks(-1, 1, 4), [-1, -0.5, 0, 0.5, 1]);
    assert.deepEqual(linearTicks(2, 2), [2]);
    assert.deepEqual(integerTicks(0, 2, 6), [0, 1, 2]);
});

test('logarithmic ticks are 1, 2, 5 within a few decades and powers over many', () => {
    assert.deepEqual(logTicks(30, 1200, 5), [50, 100, 200, 500, 1000]);
    assert.deepEqual(logTicks(1, 1e6, 5), [1, 10, 100, 1000, 10000, 100000, 1000000]);
    const many = logTicks(1, 1e30, 5);
    assert.ok(many.length >= 3 && many.length <= 7, `${many}`);
});

test('within less than a decade the ticks are linear ones, never fewer than two', () => {
    assert.deepEqual(logTicks(41, 58, 4), [45, 50, 55]);
    for (const [low, high] of [
        [1.01, 1.02],
        [9, 11],
        [99, 1001],
        [3, 3e3],
        [0.5, 80],
    ])
        assert.ok(logTicks(low, high).length >= 2, `${low} to ${high}: ${logTicks(low, high)}`);
});

test('ticks of any range stay within it, rise, and are few', () => {
    for (let low = 0.01; low < 1e5; low *= 1.7)
        for (let high = low * 1.1; high < 1e7; high *= 2.3)
            for (const ticks of [logTicks(low, high), linearTicks(low, high)]) {
                assert.ok(ticks.length >= 2 && ticks.length <= 12, `${low} to ${high}: ${ticks}`);
                assert.ok(
                    ticks.every(
                        (tick, i) =>
                            tick >= low * 0.999999 && tick <= high * 1.000001 && (i === 0 || tick > ticks[i - 1])
                    )
                );
            }
});

test('scales lead from values to places', () => {
    assert.equal(linearScale([0, 10], [100, 0])(2.5), 75);
    assert.equal(logScale([1, 100], [0, 10])(10), 5);
    assert.equal(linearScale([4, 4], [0, 10])(4), 5);
});

test('an axis has a length even for a single value', () => {
    for (const isLog of [false, true])
        for (const value of [7, 0.001]) {
            const [low, high] = padded([value, value], isLog);
            assert.ok(low < value && value < high && (!isLog || low > 0));
        }
    assert.deepEqual(padded([0, 0], false), [0, 1]);
    assert.deepEqual(padded([0, 100], false), [0, 106]);
    assert.deepEqual(padded([-100, 0], false), [-106, 6]);
});
