// The tests' web server: /page.html, /package/… and /files/…, with ranges, and the faults that a test asks of it.
import { createServer } from 'node:http';
import { existsSync, readFileSync, statSync, openSync, readSync, closeSync } from 'node:fs';
import { join, normalize } from 'node:path';

const TYPES = { html: 'text/html', js: 'text/javascript', wasm: 'application/wasm', json: 'application/json' };
const PAGE = '<!doctype html><meta charset="utf-8"><title>lamina</title><script type="module" src="page.js"></script>';

// isolated: with the headers that shared memory wants. sent: bytes of bodies by path since healed. fault(path, …) until heal():
//     stall: N      the connection ends after N bytes of this path in all; hang: true, it stays open and silent instead
//     flip: N       byte N is another one
//     plain: true   no ranges
//     html: true    an HTML page with status 200
export async function serve({ packageFolder, filesFolder, pageScript, isolated }) {
    const sent = new Map(), faults = new Map();
    const server = createServer((request, response) => {
        const url = new URL(request.url, 'http://localhost'), path = normalize(decodeURIComponent(url.pathname)), fault = faults.get(path) ?? {};
        const headers = { 'cache-control': 'no-store' };
        if (isolated) {
            headers['cross-origin-opener-policy'] = 'same-origin';
            headers['cross-origin-embedder-policy'] = 'require-corp';
        }
        const whole = (type, body, status = 200) => {
            response.writeHead(status, { ...headers, 'content-type': type, 'content-length': Buffer.byteLength(body) });
            response.end(body);
        };
        if (path === '/page.html') return whole('text/html', PAGE);
        if (path === '/page.js') return whole('text/javascript', readFileSync(pageScript));
        if (fault.html) return whole('text/html', `<!DOCTYPE html><title>Not here</title>${'<p>login</p>'.repeat(100)}`);
        const file = path.startsWith('/package/') ? join(packageFolder, path.slice(9)) : path.startsWith('/files/') ? join(filesFolder, path.slice(7)) : '';
        if (!file || !existsSync(file) || !statSync(file).isFile()) return whole('text/html', '<!doctype html>404', 404);
        return send(request, response, file, fault, headers, path, sent);
    });
    await new Promise((done) => server.listen(0, '127.0.0.1', done));
    return {
        origin: `http://localhost:${server.address().port}`, sent, close: () => server.close(),
        fault: (path, fault) => faults.set(path, fault),
        heal() {
            faults.clear();
            sent.clear();
        },
    };
}

function send(request, response, file, { stall = Infinity, hang, flip = -1, plain }, headers, path, sent) {
    const { size, mtimeMs } = statSync(file), asked = plain ? null : /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
    const from = asked ? Number(asked[1]) : 0, end = asked ? Math.min(size, asked[2] ? Number(asked[2]) + 1 : size) : size;
    if (from >= size) {
        response.writeHead(416, headers);
        response.end();
        return;
    }
    response.writeHead(asked ? 206 : 200, {
        ...headers, 'content-type': TYPES[file.split('.').pop()] ?? 'application/octet-stream', 'content-length': end - from,
        etag: `"${size}-${mtimeMs}"`, ...(plain ? {} : { 'accept-ranges': 'bytes' }),
        ...(asked ? { 'content-range': `bytes ${from}-${end - 1}/${size}` } : {}),
    });
    const bytes = Buffer.alloc(end - from), fd = openSync(file, 'r');
    readSync(fd, bytes, 0, bytes.length, from);
    closeSync(fd);
    if (flip >= from && flip < end) bytes[flip - from] ^= 1;
    const before = sent.get(path) ?? 0;
    const part = bytes.subarray(0, Math.max(0, Math.min(bytes.length, stall - before)));
    sent.set(path, before + part.length);
    if (part.length === bytes.length) return void response.end(bytes);
    response.write(part, () => hang || response.destroy());
}
