// A job's progress, folded from what dispatch tells: the job, its rounds (the whole state at one moment) and its events
// (what happens, step by step). Any of them may come again or late. No DOM in here.

const pointsOfTaskMax = 400;

export function newProgress() {
    return {
        job: null,
        cursor: 0, // number of the last event taken
        rounds: new Map(), // number -> {round, state, base, version, opened_at, …}
        tasks: new Map(), // id -> {id, round, kind, facility, dataset, state, attempt, step, progress, points, validations}
        evaluations: new Map(), // one a (round, site, model): {round, facility, dataset, which, model, perplexity, …}
    };
}

export function isFinished(state) {
    return state === 'completed' || state === 'failed' || state === 'cancelled';
}

// "atoll.task.progress.v1" -> "task.progress"
export function shortType(type) {
    return type.replace(/^atoll\./, '').replace(/\.v\d+$/, '');
}

export function applyJob(jobProgress, job) {
    jobProgress.job = job;
}

// `items` of GET /v1/jobs/{id}/rounds.
export function applyRounds(jobProgress, items) {
    for (const {tasks, evaluations, ...round} of items) {
        jobProgress.rounds.set(round.round, {...round});
        for (const task of tasks) applyTask(jobProgress, round.round, task);
        for (const evaluation of evaluations) applyEvaluation(jobProgress, round.round, evaluation);
    }
}

function taskOf(jobProgress, id, round) {
    if (!jobProgress.tasks.has(id))
        jobProgress.tasks.set(id, {id, round, points: [], validations: [], lastStep: 0, pointStride: 1, pointsSkipped: 0, progress: null});
    return jobProgress.tasks.get(id);
}

function applyTask(jobProgress, round, task) {
    const known = taskOf(jobProgress, task.id, round);
    const {points, progress, attempt} = known;
    Object.assign(known, task);
    // An event may have told of a later step than this answer, which was on its way meanwhile.
    const isLater =
        (attempt ?? 0) > (task.attempt ?? 0) ||
        ((attempt ?? 0) === (task.attempt ?? 0) && (progress?.step ?? 0) > (task.progress?.step ?? 0));
    if (isLater) Object.assign(known, {attempt, progress});
    known.points = points;
}

function applyEvaluation(jobProgress, round, evaluation) {
    const {facility, dataset, which} = evaluation;
    jobProgress.evaluations.set(JSON.stringify([round, facility, dataset, which]), {...evaluation, round});
}

// Takes one event. True when it tells of more than it holds: the rounds should be read again.
export function applyEvent(jobProgress, event) {
    if (event.number <= jobProgress.cursor) return false;
    jobProgress.cursor = event.number;
    const type = shortType(event.type);
    if (type === 'task.progress') {
        applyStep(jobProgress, event.data);
        return false;
    }
    if (type === 'task.done')
        for (const one of event.data.result?.evaluations ?? [])
            applyEvaluation(jobProgress, event.data.round, {
                facility: event.data.facility,
                dataset: event.data.dataset,
                ...one,
            });
    if (type.startsWith('job.') && jobProgress.job && isFinished(type.slice(4))) jobProgress.job.state = type.slice(4);
    return true;
}

function applyStep(jobProgress, data) {
    const task = taskOf(jobProgress, data.task, data.round);
    const attempt = data.attempt ?? 1;
    if (attempt < (task.pointsAttempt ?? 1)) return;
    const points = pointsOf(data);
    if (attempt > (task.pointsAttempt ?? 1)) goBack(task, points[0].step);
    task.pointsAttempt = attempt;
    for (const point of points) addValidation(task, point);
    if (data.step === task.progress?.step && attempt === task.attempt) task.progress = {...task.progress, ...data};
    if (data.step <= task.lastStep) return;
    task.kind ??= data.kind;
    task.facility ??= data.facility;
    for (const point of points) addPoint(task, point);
    const current = task.attempt ?? 0;
    const isNews = attempt > current || (attempt === current && data.step > (task.progress?.step ?? 0));
    if (isNews) Object.assign(task, {attempt, progress: {...data}});
}

// The newest loss that was told: a step of few tokens tells its own with later ones.
export function newestLoss(task) {
    return task.progress?.loss ?? task.points.at(-1)?.loss;
}

