// Making elements. Text is always text: nothing here reads a string as HTML.

import {shortDigest} from './format.js';

const svgNamespace = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
        else element.setAttribute(name, value === true ? '' : value);
    }
    element.append(
        ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    );
    return element;
}

export function h(name, attributes, ...children) {
    return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes, ...children) {
    return fill(document.createElementNS(svgNamespace, name), attributes, children);
}

// Builds the content of `container` anew if `signature` (anything that JSON can hold) has changed. What has the focus
// keeps it, and an open <details> stays open, when they carry a data-key.
export function refresh(container, signature, build) {
    const text = JSON.stringify(signature);
    if (container.atollSignature === text) return;
    container.atollSignature = text;
    const focused = container.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    const known = new Map(
        [...container.querySelectorAll('details[data-key]')].map((one) => [one.dataset.key, one.open])
    );
    container.replaceChildren(...[build()].flat(Infinity).filter(Boolean));
    for (const one of container.querySelectorAll('details[data-key]'))
        if (known.has(one.dataset.key)) one.open = known.get(one.dataset.key);
    if (focused !== undefined)
        [...container.querySelectorAll('[data-key]')].find((one) => one.dataset.key === focused)?.focus();
}

// A table that becomes a list of cards where the window is narrow: each cell knows its column's name. The roles are
// said again because `display` takes them away. Rows are arrays of cells, a cell is what an element may hold.
export function table(caption, columns, rows) {
    const cell = (content, i) =>
        h(
            i === 0 ? 'th' : 'td',
            {role: i === 0 ? 'rowheader' : 'cell', scope: i === 0 ? 'row' : null, 'data-column': columns[i]},
            h('span', {class: 'value'}, content)
        );
    return h(
        'table',
        {role: 'table', class: 'cards'},
        h('caption', {class: 'unseen'}, caption),
        h(
            'thead',
            {role: 'rowgroup'},
            h(
                'tr',
                {role: 'row'},
                columns.map((name) => h('th', {role: 'columnheader', scope: 'col'}, name))
            )
        ),
        h(
            'tbody',
            {role: 'rowgroup'},
            rows.map((row) => h('tr', {role: 'row'}, row.map(cell)))
        )
    );
}

const marks = {
    running: '\u25b6',
    paused: '\u2016',
    completed: '\u2713',
    done: '\u2713',
    closed: '\u2713',
    failed: '\u2715',
    cancelled: '\u2298',
    pending: '\u2026',
    staging: '\u2193',
    submitting: '\u2026',
    queued: '\u2026',
    collecting: '\u2191',
    training: '\u25b6',
    aggregating: '\u03a3',
    active: '\u2713',
    quarantined: '\u2298',
    critical: '\u2715',
    warning: '!',
};

// A state as a word with a mark, so that its colour is not all it has.
export function badge(state) {
    return h(
        'span',
        {class: `badge ${state}`},
        h('span', {'aria-hidden': 'true'}, marks[state] ?? '\u2022'),
        ` ${state}`
    );
}

export function bar(value, most, label) {
    return h('progress', {max: most, value: Math.min(value, most), 'aria-label': label});
}

// A digest, shortened, with a button that copies the whole.
export function digest(value, key) {
    if (!value) return '\u2013';
    const button = h(
        'button',
        {
            type: 'button',
            class: 'copy',
            title: `copy ${value}`,
            'data-key': key,
            'aria-label': `copy digest ${shortDigest(value)}`,
        },
        'copy'
    );
    button.addEventListener('click', () => copy(button, value));
    return h('span', {class: 'digest'}, h('code', null, shortDigest(value)), ' ', button);
}

async function copy(button, text) {
    let said = 'copied';
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        said = 'not allowed'; // a page without TLS has no clipboard
        getSelection().selectAllChildren(button.previousElementSibling);
        button.previousElementSibling.textContent = text;
    }
    button.textContent = said;
    setTimeout(() => (button.textContent = 'copy'), 1500);
}

export function notice(text, kind = '') {
    return h('p', {class: `notice ${kind}`, role: kind === 'bad' ? 'alert' : null}, text);
}
