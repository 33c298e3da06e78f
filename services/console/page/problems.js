// What is wrong with the stack now, from what its services serve to Prometheus: the alert rules of
// compose/observe/alerts.yaml, without the time for which they must hold. No DOM in here.

import {bytes, duration} from './format.js';

const day = 86400;

// {metric, test: 'below' | 'above' | 'ends within', limit, of: a metric of which `limit` is so many times, label: what a
// sample is about (else its service), unit, what, remedy}; {service}, {label} and {value} are filled in.
export const rules = [
    {
        alert: 'AtollDependencyAway',
        severity: 'critical',
        metric: 'atoll_ready',
        test: 'below',
        limit: 1,
        label: 'dependency',
        what: '{service} cannot work with {label}',
        remedy: 'atoll status says what runs; the logs of {service} and of {label} say why',
    },
    {
        alert: 'AtollFacilityUnreachable',
        severity: 'warning',
        metric: 'atoll_facility_silent_seconds',
        test: 'above',
        limit: 0,
        label: 'facility',
        unit: duration,
        what: 'has given no answer for {value}',
        remedy: 'atoll facility check {label} says what is in the way',
    },
    {
        alert: 'AtollBatchSystemAway',
        severity: 'warning',
        metric: 'atoll_facility_batch_system_up',
        test: 'below',
        limit: 1,
        label: 'facility',
        what: 'its batch system gives no answer',
        remedy: 'ask the site; atoll facility check {label} tries it again',
    },
    {
        alert: 'AtollCredentialEnds',
        severity: 'warning',
        metric: 'atoll_facility_credential_expiry_timestamp_seconds',
        test: 'ends within',
        limit: 7 * day,
        label: 'facility',
        unit: duration,
        what: 'its ssh certificate ends in {value}',
        remedy: 'renew it where dispatch runs; it is taken without a restart',
    },
    {
        alert: 'AtollTokenEnds',
        severity: 'warning',
        metric: 'atoll_token_expiry_timestamp_seconds',
        test: 'ends within',
        limit: 7 * day,
        label: 'token',
        unit: duration,
        what: 'the token of {service} ends in {value}',
        remedy: 'atoll up again, or docker compose up: both renew what ends within a week',
    },
    {
        alert: 'AtollCertificateEnds',
        severity: 'warning',
        metric: 'atoll_certificate_expiry_timestamp_seconds',
        test: 'ends within',
        limit: 14 * day,
        label: 'use',
        unit: duration,
        what: 'the certificate ends in {value}',
        remedy: 'renew it, and give it to whatever serves it',
    },
    {
        alert: 'AtollRoundLate',
        severity: 'warning',
        metric: 'atoll_round_age_ratio',
        test: 'above',
        limit: 3,
        what: 'a round takes {value} times as long as those before it',
        remedy: 'atoll job list says what jobs wait for',
    },
    {
        alert: 'AtollTasksNotTakenUp',
        severity: 'critical',
        metric: 'atoll_due_task_age_seconds',
        test: 'above',
        limit: 300,
        unit: duration,
        what: 'a task has been due for {value} and no worker has taken it up',
        remedy: 'look at the log of {service}; raise workers in its settings if all are busy',
    },
    {
        alert: 'AtollDiskFull',
        severity: 'critical',
        metric: 'atoll_store_disk_free_bytes',
        test: 'below',
        limit: 2,
        of: 'atoll_store_disk_reserve_bytes',
        unit: bytes,
        what: 'its disk has {value} free; uploads are refused soon',
        remedy: 'atoll model prune, atoll job prune, or a larger disk',
    },
    {
        alert: 'AtollOutboxStuck',
        severity: 'critical',
        metric: 'atoll_outbox_lag_seconds',
        test: 'above',
        limit: 120,
        unit: duration,
        what: 'its events have waited for Kafka for {value}',
        remedy: 'atoll status: is Kafka ready? Its log says why not',
    },
    {
        alert: 'AtollConsumerLags',
        severity: 'critical',
        metric: 'atoll_inbox_lag_seconds',
        test: 'above',
        limit: 120,
        label: 'consumer',
        unit: duration,
        what: 'events have waited for it for {value}',
        remedy: 'look at the log of {service}; a restart loses nothing',
    },
    {
        alert: 'AtollDeadLetters',
        severity: 'warning',
        metric: 'atoll_inbox_dead_letters',
        test: 'above',
        limit: 0,
        label: 'consumer',
        what: 'has refused {value} events',
        remedy: 'atoll events list says why; then atoll events replay --all',
    },
    {
        alert: 'AtollBlobsDamaged',
        severity: 'critical',
        metric: 'atoll_store_blobs_damaged',
        test: 'above',
        limit: 0,
        what: '{value} blobs have rotted',
        remedy: 'atoll model damaged lists them: upload them again, and look at the disk',
    },
];

const sampleLine = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const labelPair = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const escapes = {n: '\n'};

// Prometheus' text format: [{metric, labels, value}].
export function readSamples(text) {
    const samples = [];
    for (const line of text.split('\n')) {
        const [, metric, inner, number] = (!line.startsWith('#') && line.match(sampleLine)) || [];
        if (metric === undefined || Number.isNaN(Number(number))) continue;
        const labels = {};
        for (const [, name, value] of (inner ?? '').matchAll(labelPair))
            labels[name] = value.replace(/\\(.)/g, (_, character) => escapes[character] ?? character);
        samples.push({metric, labels, value: Number(number)});
    }
    return samples;
}

function problemsOf(rule, service, nowS) {
    const reserve = rule.of && service.samples.find(({metric}) => metric === rule.of);
    if (rule.of && !reserve) return [];
    const limit = rule.limit * (reserve?.value ?? 1);
    return service.samples
        .filter(({metric}) => metric === rule.metric)
        .map((sample) => ({...sample, value: rule.test === 'ends within' ? sample.value - nowS : sample.value}))
        .filter(({value}) => (rule.test === 'above' ? value > limit : value < limit))
        .map(({labels, value}) => {
            const words = {
                service: service.name,
                label: labels[rule.label] ?? service.name,
                value: (rule.unit ?? String)(Math.max(value, 0)),
            };
            const fill = (text) => text.replace(/\{(\w+)\}/g, (_, name) => words[name]);
            const {alert, severity} = rule;
            return {alert, severity, about: words.label, what: fill(rule.what), remedy: fill(rule.remedy)};
        });
}

// `services`: [{name, error: why it does not answer, or undefined, samples}]; `facilities`: as dispatch lists them.
// The critical ones first.
export function diagnose(services, facilities, nowS) {
    const problems = services.flatMap((service) =>
        service.error === undefined
            ? rules.flatMap((rule) => problemsOf(rule, service, nowS))
            : {
                  alert: 'AtollServiceDown',
                  severity: 'critical',
                  about: service.name,
                  what: `does not answer: ${service.error}`,
                  remedy: 'atoll status says what runs, atoll up starts what does not',
              }
    );
    const reasons = new Map(facilities.map(({name, waiting}) => [name, waiting?.reason]));
    for (const problem of problems)
        if (/Unreachable|BatchSystem/.test(problem.alert) && reasons.get(problem.about))
            problem.what += `: ${reasons.get(problem.about)}`;
    const isWarning = ({severity}) => Number(severity === 'warning');
    return problems.sort((a, b) => isWarning(a) - isWarning(b));
}
