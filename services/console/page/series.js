// From a jobProgress to the lines of its charts. No DOM in here.

// A participant's name: the facility, with the dataset where one facility takes part with several.
export function nameParticipants(tasks) {
    const datasets = new Map();
    for (const task of tasks) {
        if (!datasets.has(task.facility)) datasets.set(task.facility, new Set());
        datasets.get(task.facility).add(task.dataset);
    }
    return (task) => (datasets.get(task.facility).size > 1 ? `${task.facility} ${task.dataset}` : task.facility);
}

function trainings(jobProgress) {
    const tasks = [...jobProgress.tasks.values()].filter((task) => task.kind === 'train' && task.facility);
    return tasks.sort((a, b) => a.round - b.round);
}

// Facilities in a fixed order: each keeps its colour in every chart of the job.
export function facilitiesOf(jobProgress) {
    const named = jobProgress.job?.spec?.participants?.map((participant) => participant.facility) ?? [];
    return [...new Set([...named, ...trainings(jobProgress).map((task) => task.facility)])];
}

// Where each round begins on an axis of steps over all rounds: as long as its longest training.
function roundStarts(tasks) {
    const lengths = new Map();
    for (const task of tasks) {
        const last = task.points[task.points.length - 1]?.step ?? 0;
        lengths.set(task.round, Math.max(lengths.get(task.round) ?? 0, last));
    }
    const starts = new Map();
    let at = 0;
    for (const round of [...lengths.keys()].sort((a, b) => a - b)) {
        starts.set(round, at);
        at += lengths.get(round);
    }
    return starts;
}

// {series: [{name, facility, isValidation, points: [{x: step over all rounds, y: loss, gap: steps before it are
//  missing}]}], starts: [[round, x]]}. A training that validates has a second line, of its losses on validation rows.
export function lossSeries(jobProgress) {
    const tasks = trainings(jobProgress);
    const starts = roundStarts(tasks);
    const nameOf = nameParticipants(tasks);
    const series = new Map();
    const lineOf = (name, facility, isValidation) => {
        if (!series.has(name)) series.set(name, {name, facility, isValidation, points: []});
        return series.get(name).points;
    };
    for (const task of tasks) {
        const name = nameOf(task);
        const line = lineOf(name, task.facility, false);
        const validations = lineOf(`${name}, validation`, task.facility, true);
        for (const {step, loss, gap} of task.points)
            line.push({x: starts.get(task.round) + step, y: loss, ...(gap && {gap})});
        // Each round trains from the model that all have made: its line begins anew.
        (task.validations ?? []).forEach(({step, loss}, i) =>
            validations.push({x: starts.get(task.round) + step, y: loss, ...(i === 0 && {gap: true})})
        );
    }
    return {series: [...series.values()].filter((one) => one.points.length > 0), starts: [...starts]};
}

// One panel for each place of evaluation: [{dataset, facility, series: [{name, isGlobal,
// points: [{x: round, y}]}]}]. The global line begins at round 0, the base model.
export function perplexityPanels(jobProgress) {
    const panels = new Map();
    const ordered = [...jobProgress.evaluations.values()].sort((a, b) => a.round - b.round);
    for (const {round, facility, dataset, which, perplexity} of ordered) {
        if (!(perplexity > 0)) continue;
        const key = JSON.stringify([facility, dataset]);
        if (!panels.has(key)) panels.set(key, {facility, dataset, series: new Map()});
        const {series} = panels.get(key);
        const isGlobal = which === 'base' || which === 'global';
        const name = isGlobal ? 'global' : which;
        if (!series.has(name)) series.set(name, {name, isGlobal, points: []});
        series.get(name).points.push({x: round, y: perplexity});
    }
    const byName = (a, b) => Number(b.isGlobal) - Number(a.isGlobal) || a.name.localeCompare(b.name);
    const byPlace = (a, b) => a.dataset.localeCompare(b.dataset) || a.facility.localeCompare(b.facility);
    return [...panels.values()]
        .map((panel) => ({...panel, series: [...panel.series.values()].sort(byName)}))
        .sort(byPlace);
}

// The rounds that made a model, oldest first: [{round, parent, version, contributions: [{facility, version, weight,
// tokens, norm, cosine, counted}]}]. `versions` are the store's records of the output model; without one the contributions are the updates.
export function lineage(jobProgress, versions) {
    const records = new Map();
    for (const version of versions)
        if (version.kind === 'global' && version.job === jobProgress.job?.id) records.set(version.round, version);
    const closed = [...jobProgress.rounds.values()].filter((round) => round.round > 0 && round.version);
    return closed
        .sort((a, b) => a.round - b.round)
        .map((round) => {
            const updates = trainings(jobProgress).filter((task) => task.round === round.round && task.version);
            const contributions = records.get(round.round)?.contributions ?? updates;
            const total = contributions.reduce((sum, one) => sum + (one.weight ?? 0), 0);
            return {
                round: round.round,
                parent: round.base,
                version: round.version,
                size: records.get(round.round)?.size,
                tags: records.get(round.round)?.tags ?? [],
                contributions: contributions.map(({facility, version, weight, tokens, norm, cosine, counted}) => ({
                    facility,
                    version,
                    tokens,
                    norm,
                    cosine,
                    counted,
                    share: total > 0 && weight !== undefined ? weight / total : null,
                })),
            };
        });
}
