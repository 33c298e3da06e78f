// A board of panels, drawn anew at each look at the services' metrics.

import {lineChart} from './chart.js';
import {h, notice, refresh} from './dom.js';
import {gantt} from './gantt.js';

const xName = 'minutes since this page was opened';
const linesMost = 8;
const colours = 6;

const styleOf = (i) => `c${i % colours}${i >= colours ? ' second' : ''}`;

// Lines that matter most first, where there are too many to be told apart: those with the largest newest value.
function fewest(series) {
    const newest = ({points}) => points[points.length - 1].y;
    if (series.length <= linesMost) return series;
    return [...series].sort((a, b) => newest(b) - newest(a)).slice(0, linesMost);
}

function chart(panel, series, width) {
    const shown = fewest(series);
    const hidden = series.length - shown.length;
    return [
        lineChart({
            key: `panel ${panel.title}`,
            title: panel.title,
            xName,
            yName: panel.yName,
            width,
            height: 200,
            xLeast: [0, 1],
            borders: [],
            series: shown.map((one, i) => ({...one, style: styleOf(i)})),
        }),
        hidden > 0 && h('p', {class: 'soft'}, `The ${linesMost} largest of ${series.length}.`),
    ];
}

function draw(panel, history, width, job) {
    if (panel.shows === 'states') {
        const rows = history.states(panel);
        if (rows.length === 0) return null;
        return gantt({key: `panel ${panel.title}`, title: panel.title, xName: 'since this page was opened', width, rows});
    }
    const series = history.series(panel, job);
    return series.length === 0 ? null : chart(panel, series, width);
}

// The panels of which something is known, in two columns where there is room; states over the whole width.
function content(panels, history, width, job) {
    const isTwo = width > 720;
    const each = isTwo ? (width - 16) / 2 : width;
    const drawn = panels.map((panel) => ({panel, shown: draw(panel, history, panel.shows ? width : each, job)}));
    const there = drawn.filter(({shown}) => shown !== null);
    if (there.length === 0) return [notice('Nothing has been measured yet.')];
    const wide = there.filter(({panel}) => panel.shows).map(({shown}) => shown);
    const charts = there.filter(({panel}) => !panel.shows).map(({shown}) => h('div', null, shown));
    return [wide, h('div', {class: 'panels'}, charts)];
}

// `section` shows the board from now on. `job`: the name of the job whose panels they are.
export function showBoard({history, signal}, section, title, panels, job) {
    const draw = () => {
        if (!section.isConnected) return;
        const padding = parseFloat(getComputedStyle(section).paddingLeft || '0');
        const width = section.clientWidth - 2 * padding;
        if (width < 100) return;
        const known = panels.map((panel) => (panel.shows ? history.states(panel) : history.series(panel, job)));
        refresh(section, [width, known], () => [h('h2', null, title), content(panels, history, width, job)]);
    };
    history.follow(draw, signal);
    addEventListener('resize', draw, {signal});
    draw();
}
