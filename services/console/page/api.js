// The coordinator's REST API at the gateway that served this page. No DOM in here.

// status 0: no answer at all.
export class ApiError extends Error {
    constructor(status, message) {
        super(message);
        this.status = status;
    }
}

const meanings = {
    401: 'The coordinator does not accept this token: it is wrong, or has expired.',
    403: 'This token may not read that.',
    404: 'There is nothing of that name.',
    503: 'The service does not answer at the moment.',
};

// What may stand in an Authorization header: tokens are three base64url parts. Null: fine.
export function tokenProblem(token) {
    if (token === '') return 'Paste a token first.';
    if (/^[\w-]+\.[\w-]+\.[\w-]+$/.test(token)) return null;
    return 'This is not a token: one is a single line of three parts with dots between them, and begins with "ey".';
}

// {get(path, {signal}), text(…), all(…)}; paths begin with the service: "/dispatch/v1/jobs".
export function connect(token, fetchLike = fetch) {
    async function ask(path, signal, accept, read) {
        let answer;
        try {
            answer = await fetchLike(path, {
                headers: {Authorization: `Bearer ${token}`, Accept: accept},
                cache: 'no-store',
                credentials: 'omit',
                redirect: 'error',
                signal,
            });
            if (answer.ok) return await read(answer);
        } catch (error) {
            if (error.name === 'AbortError') throw error;
            throw new ApiError(0, 'The coordinator does not answer.');
        }
        throw new ApiError(answer.status, meanings[answer.status] ?? (await detailOf(answer)));
    }

    const get = (path, {signal} = {}) => ask(path, signal, 'application/json', (answer) => answer.json());
    const text = (path, {signal} = {}) => ask(path, signal, 'text/plain', (answer) => answer.text());

    // All items of a list, page by page.
    async function all(path, options) {
        const items = [];
        let after = null;
        do {
            const query = after === null ? '' : `&after=${encodeURIComponent(after)}`;
            const page = await get(`${path}${path.includes('?') ? '&' : '?'}limit=1000${query}`, options);
            items.push(...page.items);
            after = page.next;
        } while (after !== null && after !== undefined);
        return items;
    }
    return {get, text, all};
}

async function detailOf(answer) {
    try {
        const problem = await answer.json();
        const field = problem.field ? `${problem.field}: ` : '';
        return field + (problem.detail ?? problem.title);
    } catch {
        return `The coordinator answered ${answer.status}.`;
    }
}