// The newest loss on validation rows, which is of the newest step or of an earlier one.
export function newestValidation(task) {
    return task.validations?.at(-1)?.loss ?? task.progress?.val_loss;
}

// What a progress event tells of: each step, or each bucket of `steps` that ends with `step`.
function pointsOf({step, loss, val_loss: validation, points}) {
    if (!points) return [{step, loss, validation, steps: 1}];
    return points.step.map((at, i) => ({
        step: at,
        loss: points.loss?.[i],
        validation: points.val_loss?.[i],
        steps: points.steps?.[i] ?? 1,
    }));
}

// The next attempt goes on from a state that was saved: what came after that is trained again.
function goBack(task, step) {
    task.points = task.points.filter((point) => point.step < step);
    task.validations = task.validations.filter((point) => point.step < step);
    task.lastStep = Math.min(task.lastStep, step - 1);
}

// A validation comes after its step, often in an event of its own. Of very many every other is dropped.
function addValidation(task, {step, validation}) {
    if (!Number.isFinite(validation) || step <= (task.validations.at(-1)?.step ?? 0)) return;
    task.validations.push({step, loss: validation});
    if (task.validations.length > pointsOfTaskMax)
        task.validations = task.validations.filter((_, i, all) => i % 2 === 0 || i === all.length - 1);
}

// Keeps at most pointsOfTaskMax points: when there are more, every other is dropped and from then on only each second
// (fourth, …) one is taken. A point before which steps are missing has a `gap`.
function addPoint(task, {step, loss, steps}) {
    if (step <= task.lastStep) return;
    task.isGap ||= step - steps > task.lastStep;
    task.lastStep = step;
    if (!Number.isFinite(loss)) return;
    if (++task.pointsSkipped < task.pointStride) return;
    task.pointsSkipped = 0;
    task.points.push(task.isGap ? {step, loss, gap: true} : {step, loss});
    task.isGap = false;
    if (task.points.length <= pointsOfTaskMax) return;
    const isKept = (i) => i % 2 === 0;
    task.points = task.points
        .map((point, i, all) => (isKept(i) && i > 0 && all[i - 1].gap ? {...point, gap: true} : point))
        .filter((_, i) => isKept(i));
    task.pointStride *= 2;
}

// Those of the job's participants that have had updates refused, the most often first.
export function participantsWithRefusals(job) {
    const refused = (job?.participants ?? []).filter((one) => one.refusals > 0);
    return refused.sort((a, b) => b.refusals - a.refusals || a.facility.localeCompare(b.facility));
}

// Of a round's evaluations, how many gave no perplexity, or not of each model, and why the first of them did not.
export function failedEvaluations({count, of, reason, partly = 0}) {
    const which = count < of ? `${count} of ${of} evaluations` : of === 1 ? 'Its evaluation' : `All ${of} evaluations`;
    const some = partly === 0 ? '' : `${partly < count ? `, ${partly}` : ''} for some of the models`;
    return reason ? `${which} failed${some}: ${reason}` : `${which} failed${some}.`;
}

// A round's trainings whose updates have pointed away from the others' for rounds.
export function opposedUpdates(jobProgress, round) {
    return tasksOfRound(jobProgress, round, 'train').filter((task) => task.contribution?.opposed_rounds > 0);
}

// A round as it stands now: one that was open when its job ended has ended with it.
export function shownRound(jobProgress, round) {
    const {state, finished_at} = jobProgress.job;
    const isOpen = round.state === 'training' || round.state === 'aggregating';
    if (!isOpen || (state !== 'failed' && state !== 'cancelled')) return round;
    return {...round, state, closed_at: round.closed_at ?? finished_at ?? round.opened_at};
}

export function tasksOfRound(jobProgress, round, kind) {
    const tasks = [...jobProgress.tasks.values()].filter((task) => task.round === round && task.kind === kind);
    const name = (task) => `${task.facility} ${task.dataset}`;
    return tasks.sort((a, b) => name(a).localeCompare(name(b)));
}

// How many steps a training has, as far as the job says: 0 when it counts epochs.
export function stepsOf(job, task) {
    const own = job?.spec?.participants?.find((one) => one.facility === task.facility && one.dataset === task.dataset);
    return own?.training?.steps ?? job?.spec?.training?.steps ?? 0;
}
