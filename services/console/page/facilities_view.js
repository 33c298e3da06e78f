// The facilities: how each is reached and what runs batch jobs there.

import {showBoard} from './board_view.js';
import {h, notice, refresh, table} from './dom.js';
import {age, moment} from './format.js';
import {boards} from './panels.js';
import {poll} from './poll.js';

const intervalMs = 30000;

function transport({kind, host, data}) {
    return kind === 'ssh' ? `ssh ${host}${data === 'ssh' ? ', data too' : ''}` : 'this machine';
}

function batch({kind, slots, queues, default_queue: first}) {
    if (queues === undefined) return `${kind}, ${slots} at once`;
    return `${kind}: ${Object.keys(queues)
        .map((name) => (name === first ? `${name} (default)` : name))
        .join(', ')}`;
}

// A site is asked when it has work to do; what it says then is all that is known.
function answers({waiting, task_waits: task}) {
    if (waiting) return notice(`${waiting.reason}, first ${age(waiting.since, Date.now())}`, 'bad');
    if (!task) return '';
    const others = task.others === 0 ? '' : `; other tasks there wait for ${task.others} more`;
    return notice(`a task waits: ${task.reason}, first ${age(task.since, Date.now())}${others}`, '');
}

function row(facility) {
    return [
        facility.name,
        [transport(facility.transport), answers(facility)],
        batch(facility.batch),
        h('code', null, facility.work_dir),
        moment(facility.updated_at),
    ];
}

function content(facilities) {
    if (facilities.length === 0)
        return notice('No facility is registered yet: "atoll facility add NAME --ssh HOST --work-dir DIR".');
    return [
        table(
            'Facilities',
            ['Facility', 'Transport', 'Batch system', 'Work directory', 'Changed'],
            facilities.map(row)
        ),
        notice('"atoll facility check NAME" tries the transport, the work directory and the programs.'),
    ];
}

export async function showFacilities(view) {
    const list = h('section', {'aria-label': 'Facilities'});
    const board = h('section', {'aria-label': 'In time'});
    await poll(view, intervalMs, async () => {
        const facilities = await view.api.all('/dispatch/v1/facilities', {signal: view.signal});
        if (!list.isConnected) {
            view.main.replaceChildren(h('h1', null, 'Facilities'), list, facilities.length > 0 ? board : '');
            showBoard(view, board, 'In time', boards.facilities);
        }
        refresh(list, facilities, () => content(facilities));
    });
}
