// What is wrong with the stack now, from what its services serve to Prometheus: the alert rules of
// compose/observe/alerts.yaml, without the time for which they must hold. No DOM in here.

import {bytes, duration, number} from './format.js';
import {rules} from './problem_rules.js';

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

const shownIn = {none: number, seconds: duration, bytes};

function problemsOf(rule, service, nowS) {
    const reserve = rule.limitMetric && service.samples.find(({metric}) => metric === rule.limitMetric);
    if (rule.limitMetric && !reserve) return [];
    const limit = rule.limit * (reserve?.value ?? 1);
    return service.samples
        .filter(({metric}) => metric === rule.metric)
        .map((sample) => ({...sample, value: rule.test === 'ends within' ? sample.value - nowS : sample.value}))
        .filter(({value}) => (rule.test === 'above' ? value > limit : value < limit))
        .map(({labels, value}) => {
            const words = {
                service: service.name,
                label: labels[rule.label] ?? service.name,
                value: shownIn[rule.unit](Math.max(value, 0)),
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
                  remedy: 'start it again with what runs it: atoll up, docker compose up --wait, kubectl rollout restart',
              }
    );
    const reasons = new Map(facilities.map(({name, waiting}) => [name, waiting?.reason]));
    for (const problem of problems)
        if (/Unreachable|BatchSystem/.test(problem.alert) && reasons.get(problem.about))
            problem.what += `: ${reasons.get(problem.about)}`;
    const isWarning = ({severity}) => Number(severity === 'warning');
    return problems.sort((a, b) => isWarning(a) - isWarning(b));
}
