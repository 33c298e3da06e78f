// A job's course, folded from what dispatch tells: the job, its rounds (the whole state at one moment) and its events
// (what happens, step by step). Any of them may come again or late. No DOM in here.

const pointsOfTaskMax = 400;

export function newCourse() {
    return {
        job: null,
        cursor: 0, // number of the last event taken
        rounds: new Map(), // number -> {round, state, base, version, opened_at, …}
        tasks: new Map(), // id -> {id, round, kind, facility, dataset, state, attempt, step, progress, points}
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

export function takeJob(course, job) {
    course.job = job;
}

// `items` of GET /v1/jobs/{id}/rounds.
export function takeRounds(course, items) {
    for (const {tasks, evaluations, ...round} of items) {
        course.rounds.set(round.round, {...round});
        for (const task of tasks) takeTask(course, round.round, task);
        for (const evaluation of evaluations) takeEvaluation(course, round.round, evaluation);
    }
}

function taskOf(course, id, round) {
    if (!course.tasks.has(id))
        course.tasks.set(id, {id, round, points: [], pointStride: 1, pointsSkipped: 0, progress: null});
    return course.tasks.get(id);
}

function takeTask(course, round, task) {
    const known = taskOf(course, task.id, round);
    const {points, progress, attempt} = known;
    Object.assign(known, task);
    // An event may have told of a later step than this answer, which was on its way meanwhile.
    const isLater =
        (attempt ?? 0) > (task.attempt ?? 0) ||
        ((attempt ?? 0) === (task.attempt ?? 0) && (progress?.step ?? 0) > (task.progress?.step ?? 0));
    if (isLater) Object.assign(known, {attempt, progress});
    known.points = points;
}

function takeEvaluation(course, round, evaluation) {
    const {facility, dataset, which} = evaluation;
    course.evaluations.set(JSON.stringify([round, facility, dataset, which]), {...evaluation, round});
}

// Takes one event. True when it tells of more than it holds: the rounds should be read again.
export function takeEvent(course, event) {
    if (event.number <= course.cursor) return false;
    course.cursor = event.number;
    const type = shortType(event.type);
    if (type === 'task.progress') {
        takeProgress(course, event.data);
        return false;
    }
    if (type === 'task.done')
        for (const one of event.data.result?.evaluations ?? [])
            takeEvaluation(course, event.data.round, {
                facility: event.data.facility,
                dataset: event.data.dataset,
                ...one,
            });
    if (type.startsWith('job.') && course.job && isFinished(type.slice(4))) course.job.state = type.slice(4);
    return true;
}

function takeProgress(course, data) {
    const task = taskOf(course, data.task, data.round);
    const attempt = data.attempt ?? 1;
    if (attempt < (task.pointsAttempt ?? 1)) return;
    if (attempt > (task.pointsAttempt ?? 1)) Object.assign(task, {points: [], pointStride: 1, pointsSkipped: 0});
    task.pointsAttempt = attempt;
    const last = task.points[task.points.length - 1];
    if (last && data.step <= last.step) return;
    task.kind ??= data.kind;
    task.facility ??= data.facility;
    addPoint(task, {step: data.step, loss: data.loss});
    const current = task.attempt ?? 0;
    const isNews = attempt > current || (attempt === current && data.step > (task.progress?.step ?? 0));
    if (isNews) Object.assign(task, {attempt, progress: {...data}});
}

// Keeps at most pointsOfTaskMax points: when there are more, every other is dropped and from then on only each second
// (fourth, …) one is taken.
function addPoint(task, point) {
    if (!Number.isFinite(point.loss)) return;
    if (++task.pointsSkipped < task.pointStride) return;
    task.pointsSkipped = 0;
    task.points.push(point);
    if (task.points.length <= pointsOfTaskMax) return;
    task.points = task.points.filter((_, i) => i % 2 === 0);
    task.pointStride *= 2;
}

export function tasksOfRound(course, round, kind) {
    const tasks = [...course.tasks.values()].filter((task) => task.round === round && task.kind === kind);
    const name = (task) => `${task.facility} ${task.dataset}`;
    return tasks.sort((a, b) => name(a).localeCompare(name(b)));
}

// How many steps a training has, as far as the job says: 0 when it counts epochs.
export function stepsOf(job, task) {
    const own = job?.spec?.participants?.find((one) => one.facility === task.facility && one.dataset === task.dataset);
    return own?.training?.steps ?? job?.spec?.training?.steps ?? 0;
}
