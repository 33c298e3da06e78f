// The coordinator's four services: whether each answers, and their board.

import {showBoard} from './board_view.js';
import {h} from './dom.js';
import {boards} from './panels.js';

export async function showServices(view) {
    const board = h('section', {'aria-label': 'Services'});
    view.main.replaceChildren(h('h1', null, 'Services'), board);
    showBoard(view, board, 'What the services measure', boards.services);
}
