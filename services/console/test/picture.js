// picture.js GATEWAY TOKEN_FILE VIEW FILE.png [WIDTH,HEIGHT]: the console of a running coordinator as a picture, after a
// minute of looks at its metrics. docs/console.png is one of `./dev demo`:
//
//   node services/console/test/picture.js http://127.0.0.1:7400 build/demo/stack/tokens/viewer.token jobs/ID \
//       docs/console.png 1280,1575

import {readFileSync} from 'node:fs';
import {createServer, request} from 'node:http';

import {open} from './chromium.js';

const [gateway, tokenFile, view, file, size = '1280,2000'] = process.argv.slice(2);
const token = readFileSync(tokenFile, 'utf8').trim();
const lookMs = Number(process.env.LOOK_MS ?? 60000);

// Stands before the gateway: /enter puts the token where the page looks for it, and the page counts as loaded late.
const server = createServer((incoming, answer) => {
    const html = (text) => answer.writeHead(200, {'Content-Type': 'text/html'}).end(text);
    if (incoming.url === '/enter')
        return html(
            `<script>sessionStorage.setItem('atoll.token', '${token}'); location.replace('/console/#/${view}')</script>`
        );
    if (incoming.url === '/late') return setTimeout(() => answer.end(), lookMs);
    const ask = {method: incoming.method, headers: {...incoming.headers, 'accept-encoding': 'identity'}};
    const outgoing = request(new URL(incoming.url, gateway), ask, (got) => {
        if (incoming.url !== '/console/') {
            answer.writeHead(got.statusCode, got.headers);
            return got.pipe(answer);
        }
        let page = '';
        got.setEncoding('utf8');
        got.on('data', (text) => (page += text));
        got.on('end', () => html(page.replace('</body>', '<img src="/late" alt="" hidden></body>')));
    });
    outgoing.on('error', () => answer.writeHead(502).end());
    incoming.pipe(outgoing);
});
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
await open(`http://127.0.0.1:${server.address().port}/enter`, {
    size,
    options: [`--screenshot=${file}`],
    timeoutMs: lookMs + 120_000,
});
process.exit(0);
