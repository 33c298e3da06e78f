// The registered corpora with the counts of their newest versions. Their texts are at the facilities.

import {h, notice, refresh, table} from './dom.js';
import {count, language} from './format.js';
import {poll} from './poll.js';

const intervalMs = 30000;

function counts(part) {
    return part ? `${count(part.documents)} documents, ${count(part.tokens)} tokens` : '\u2013';
}

// The dataset with its newest version and where copies of that are.
async function withVersion({api, signal}, dataset) {
    if (dataset.latest_version === null) return {dataset, copies: []};
    const path = `/registry/v1/datasets/${encodeURIComponent(dataset.name)}/versions/${dataset.latest_version}`;
    const [version, copies] = await Promise.all([api.get(path, {signal}), api.all(`${path}/copies`, {signal})]);
    return {dataset, version, copies: copies.map((copy) => copy.facility)};
}

function row({dataset, version, copies}) {
    return [
        [dataset.name, dataset.description && h('span', {class: 'soft'}, h('br'), dataset.description)],
        `${language(dataset.language)} (${dataset.language})`,
        dataset.license,
        version
            ? [`${version.version}`, h('br'), h('span', {class: 'soft'}, `${version.batching}, ${version.seq_len}`)]
            : 'not prepared yet',
        counts(version?.train),
        counts(version?.validation),
        copies.join(', ') || '\u2013',
    ];
}

function content(datasets) {
    if (datasets.length === 0)
        return notice(
            'No dataset is registered yet: "atoll dataset register NAME --language TAG --license NAME --template TEXT".'
        );
    const columns = ['Dataset', 'Language', 'Licence', 'Version', 'Training', 'Validation', 'Copies at'];
    return table('Datasets', columns, datasets.map(row));
}

export async function showDatasets(view) {
    const list = h('section', {'aria-label': 'Datasets'});
    await poll(view, intervalMs, async () => {
        const datasets = await view.api.all('/registry/v1/datasets', {signal: view.signal});
        const all = await Promise.all(datasets.map((dataset) => withVersion(view, dataset)));
        if (!list.isConnected) view.main.replaceChildren(h('h1', null, 'Datasets'), list);
        refresh(list, all, () => content(all));
    });
}
