// From values to places on an axis, and where its ticks stand. No DOM in here.

// Smallest and largest of the finite values; null when there is none.
export function extent(values) {
    let low = Infinity;
    let high = -Infinity;
    for (const value of values) {
        if (!Number.isFinite(value)) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
    }
    return low <= high ? [low, high] : null;
}

// 1, 2 or 5 times a power of ten, at least `step`.
export function niceStep(step) {
    const power = 10 ** Math.floor(Math.log10(step));
    const factor = [1, 2, 5, 10].find((one) => one * power >= step * (1 - 1e-9));
    return factor * power;
}

// Round values within [low, high], about `wanted` of them.
export function linearTicks(low, high, wanted = 5) {
    if (!(high > low)) return [low];
    const step = niceStep((high - low) / wanted);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
        ticks.push(Number((i * step).toPrecision(12)));
    return ticks;
}

// Whole numbers only: rounds, steps.
export function integerTicks(low, high, wanted = 6) {
    return linearTicks(low, high, wanted).filter(Number.isInteger);
}

function powersWith(factors, low, high) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
        for (const factor of factors) {
            const tick = Number((factor * 10 ** power).toPrecision(12));
            if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push(tick);
        }
    return ticks;
}

// Ticks of a logarithmic axis: as many of 1, 2 and 5 in each decade as are about `wanted`; linear ones where less than
// that would fit in.
export function logTicks(low, high, wanted = 5) {
    if (!(low > 0) || !(high > low)) return [low];
    for (const factors of [[1, 2, 5], [1, 3], [1]]) {
        const ticks = powersWith(factors, low, high);
        if (ticks.length < 3) break;
        if (ticks.length <= wanted + 2) return ticks;
    }
    const powers = powersWith([1], low, high);
    if (powers.length <= wanted + 2) return powers.length >= 3 ? powers : linearTicks(low, high, wanted);
    const stride = Math.ceil(powers.length / wanted);
    return powers.filter((_, i) => i % stride === 0);
}

// A function from [low, high] to [from, to]. Equal bounds lead to the middle.
export function linearScale([low, high], [from, to]) {
    if (!(high > low)) return () => (from + to) / 2;
    return (value) => from + ((value - low) / (high - low)) * (to - from);
}

export function logScale([low, high], range) {
    const inner = linearScale([Math.log(low), Math.log(high)], range);
    return (value) => inner(Math.log(value));
}

// A little air on both sides; of a single value some, so that the axis has a length. Below 0 only what is.
export function padded([low, high], isLog) {
    if (isLog) {
        const factor = high > low ? (high / low) ** 0.06 : 1.2;
        return [low / factor, high * factor];
    }
    const air = high > low ? (high - low) * 0.06 : Math.abs(low) * 0.1 || 1;
    return [low >= 0 ? Math.max(low - air, 0) : low - air, high + air];
}
