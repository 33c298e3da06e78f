// What the services' metrics said at the looks since the page was opened, as the lines of panels. No DOM in here.

const looksMost = 240; // an hour at four a minute
const dayS = 86400;

const matches = (wanted, value) =>
    wanted instanceof RegExp
        ? wanted.test(value)
        : Array.isArray(wanted)
          ? wanted.includes(value)
          : wanted === value;

const join = {
    max: (a, b) => Math.max(a, b),
    min: (a, b) => Math.min(a, b),
    sum: (a, b) => a + b,
};

// The samples of one metric by the line's labels: Map(key of JSON → value).
function groups(line, metric, services) {
    const found = new Map();
    const by = line.ofJob ? [...line.by, 'atoll_job'] : line.by;
    for (const {name: instance, samples = []} of services)
        for (const sample of samples) {
            if (sample.metric !== metric) continue;
            const labels = {...sample.labels, instance};
            if (!Object.entries(line.where ?? {}).every(([label, wanted]) => matches(wanted, labels[label] ?? ''))) continue;
            const key = JSON.stringify(by.map((label) => labels[label] ?? ''));
            const before = found.get(key);
            found.set(key, before === undefined ? sample.value : join[line.across](before, sample.value));
        }
    return found;
}

// From the values of one line at the looks to its points: {x: minutes, y, gap}; null: this look gives none.
const takes = {
    value: ({value}) => value,
    left: ({value}, before, at) => (value - at.timeS) / dayS,
    age: ({value}, before, at) => at.timeS - value,
    increase: ({value}, before, at, line) => {
        line.sum = (line.sum ?? 0) + (before === null ? 0 : Math.max(value < before.value ? value : value - before.value, 0));
        return line.sum;
    },
    rate: ({value}, before, at) =>
        before === null || value < before.value ? null : (value - before.value) / (at.timeS - before.timeS),
    mean: ({value, count}, before) =>
        before === null || count <= before.count ? null : (value - before.value) / (count - before.count),
};

export class History {
    #looks = []; // {timeS, services: who answered, values: Map(line → {values, counts})}
    #listeners = new Set();
    #lines;
    #intervalS;

    constructor(boards, intervalMs) {
        this.#lines = Object.values(boards).flatMap((panels) => panels.flatMap(({lines}) => lines));
        this.#intervalS = intervalMs / 1000;
    }

    // `services` as problems.js has them: [{name, samples}].
    add(timeS, services) {
        const values = new Map();
        for (const line of this.#lines)
            values.set(line, {
                values: groups(line, line.take === 'mean' && !line.over ? `${line.metric}_sum` : line.metric, services),
                ...(line.take === 'mean' && {counts: groups(line, line.over ?? `${line.metric}_count`, services)}),
            });
        this.#looks.push({timeS, values});
        if (this.#looks.length > looksMost) this.#looks.shift();
        for (const listener of this.#listeners) listener();
    }

    // Calls `look` after each look, until the signal.
    follow(look, signal) {
        this.#listeners.add(look);
        signal.addEventListener('abort', () => this.#listeners.delete(look), {once: true});
    }

    clear() {
        this.#looks = [];
    }

    // The lines of a panel: [{name, labels, points: [{x: minutes since the first look, y, gap}]}], by name.
    series(panel, job) {
        return panel.lines
            .flatMap((line) => this.#seriesOf(line, job))
            .sort((a, b) => a.name.localeCompare(b.name));
    }

    #seriesOf(line, job) {
        const keys = new Set(this.#looks.flatMap(({values}) => [...values.get(line).values.keys()]));
        return [...keys].flatMap((key) => {
            const labels = JSON.parse(key);
            if (line.ofJob && labels.pop() !== job) return [];
            const points = this.#points(line, key);
            return points.length > 0 ? [{name: [line.name, ...labels].filter(Boolean).join(' '), labels, points}] : [];
        });
    }

    #points(line, key) {
        const take = takes[line.take ?? 'value'];
        const state = {};
        const points = [];
        let before = null;
        let last = null;
        for (const look of this.#looks) {
            const {values, counts} = look.values.get(line);
            if (!values.has(key)) continue;
            const now = {value: values.get(key), count: counts?.get(key), timeS: look.timeS};
            const y = take(now, before, look, state);
            before = now;
            if (y === null || !Number.isFinite(y)) continue;
            const gap = last !== null && look.timeS - last > 3 * this.#intervalS;
            points.push({x: (look.timeS - this.#looks[0].timeS) / 60, y: y * (line.scale ?? 1), ...(gap && {gap})});
            last = look.timeS;
        }
        return points;
    }

    // Of a panel that shows states: [{name, bars: [{phase, from, to, isOpen}]}], seconds since the first look.
    states(panel) {
        const rows = new Map();
        for (const {labels, points} of this.series(panel)) {
            const isSplit = panel.phase.length > 1; // several lines make one row, each a phase of its own
            const name = isSplit ? labels[0] : labels.filter(Boolean).join(': ');
            if (!rows.has(name)) rows.set(name, []);
            for (const [i, point] of points.entries()) {
                const phase = panel.phase(point.y, labels);
                if (phase === null) continue;
                const from = point.x * 60;
                const next = points[i + 1];
                const isLast = next === undefined;
                const to = isLast || next.gap ? from + this.#intervalS : next.x * 60;
                const bars = rows.get(name);
                const before = bars[bars.length - 1];
                if (before && before.phase === phase && before.to >= from) Object.assign(before, {to, isOpen: isLast});
                else bars.push({phase, from, to, isOpen: isLast});
            }
        }
        return [...rows].map(([name, bars]) => ({name, bars})).filter(({bars}) => bars.length > 0);
    }
}
