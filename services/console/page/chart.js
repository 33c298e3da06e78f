// A line chart as an SVG element, drawn for the width it will have.

import {svg, h} from './dom.js';
import {number} from './format.js';
import {nearest, path, spread, thin} from './plot.js';
import {extent, integerTicks, linearScale, linearTicks, logScale, logTicks, padded} from './scale.js';

const letter = 6.4; // width of a character, about
const boldLetter = 7.6;
const lineGap = 14;
const labelShare = 0.42; // of the width, for the names of lines

// As much of the name as there is room for beside its newest value.
function labelText({name, points}, width) {
    const most = Math.min(Math.max(Math.floor((width * labelShare) / boldLetter) - 8, 12), 24);
    const short = name.length > most ? `${name.slice(0, most - 1)}\u2026` : name;
    return `${short} ${number(points[points.length - 1].y)}`;
}

function frame(width, height, labels, yTicks) {
    const right = Math.min(Math.max(...labels.map((label) => label.length)) * boldLetter + 14, width * labelShare);
    const left = Math.max(...yTicks.map((tick) => number(tick).length)) * letter + 12;
    return {left, right: width - right, top: 20, bottom: height - 36};
}

function axes(spec, area, x, y, xTicks, yTicks) {
    const grid = yTicks.map((tick) => [
        svg('line', {class: 'grid', x1: area.left, x2: area.right, y1: y(tick), y2: y(tick)}),
        svg('text', {class: 'tick', x: area.left - 6, y: y(tick) + 4, 'text-anchor': 'end'}, number(tick)),
    ]);
    const below = xTicks.map((tick) =>
        svg('text', {class: 'tick', x: x(tick), y: area.bottom + 16, 'text-anchor': 'middle'}, number(tick))
    );
    const names = [
        svg('text', {class: 'axis', x: area.left, y: 11}, spec.yName),
        svg(
            'text',
            {class: 'axis', x: (area.left + area.right) / 2, y: area.bottom + 32, 'text-anchor': 'middle'},
            spec.xName
        ),
    ];
    return [grid, below, names];
}

// Faint lines where something begins (a round), named where there is room.
function borders(spec, area, x) {
    let free = -Infinity;
    return (spec.borders ?? []).map(({name, at}) => {
        const place = x(at);
        const isNamed = place >= free && place < area.right - 20;
        if (isNamed) free = place + name.length * letter + 10;
        return [
            svg('line', {class: 'border', x1: place, x2: place, y1: area.top, y2: area.bottom}),
            isNamed && svg('text', {class: 'tick', x: place + 3, y: area.top + 9}, name),
        ];
    });
}

function lines(spec, x, y) {
    return spec.series.map((one) => {
        const points = thin(one.points, 300);
        const hasMarks = points.length === 1 || ((spec.hasMarks || one.hasMarks) && points.length <= 40);
        return svg(
            'g',
            {class: `series ${one.style}`},
            svg('path', {class: 'line', d: path(points, x, y)}),
            hasMarks && points.map((point) => svg('circle', {cx: x(point.x), cy: y(point.y), r: 2.6}))
        );
    });
}

function directLabels(spec, area, x, y) {
    const ends = spec.series.map(({points}) => points[points.length - 1]);
    const places = spread(
        ends.map((end) => y(end.y)),
        lineGap,
        area.top,
        area.bottom
    );
    return spec.series.map((one, i) =>
        svg(
            'g',
            {class: `series ${one.style}`},
            svg('path', {class: 'leader', d: `M${x(ends[i].x) + 3} ${y(ends[i].y)}L${area.right + 6} ${places[i]}`}),
            svg('text', {class: 'label', x: area.right + 9, y: places[i] + 4}, labelText(one, spec.width))
        )
    );
}

// The values at one place of the x axis, by pointer or by the arrow keys.
function readout(spec, area, x, picture, output) {
    const stops = [...new Set(spec.series.flatMap(({points}) => thin(points, 300).map((point) => point.x)))].sort(
        (a, b) => a - b
    );
    const mark = svg('line', {class: 'mark', y1: area.top, y2: area.bottom, visibility: 'hidden'});
    let at = stops.length - 1;
    const show = () => {
        mark.setAttribute('visibility', 'visible');
        mark.setAttribute('x1', x(stops[at]));
        mark.setAttribute('x2', x(stops[at]));
        const values = spec.series.map((one) => `${one.name} ${number(nearest(one.points, stops[at]).y)}`);
        output.textContent = `${spec.xName} ${Math.round(stops[at])}: ${values.join(', ')}`;
    };
    picture.addEventListener('pointermove', (event) => {
        const place = event.clientX - picture.getBoundingClientRect().left;
        const distance = (i) => Math.abs(x(stops[i]) - place);
        at = stops.reduce((best, _, i) => (distance(i) < distance(best) ? i : best), 0);
        show();
    });
    picture.addEventListener('keydown', (event) => {
        const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
        if (!move) return;
        event.preventDefault();
        at = Math.min(Math.max(at + move, 0), stops.length - 1);
        show();
    });
    return mark;
}

function describe(spec) {
    const ends = spec.series.map((one) => `${one.name} ${number(one.points[one.points.length - 1].y)}`);
    return `${spec.title}. Last values: ${ends.join(', ')}. Arrow keys read the values.`;
}

// spec: {key, title, xName, yName, isLog, hasMarks, width, height, xLeast: what the x axis holds at least,
//        borders: [{name, at}], series: [{name, style, hasMarks, points: [{x, y}]}]}, every series with at least one point.
export function lineChart(spec) {
    const {width, height} = spec;
    const points = spec.series.flatMap((one) => one.points);
    const yRange = padded(extent(points.map((point) => point.y)), spec.isLog);
    const yTicks = spec.isLog ? logTicks(...yRange, 5) : linearTicks(...yRange, 5);
    const area = frame(width, height, spec.series.map((one) => labelText(one, width)), yTicks);
    const xRange = extent([...points.map((point) => point.x), ...spec.xLeast]);
    const xTicks = integerTicks(...xRange, Math.max(2, Math.floor((area.right - area.left) / 60)));
    const x = linearScale(xRange, [area.left + 4, area.right - 4]);
    const y = (spec.isLog ? logScale : linearScale)(yRange, [area.bottom, area.top]);
    const picture = svg('svg', {
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        role: 'img',
        tabindex: '0',
        'aria-label': describe(spec),
        'data-key': spec.key,
    });
    const output = h('output', {class: 'readout'});
    picture.append(
        ...[
            axes(spec, area, x, y, xTicks, yTicks),
            borders(spec, area, x),
            lines(spec, x, y),
            directLabels(spec, area, x, y),
            readout(spec, area, x, picture, output),
        ]
            .flat(Infinity)
            .filter(Boolean)
    );
    return h('figure', null, h('figcaption', null, spec.title), picture, output);
}
