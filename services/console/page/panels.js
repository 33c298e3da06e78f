// The panels that the console has in common with compose/observe/dashboards: the same titles, and of the same metrics the
// same sums. No DOM in here.
//
// A panel: {title, yName, lines: [{metric, by, where, across, over, take, name, ofJob, scale}], shows, phase}.
//   by      the labels that tell its lines apart; `instance` is the service
//   where   labels that a sample must have, with the value or one of the values
//   across  how samples of one line become one value: max (each process counts the same things), min or sum
//   take    value; rate: of a counter, a second; increase: since the page was opened; mean: of a histogram, or what came for
//           each of what came of `over`, since the look before; left: days until a Unix time; age: seconds since one
//   name    of the line, before what `by` says
//   ofJob   the samples of one job, which the view names
//   shows   'states': bars of time, one row a line, by `phase(value)`; null is no bar. Otherwise a chart

const upOrDown = (value) => (value >= 1 ? 'up' : 'down');
const ofTraining = (title, metric, yName, more = {}) => ({
    title,
    yName,
    lines: [{metric, by: ['facility'], across: 'max', ofJob: true, ...more}],
});

export const boards = {
    federation: [
        {title: 'Rounds at work', yName: 'rounds', lines: [{metric: 'atoll_rounds', by: ['phase'], across: 'max'}]},
        {
            title: 'Age of the oldest round',
            yName: 'minutes',
            lines: [{metric: 'atoll_round_age_seconds', by: ['phase'], across: 'max', scale: 1 / 60}],
        },
        {
            title: 'How long rounds take',
            yName: 'seconds',
            lines: [{metric: 'atoll_round_seconds', by: ['phase'], across: 'sum', take: 'mean'}],
        },
        {
            title: 'Updates by outcome',
            yName: 'updates',
            lines: [{metric: 'atoll_round_updates_total', by: ['outcome'], across: 'sum', take: 'increase'}],
        },
        {
            title: 'Jobs that ended',
            yName: 'jobs',
            lines: [{metric: 'atoll_jobs_ended_total', by: ['outcome'], across: 'max', take: 'increase'}],
        },
        {
            title: 'Late?',
            yName: 'times as long',
            lines: [{metric: 'atoll_round_age_ratio', by: [], across: 'max', name: 'round at work'}],
        },
        {title: 'Unfinished tasks', yName: 'tasks', lines: [{metric: 'atoll_tasks', by: ['state'], across: 'sum'}]},
    ],
    facilities: [
        {
            title: 'Facilities that answer',
            shows: 'states',
            phase: upOrDown,
            lines: [{metric: 'atoll_facility_up', by: ['facility'], across: 'min'}],
        },
        {
            title: 'What each facility does',
            shows: 'states',
            phase: (value, [, state]) => (value > 0 ? state : null),
            lines: [{metric: 'atoll_tasks', by: ['facility', 'state'], across: 'max', where: {kind: 'train'}}],
        },
        {
            title: 'Attempts that failed',
            yName: 'attempts',
            lines: [{metric: 'atoll_attempts_failed_total', by: ['facility'], across: 'sum', take: 'increase'}],
        },
        {
            title: 'What tasks wait for',
            yName: 'tasks',
            lines: [{metric: 'atoll_tasks_waiting', by: ['facility', 'reason'], across: 'max'}],
        },
        {
            title: 'Logins that are left',
            yName: 'logins',
            lines: [{metric: 'atoll_facility_login_budget_remaining', by: ['facility'], across: 'min'}],
        },
        {
            title: 'Queue wait against computing',
            yName: 'minutes',
            lines: [
                {
                    metric: 'atoll_phase_seconds_total',
                    by: ['facility', 'phase'],
                    across: 'sum',
                    where: {phase: ['queued', 'running']},
                    take: 'increase',
                    scale: 1 / 60,
                },
            ],
        },
        {
            title: 'Wait of a batch job',
            yName: 'seconds',
            lines: [{metric: 'atoll_queue_wait_seconds', by: ['facility'], across: 'sum', take: 'mean'}],
        },
        {
            title: 'Node time',
            yName: 'node minutes',
            lines: [
                {
                    metric: 'atoll_node_seconds_total',
                    by: ['facility', 'outcome'],
                    across: 'sum',
                    take: 'increase',
                    scale: 1 / 60,
                },
            ],
        },
        {
            title: 'Tasks that ended',
            yName: 'tasks',
            lines: [{metric: 'atoll_tasks_ended_total', by: ['facility', 'outcome'], across: 'sum', take: 'increase'}],
        },
        {
            title: 'Bytes moved',
            yName: 'MB',
            lines: [
                {
                    metric: 'atoll_transfer_bytes_total',
                    by: ['facility', 'direction'],
                    across: 'sum',
                    take: 'increase',
                    scale: 1e-6,
                },
            ],
        },
        {
            title: 'Time of transfers',
            yName: 'seconds',
            lines: [
                {
                    metric: 'atoll_transfer_seconds_total',
                    by: ['facility', 'direction'],
                    across: 'sum',
                    take: 'increase',
                },
            ],
        },
        {
            title: 'Speed of transfers',
            yName: 'MB a second',
            lines: [
                {
                    metric: 'atoll_transfer_bytes_total',
                    over: 'atoll_transfer_seconds_total',
                    by: ['facility', 'direction'],
                    across: 'sum',
                    take: 'mean',
                    scale: 1e-6,
                },
            ],
        },
    ],
    services: [
        {
            title: 'Ready',
            shows: 'states',
            phase: upOrDown,
            lines: [{metric: 'atoll_ready', by: ['instance', 'dependency'], across: 'min'}],
        },
        {
            title: 'Age of the oldest event for Kafka',
            yName: 'seconds',
            lines: [{metric: 'atoll_outbox_lag_seconds', by: ['instance'], across: 'max'}],
        },
        {
            title: 'Events not received yet',
            yName: 'events',
            lines: [{metric: 'atoll_inbox_lag_messages', by: ['consumer'], across: 'max'}],
        },
        {
            title: 'Dead letters',
            yName: 'events',
            lines: [{metric: 'atoll_inbox_dead_letters', by: ['consumer'], across: 'max'}],
        },
        {
            title: 'Requests',
            yName: 'a second',
            lines: [{metric: 'atoll_http_requests_total', by: ['instance'], across: 'sum', take: 'rate'}],
        },
        {
            title: 'Time to answer',
            yName: 'milliseconds, on average',
            lines: [
                {
                    metric: 'atoll_http_request_duration_seconds',
                    by: ['instance'],
                    across: 'sum',
                    take: 'mean',
                    scale: 1000,
                },
            ],
        },
        {
            title: 'Answers that are no success',
            yName: 'answers',
            lines: [
                {
                    metric: 'atoll_http_requests_total',
                    by: ['status'],
                    across: 'sum',
                    where: {status: /^[45]/},
                    take: 'increase',
                },
            ],
        },
        {
            title: 'Steps of tasks at work',
            yName: 'steps',
            lines: [
                {metric: 'atoll_workers_busy', by: [], across: 'sum', name: 'at work'},
                {metric: 'atoll_workers', by: [], across: 'sum', name: 'at most'},
            ],
        },
        {
            title: 'Tasks that are due',
            yName: 'tasks',
            lines: [{metric: 'atoll_due_tasks', by: [], across: 'max', name: 'due'}],
        },
        {
            title: 'Connections to PostgreSQL',
            yName: 'connections',
            lines: [
                {metric: 'atoll_pg_pool_connections', by: ['instance'], across: 'sum', where: {state: 'lent'}},
                {metric: 'atoll_pg_pool_connections_max', by: [], across: 'max', name: 'at most'},
            ],
        },
        {
            title: 'Disk of the blobs',
            yName: 'GB',
            lines: [
                {metric: 'atoll_store_disk_free_bytes', by: [], across: 'max', name: 'free', scale: 1e-9},
                {metric: 'atoll_store_disk_reserve_bytes', by: [], across: 'max', name: 'reserve', scale: 1e-9},
                {metric: 'atoll_store_blobs_bytes', by: [], across: 'max', name: 'blobs', scale: 1e-9},
            ],
        },
        {
            title: 'Bytes in and out',
            yName: 'MB a second',
            lines: [
                {
                    metric: 'atoll_store_received_bytes_total',
                    by: [],
                    across: 'sum',
                    take: 'rate',
                    name: 'in',
                    scale: 1e-6,
                },
                {metric: 'atoll_store_sent_bytes_total', by: [], across: 'sum', take: 'rate', name: 'out', scale: 1e-6},
            ],
        },
        {
            title: 'Blobs',
            yName: 'blobs',
            lines: [{metric: 'atoll_store_blobs', by: [], across: 'max', name: 'held'}],
        },
        {
            title: 'Damaged blobs',
            yName: 'blobs',
            lines: [{metric: 'atoll_store_blobs_damaged', by: [], across: 'max', name: 'damaged'}],
        },
        {
            title: 'Memory',
            yName: 'MiB',
            lines: [
                {metric: 'process_resident_memory_bytes', by: ['instance'], across: 'max', scale: 1 / (1024 * 1024)},
            ],
        },
        {
            title: 'CPU',
            yName: 'cores',
            lines: [{metric: 'process_cpu_seconds_total', by: ['instance'], across: 'sum', take: 'rate'}],
        },
        {
            title: 'Days left',
            yName: 'days',
            lines: [
                {
                    metric: 'atoll_certificate_expiry_timestamp_seconds',
                    by: ['use'],
                    across: 'min',
                    take: 'left',
                    name: 'certificate',
                },
                {
                    metric: 'atoll_token_expiry_timestamp_seconds',
                    by: ['token'],
                    across: 'min',
                    take: 'left',
                    name: 'token',
                },
            ],
        },
    ],
    training: [
        ofTraining('Step', 'atoll_training_step', 'step'),
        ofTraining('Norm of the gradient', 'atoll_training_gradient_norm', 'norm'),
        ofTraining('Tokens a second', 'atoll_training_tokens_per_second', 'tokens'),
        ofTraining('Model FLOPs utilization', 'atoll_training_mfu_ratio', '%', {scale: 100}),
        ofTraining('Peak memory', 'atoll_training_peak_memory_bytes', 'GiB', {scale: 1 / 1024 ** 3}),
        ofTraining('Waiting for other ranks', 'atoll_training_exposed_communication_ratio', '% of the time', {
            scale: 100,
        }),
        ofTraining('Time left', 'atoll_training_eta_seconds', 'minutes', {scale: 1 / 60}),
        {
            title: 'Tokens trained',
            yName: 'tokens',
            lines: [{metric: 'atoll_training_tokens_total', by: ['facility'], across: 'sum', take: 'increase'}],
        },
        ofTraining('Age of the newest step', 'atoll_training_sample_timestamp_seconds', 'seconds', {take: 'age'}),
    ],
};
