// The page's frame: the token, the address (#/jobs/…), and one view at a time.

import {connect, tokenProblem} from './api.js';
import {showDatasets} from './datasets_view.js';
import {h, notice} from './dom.js';
import {showFacilities} from './facilities_view.js';
import {History} from './history.js';
import {showJob} from './job_view.js';
import {showJobs} from './jobs_view.js';
import {boards} from './panels.js';
import {intervalMs, showProblems} from './problems_view.js';
import {showServices} from './services_view.js';

const tokenKey = 'atoll.token'; // of this tab only: it is gone when the tab is closed
const main = document.getElementById('main');
const problems = document.getElementById('problems');
const status = document.getElementById('status');
const sections = document.getElementById('sections');
const forget = document.getElementById('forget');
const history = new History(boards, intervalMs);
let current = new AbortController();

function route() {
    const [name = 'jobs', id] = location.hash.replace(/^#\//, '').split('/').map(decodeURIComponent);
    if (name === 'facilities') return {name, title: 'Facilities', show: showFacilities};
    if (name === 'services') return {name, title: 'Services', show: showServices};
    if (name === 'datasets') return {name, title: 'Datasets', show: showDatasets};
    if (id) return {name: 'jobs', title: 'Job', show: (view) => showJob(view, id)};
    return {name: 'jobs', title: 'Jobs', show: showJobs};
}

function title(text) {
    document.title = `${text} \u00b7 Atoll`;
}

async function open() {
    current.abort();
    current = new AbortController();
    const {signal} = current;
    const token = sessionStorage.getItem(tokenKey);
    sections.hidden = forget.hidden = token === null;
    status.textContent = '';
    problems.hidden ||= token === null;
    if (token === null) return askForToken();
    const {name, title: text, show} = route();
    title(text);
    for (const link of sections.children) {
        if (link.getAttribute('href') === `#/${name}`) link.setAttribute('aria-current', 'page');
        else link.removeAttribute('aria-current');
    }
    main.replaceChildren(notice('Loading \u2026'));
    const view = {
        main,
        api: connect(token),
        history,
        signal,
        title,
        say: (line) => {
            if (!signal.aborted && status.textContent !== line) status.textContent = line;
        },
    };
    showProblems(view, problems).catch(() => {}); // of what does not answer the view itself speaks
    try {
        await show(view);
    } catch (error) {
        if (!signal.aborted) refuse(error);
    }
}

function refuse(error) {
    current.abort();
    if (error.status !== 401) {
        const again = h('button', {type: 'button', onclick: open}, 'Try again');
        return main.replaceChildren(notice(error.message, 'bad'), again);
    }
    sessionStorage.removeItem(tokenKey);
    sections.hidden = forget.hidden = problems.hidden = true;
    askForToken(error.message);
}

function askForToken(problem) {
    title('Token');
    const input = h('input', {
        id: 'token',
        type: 'password',
        autocomplete: 'off',
        spellcheck: 'false',
        'aria-describedby': 'where',
    });
    const trouble = h('div');
    const accept = (event) => {
        event.preventDefault();
        const token = input.value.trim();
        const wrong = tokenProblem(token);
        if (wrong) return trouble.replaceChildren(notice(wrong, 'bad'));
        sessionStorage.setItem(tokenKey, token);
        open();
    };
    const form = h(
        'form',
        {onsubmit: accept},
        h('label', {for: 'token'}, 'Token'),
        input,
        trouble,
        h('button', {type: 'submit', class: 'main'}, 'Look')
    );
    main.replaceChildren(
        h(
            'section',
            null,
            h('h1', null, 'Atoll'),
            h(
                'p',
                null,
                'This page shows jobs, facilities and datasets. It changes nothing: a viewer\u2019s token is enough.'
            ),
            form,
            h(
                'p',
                {id: 'where', class: 'soft'},
                'On the coordinator\u2019s machine: ',
                h('code', null, 'cat STATE/tokens/viewer.token'),
                ', where STATE is the directory that ',
                h('code', null, 'atoll up'),
                ' named; with containers it is ',
                h('code', null, 'tokens/viewer.token'),
                ' among the credentials. The token stays in this tab and is forgotten when it is closed.'
            )
        )
    );
    if (problem) trouble.replaceChildren(notice(problem, 'bad'));
    input.focus();
}

forget.addEventListener('click', () => {
    sessionStorage.removeItem(tokenKey);
    history.clear();
    open();
});
document.getElementById('skip').addEventListener('click', (event) => {
    event.preventDefault(); // the address says which view is shown
    main.focus();
});
addEventListener('hashchange', () => {
    open();
    main.focus();
});
open();
