// Rows of bars on an axis of time, as an SVG element, drawn for the width that it will have.

import {svg, h} from './dom.js';
import {duration} from './format.js';
import {linearScale, linearTicks} from './scale.js';

const letter = 6.6; // width of a character, about
const rowHeight = 30;
const barHeight = 20;
const units = [
    ['days', 86400],
    ['hours', 3600],
    ['minutes', 60],
    ['seconds', 1],
];

// The largest unit of which the axis holds at least two.
export function timeUnit(length) {
    return units.find(([, size]) => length >= 2 * size) ?? units[units.length - 1];
}

const words = {
    staging: '\u2193 staging',
    queued: 'queued',
    running: 'running',
    collecting: '\u2191 collecting',
    aggregating: 'aggregating',
    up: 'works',
    down: 'does not',
    pending: 'pending',
    submitting: 'submitting',
};

function legend(rows) {
    const there = new Set(rows.flatMap(({bars}) => bars.map(({phase}) => phase)));
    const swatch = (phase) =>
        svg('svg', {width: 16, height: 12, 'aria-hidden': 'true'}, rectangle(phase, 1, 1, 14, 10));
    const items = Object.keys(words).filter((phase) => there.has(phase));
    return h(
        'ul',
        {class: 'legend'},
        items.map((phase) => h('li', null, swatch(phase), words[phase]))
    );
}

function rectangle(phase, x, y, width, height, more = {}) {
    return svg('rect', {class: `phase ${phase}`, x, y, width, height, rx: 2, ...more});
}

function bar(one, y, x) {
    const [left, right] = [x(one.from), x(one.to)];
    const width = Math.max(right - left, 1.5);
    const text = duration(one.to - one.from);
    const hasRoom = width > text.length * letter + 8;
    return [
        rectangle(one.phase, left, y, width, barHeight),
        hasRoom &&
            svg('text', {class: `in-bar ${one.phase}`, x: left + width / 2, y: y + 14, 'text-anchor': 'middle'}, text),
    ];
}

function axis(spec, area, x, length) {
    const [unit, size] = timeUnit(length);
    const wanted = Math.max(2, Math.floor((area.right - area.left) / 80));
    const ticks = linearTicks(0, length / size, wanted).map((tick) => [
        svg('line', {class: 'grid', x1: x(tick * size), x2: x(tick * size), y1: area.top, y2: area.bottom}),
        svg('text', {class: 'tick', x: x(tick * size), y: area.bottom + 16, 'text-anchor': 'middle'}, String(tick)),
    ]);
    const middle = (area.left + area.right) / 2;
    const name = `${unit} ${spec.xName}`;
    return [ticks, svg('text', {class: 'axis', x: middle, y: area.bottom + 32, 'text-anchor': 'middle'}, name)];
}

const sentence = (row, one) =>
    `${row.name}: ${one.phase} ${duration(one.to - one.from)}${one.isOpen ? ' so far' : ''}, from ${duration(one.from)} on`;

// The bar under the pointer, or the one that the arrow keys have come to.
function readout(spec, area, x, picture, output) {
    const all = spec.rows.flatMap((row, i) => row.bars.map((one) => ({row, one, i})));
    const mark = svg('rect', {class: 'mark', fill: 'none', height: barHeight + 4, rx: 3, visibility: 'hidden'});
    let at = -1;
    const show = (next) => {
        at = next;
        const {row, one, i} = all[at];
        for (const [name, value] of Object.entries({
            visibility: 'visible',
            x: x(one.from) - 2,
            y: area.top + i * rowHeight + 3,
            width: Math.max(x(one.to) - x(one.from), 1.5) + 4,
        }))
            mark.setAttribute(name, value);
        output.textContent = sentence(row, one);
    };
    picture.addEventListener('pointermove', (event) => {
        const box = picture.getBoundingClientRect();
        const [left, top] = [event.clientX - box.left, event.clientY - box.top];
        const i = Math.floor((top - area.top) / rowHeight);
        const found = all.findIndex((bar) => bar.i === i && left >= x(bar.one.from) - 2 && left <= x(bar.one.to) + 2);
        if (found >= 0) show(found);
    });
    picture.addEventListener('keydown', (event) => {
        const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
        if (!move) return;
        event.preventDefault();
        show(Math.min(Math.max(at + move, 0), all.length - 1));
    });
    return mark;
}

const nameOf = ({name}, most) => (name.length > most ? `${name.slice(0, most - 1)}\u2026` : name);

// spec: {key, title, xName: behind the unit, width, rows: [{name, bars: [{phase, from, to, isOpen}]}]}, seconds; every
// row with at least one bar.
export function gantt(spec) {
    const {width, rows} = spec;
    const most = Math.max(8, Math.floor((width * 0.3) / letter));
    const longest = Math.max(...rows.map((row) => Math.min(row.name.length, most)));
    const area = {left: longest * letter + 12, right: width - 14, top: 4, bottom: 4 + rows.length * rowHeight};
    const height = area.bottom + 36;
    const length = Math.max(...rows.flatMap(({bars}) => bars.map(({to}) => to)), 1);
    const x = linearScale([0, length], [area.left, area.right]);
    const described = rows.map(
        (row) => `${row.name}: ${row.bars.map((one) => `${one.phase} ${duration(one.to - one.from)}`).join(', ')}`
    );
    const picture = svg('svg', {
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        role: 'img',
        tabindex: '0',
        'aria-label': `${spec.title}. ${described.join('; ')}. Arrow keys read the bars.`,
        'data-key': spec.key,
    });
    const output = h('output', {class: 'readout'});
    const drawn = rows.map((row, i) => {
        const y = area.top + i * rowHeight + 5;
        const name = svg(
            'text',
            {class: 'row-name', x: area.left - 8, y: y + 14, 'text-anchor': 'end'},
            svg('title', null, row.name),
            nameOf(row, most)
        );
        return [name, row.bars.map((one) => bar(one, y, x))];
    });
    picture.append(
        ...[axis(spec, area, x, length), drawn, readout(spec, area, x, picture, output)].flat(Infinity).filter(Boolean)
    );
    return h('figure', null, h('figcaption', null, spec.title), legend(rows), picture, output);
}
