// The package in headless Chromium, against the native program:    node tests/web/run.mjs BUILD_FOLDER [PART OF A TEST'S NAME]
// Prints lines as cmocka does. playwright-core is the package's own.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { methodCases, Native, tokens } from './native.mjs';
import { serve } from './server.mjs';

const build = process.argv[2], only = process.argv[3] ?? '';
const { chromium } = createRequire(resolve('web/package/package.json'))('playwright-core');
const PIECE = 4 << 20;

const folder = mkdtempSync(join(tmpdir(), 'lamina-web-'));
const native = new Native(build, folder);
const options = { packageFolder: join(build, 'web/package'), filesFolder: folder, pageScript: 'tests/web/page.js' };
const isolated = await serve({ ...options, isolated: true }), plain = await serve({ ...options, isolated: false });
const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

let failures = 0;
async function test(name, work) {
    if (!name.includes(only)) return;
    isolated.heal();
    const context = await browser.newContext(), start = Date.now();
    try {
        await work(context);
        console.log(`[       OK ] ${name} (${Date.now() - start} ms)`);
    } catch (problem) {
        failures++;
        console.log(`[  FAILED  ] ${name}: ${problem.stack}`);
    } finally {
        await context.close();
    }
}

async function open(context, server = isolated) {
    const page = await context.newPage();
    page.on('pageerror', (problem) => console.log(`page: ${problem.message}`));
    await page.goto(`${server.origin}/page.html`);
    await page.waitForFunction('globalThis.ready');
    return page;
}

// ---- what is served ----

const STORIES = 'data/stories260K-Q8_0.gguf';
native.run('import', STORIES, '-o', join(folder, 'stories.slm'), '-q');
for (const name of ['oz', 'shakespeare']) native.run('import', `data/adapters/${name}`, '-m', join(folder, 'stories.slm'), '-o', join(folder, `${name}.slm`), '-q');
execFileSync('cp', [STORIES, folder]);
execFileSync('node', ['tests/web/big.mjs', 'tests/golden/llama-gqa', join(folder, 'big')]);
native.run('import', join(folder, 'big'), '-o', join(folder, 'big.slm'), '-q');
const URL_BIG = '/files/big.slm', BIG = statSync(join(folder, 'big.slm')).size;
const bigRoot = native.root(join(folder, 'big.slm'));
assert(BIG > 5 * PIECE);

// ---- the same bits ----

const cases = !only || only.startsWith('digests') ? methodCases(native) : [];
for (const threads of [1, 2])
    for (const model of new Set(cases.map((c) => c.model)))
        await test(`digests of ${model} and every method on it, ${threads} threads`, async (context) => {
            const page = await open(context), list = cases.filter((c) => c.model === model);
            const found = await page.evaluate(async ({ list, threads }) => {
                const lamina = await Lamina.load(list[0].base, { threads }), out = [];
                for (const { adapter, tokens, once } of list) {
                    const stack = adapter ? [{ adapter: await lamina.loadAdapter(adapter) }] : [];
                    const composition = await lamina.compose(stack);
                    out.push({ id: composition.id, digests: await logits(lamina, composition, tokens, once) });
                    await composition.dispose();
                    await stack[0]?.adapter.dispose();
                }
                const { report } = lamina;
                await lamina.dispose();
                return { out, report };
            }, { list, threads });
            assert.equal(found.report.threads, threads, found.report.why);
            list.forEach(({ title, id, digests }, i) => assert.deepEqual(found.out[i], { id, digests }, title));
        });

await test('base, adapter on, off, another on: one session of the page, one base', async (context) => {
    const list = tokens(12, 500), at = (name) => join(folder, name);
    const expected = [[], [`${at('oz.slm')}=0.5`], [], [`${at('shakespeare.slm')}=1`, `${at('oz.slm')}=-0.25`], []]
        .map((adapters) => native.logits(at('stories.slm'), list, adapters).digests.at(-1));
    const page = await open(context);
    const found = await page.evaluate(async (list) => {
        const lamina = await Lamina.load('/files/stories.slm', { adapters: { oz: '/files/oz.slm', shakespeare: '/files/shakespeare.slm' } });
        const oz = lamina.adapters.get('oz'), shakespeare = lamina.adapters.get('shakespeare');
        const base = lamina.active, session = await lamina.session(), out = [];
        await session.feed(Uint32Array.from(list));
        const half = await lamina.compose([{ adapter: oz, weight: 0.5 }]);
        const both = await lamina.compose([{ adapter: shakespeare }, { adapter: oz, weight: -0.25 }]);
        for (const composition of [base, half, base, both, base]) {
            if (composition !== session.composition) await session.rebase(composition);
            out.push(await logitsDigest(session));
        }
        lamina.activate(half);
        const bound = (await lamina.session()).composition === half;
        await lamina.dispose();
        return { out, bound };
    }, list);
    assert.deepEqual(found.out, expected);
    assert.equal(new Set(found.out).size, 3);
    assert(found.bound);
});

await test('text and tokens are the native program\'s, drafts change nothing', async (context) => {
    const said = JSON.parse(native.run('run', join(folder, 'stories.slm'), '-p', 'Once upon a time', '--raw', '-n', '60', '--temp', '0', '--json'));
    const page = await open(context);
    const found = await page.evaluate(async () => {
        const lamina = await Lamina.load('/files/stories260K-Q8_0.gguf'), out = [];
        for (const draft of ['none', 'lookup', 'base']) {
            const session = await lamina.session();
            let text = '';
            for await (const piece of session.generate({ prompt: 'Once upon a time', maxTokens: 60, temperature: 0, draft })) text += piece.text;
            out.push(text);
            await session.dispose();
        }
        const ids = await lamina.tokenize('Once upon a time', { special: true }), back = await lamina.detokenize(ids.slice(1));
        const plan = await lamina.plan([], { context: 256 }), over = await failure(() => lamina.plan([], { budget: 1000000 }));
        const template = await failure(() => lamina.chat([{ role: 'user', content: 'Hi' }]));
        await lamina.dispose();
        return { out, ids: [...ids], back, plan, over, template };
    });
    for (const text of found.out) assert.equal(text, said.text);
    assert.equal(found.back.trim(), 'Once upon a time');
    assert.equal(found.ids[0], 1);
    assert.equal(found.over.code, 'LAM_E_BUDGET');
    assert.equal(found.template.code, 'LAM_E_TEMPLATE');
    assert(found.plan.peak > found.plan.kv && found.plan.kv > 0);
});

// ---- threads, memory, lifetimes ----

await test('without COOP and COEP: one thread, and why; the same bits; abort works', async (context) => {
    const list = tokens(8, 500), { digests } = native.logits(join(folder, 'stories.slm'), list);
    const page = await open(context, plain);
    const found = await page.evaluate(async (list) => {
        const lamina = await Lamina.load('/files/stories.slm', { threads: 2 });
        const digests = await logits(lamina, lamina.active, list, false), waited = await abortedAfter(lamina, 300, 100000);
        await lamina.dispose();
        return { digests, report: lamina.report, waited };
    }, list);
    assert.deepEqual(found.digests, digests);
    assert.equal(found.report.threads, 1);
    assert.match(found.report.why, /Cross-Origin-Opener-Policy/);
    assert(found.waited.milliseconds <= 100, `abort took ${found.waited.milliseconds} ms`);
});

await test('abort in prefill and in decode within 100 ms; the session is sound after it', async (context) => {
    const page = await open(context);
    const found = await page.evaluate(async () => {
        const lamina = await Lamina.load('/files/big.slm', { threads: 1 }), session = await lamina.session({ context: 4096 });
        const input = Uint32Array.from({ length: 4000 }, (_, i) => 3 + (i % 200)), stop = new AbortController();
        const failed = failure(() => session.feed(input, { signal: stop.signal }));
        await new Promise((done) => setTimeout(done, 300));
        const start = performance.now();
        stop.abort();
        const { code } = await failed, prefill = performance.now() - start, length = await session.length();
        const decode = await abortedAfter(lamina, 200, 100000);
        const digests = await logits(lamina, lamina.active, [1, 2, 3], false);
        await lamina.dispose();
        return { code, prefill, length, decode, digests };
    });
    assert.equal(found.code, 'AbortError');
    assert.equal(found.length, 0, 'an aborted feed leaves the session as it was');
    assert(found.prefill <= 100, `abort of a prefill took ${found.prefill} ms`);
    assert.equal(found.decode.code, 'AbortError');
    assert(found.decode.milliseconds <= 100, `abort of decoding took ${found.decode.milliseconds} ms`);
    assert.deepEqual(found.digests, native.logits(join(folder, 'big.slm'), [1, 2, 3]).digests);
});

// The browser's own threads that run workers, nested ones too, as the system counts them.
async function workerThreads() {
    const session = await browser.newBrowserCDPSession(), { processInfo } = await session.send('SystemInfo.getProcessInfo');
    await session.detach();
    let n = 0;
    for (const { id } of processInfo.filter(({ type }) => type === 'renderer')) {
        for (const task of readdirSync(`/proc/${id}/task`)) n += readFileSync(`/proc/${id}/task/${task}/comm`, 'utf8').startsWith('DedicatedWorker');
    }
    return n;
}

await test('load and dispose 20 times: no worker is left, memory is flat', async (context) => {
    const page = await open(context), cdp = await context.newCDPSession(page);
    await cdp.send('Performance.enable');
    const heap = async () => {
        await cdp.send('HeapProfiler.collectGarbage');
        return (await cdp.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'JSHeapUsedSize').value;
    };
    const round = (hold = false) => page.evaluate(async (hold) => {
        const lamina = await Lamina.load('/files/stories.slm', { threads: 2, memory: { maximum: 256 << 20 } });
        const session = await lamina.session();
        for await (const piece of session.generate({ prompt: 'Once', maxTokens: 3 })) void piece;
        const memory = await lamina.memory();
        if (!hold) await lamina.dispose();
        return memory;
    }, hold);
    assert.equal(await workerThreads(), 0);
    const first = await round(), before = await heap();
    let last;
    for (let i = 0; i < 19; i++) last = await round();
    const grown = await heap() - before;
    assert.equal(first.threads, 2);
    assert.deepEqual(last, first);
    for (let tries = 0; (await workerThreads()) && tries < 100; tries++) await new Promise((done) => setTimeout(done, 20));
    assert.equal(await workerThreads(), 0, 'worker threads of the browser');
    assert(grown < 1e6, `the page's heap grew by ${grown} bytes`);
    await round(true);
    assert.equal(await workerThreads(), 2, 'a model that lives has its two');
});

await test('shared memory of 4 GiB refused: a smaller maximum is taken and told; none: one thread', async (context) => {
    const page = await open(context);
    const refuse = (above) => page.route('**/worker.js', async (route) => {
        const answer = await route.fetch(), script = await answer.text();
        const patch = `{const M = WebAssembly.Memory; WebAssembly.Memory = function (d) {
            if (d.shared && d.maximum > ${above}) throw new RangeError('could not allocate memory'); return new M(d); };}`;
        await route.fulfill({ response: answer, body: patch + script });
    });
    const report = () => page.evaluate(async () => {
        const lamina = await Lamina.load('/files/stories.slm', { threads: 2 });
        await lamina.dispose();
        return lamina.report;
    });
    await refuse(20000);
    const smaller = await report();
    assert.equal(smaller.threads, 2);
    assert.equal(smaller.refused.length, 2);
    assert.equal(smaller.memoryMaximum, 1 << 30);
    await page.unroute('**/worker.js');
    await refuse(0);
    const none = await report();
    assert.equal(none.threads, 1);
    assert.match(none.why, /could not allocate memory/);
});

await test('no memory in the worker is a typed error, and the page goes on', async (context) => {
    const page = await open(context);
    const found = await page.evaluate(async () => {
        const failed = await failure(() => Lamina.load('/files/big.slm', { threads: 1, memory: { maximum: 34 << 20 } }));
        const lamina = await Lamina.load('/files/stories.slm');
        await lamina.dispose();
        return { failed, late: await failure(() => lamina.session()) };
    });
    assert.equal(found.failed.code, 'LAM_E_NO_MEMORY', found.failed.message);
    assert.equal(found.late.code, 'LAM_E_ARGUMENT');
});

// ---- storage ----

const load = (page, source, options = {}) => page.evaluate(async ({ source, options }) => {
    const stages = [];
    let lamina;
    const failed = await failure(async () => {
        lamina = await Lamina.load(source, { ...options, onProgress: (progress) => stages.push(progress) });
        const session = await lamina.session();
        await session.feed(Uint32Array.of(1));
    });
    await lamina?.dispose();
    return { failed, stages, report: lamina?.report };
}, { source, options });

const fetched = () => isolated.sent.get(URL_BIG) ?? 0;

await test('a tab killed in the middle of a download: the next one fetches what is missing', async (context) => {
    const page = await open(context);
    isolated.fault(URL_BIG, { stall: 3 * PIECE, hang: true });
    void page.evaluate((url) => void Lamina.load(url).catch(() => undefined), URL_BIG);
    while (fetched() < 3 * PIECE) await new Promise((done) => setTimeout(done, 20));
    await new Promise((done) => setTimeout(done, 300));
    await page.close();
    isolated.heal();
    const { failed } = await load(await open(context), URL_BIG);
    assert.equal(failed.code, 'none', failed.message);
    assert(fetched() <= BIG - 2 * PIECE, `${fetched()} of ${BIG} bytes were fetched after the first 3 pieces`);
});

await test('an interrupted download is a typed error, and goes on where it was; a whole one is not fetched again', async (context) => {
    const page = await open(context);
    isolated.fault(URL_BIG, { stall: 3 * PIECE });
    const first = await load(page, URL_BIG);
    assert.equal(first.failed.code, 'LAM_E_IO', first.failed.message);
    isolated.heal();
    const second = await load(page, URL_BIG);
    assert.equal(second.failed.code, 'none', second.failed.message);
    assert(fetched() <= BIG - 2 * PIECE, `${fetched()} of ${BIG} bytes were fetched after the first 3 pieces`);
    isolated.heal();
    assert.equal((await load(page, URL_BIG)).failed.code, 'none');
    assert.equal(fetched(), 0);
});

await test('an HTML page, a 404, a wrong root, a damaged piece, a damaged head: refused, and the next try is whole', async (context) => {
    const page = await open(context);
    const refused = async (fault, source = URL_BIG) => {
        isolated.fault(URL_BIG, fault);
        const { failed } = await load(page, source);
        isolated.heal();
        return failed;
    };
    const html = await refused({ html: true }), missing = await refused({}, '/files/nowhere.slm');
    assert.equal(html.code, 'LAM_E_MAGIC', html.message);
    assert.equal(missing.code, 'LAM_E_NOT_FOUND', missing.message);
    const root = await refused({}, { url: URL_BIG, root: `sha256:${'0'.repeat(64)}` });
    assert.equal(root.code, 'LAM_E_DIGEST', root.message);
    const head = await refused({ flip: 300 });
    assert.equal(head.code, 'LAM_E_DIGEST', head.message);
    const piece = await refused({ flip: BIG - 100 });
    assert.equal(piece.code, 'LAM_E_DIGEST', piece.message);
    assert.match(piece.message, /piece 6 of 7/);
    const { failed } = await load(page, { url: URL_BIG, root: bigRoot });
    assert.equal(failed.code, 'none', failed.message);
    assert(fetched() < 2 * PIECE, 'only the piece that was damaged is lacking');
    isolated.heal();
});

await test('a byte damaged on disk is found before it is used, and its piece alone fetched again; what is kept is listed and forgotten', async (context) => {
    const page = await open(context);
    assert.equal((await load(page, URL_BIG)).failed.code, 'none');
    await page.evaluate(async (at) => {
        const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('lamina');
        for await (const [name, file] of folder.entries()) {
            if (!name.endsWith('.file')) continue;
            const writable = await file.createWritable({ keepExistingData: true });
            await writable.write({ type: 'write', position: at, data: new Uint8Array([1, 2, 3]) });
            await writable.close();
        }
    }, BIG - PIECE);
    const { failed } = await load(page, URL_BIG);
    assert.equal(failed.code, 'LAM_E_DIGEST', failed.message);
    isolated.heal();
    const again = await load(page, URL_BIG);
    assert.equal(again.failed.code, 'none', again.failed.message);
    assert(fetched() > 0 && fetched() < 2 * PIECE, `${fetched()} bytes were fetched for one damaged piece`);
    const kept = await page.evaluate(() => stored());
    assert.deepEqual(kept.map(({ bytes, source }) => ({ bytes, source })), [{ bytes: BIG, source: isolated.origin + URL_BIG }]);
    assert.deepEqual(await page.evaluate(async (name) => (await forget(name), stored()), kept[0].name), []);
    isolated.heal();
    assert.equal((await load(page, URL_BIG)).failed.code, 'none');
    assert(fetched() >= BIG);
    await page.evaluate(() => forget());
    assert.deepEqual(await page.evaluate(() => stored()), []);
});

await test('a server without ranges; a local file; a file in memory: loaded', async (context) => {
    const page = await open(context);
    for (const source of [URL_BIG, '/files/stories260K-Q8_0.gguf']) {
        isolated.fault(source, { plain: true });
        const { failed } = await load(page, source);
        assert.equal(failed.code, 'none', failed.message);
    }
    isolated.heal();
    const { failed, report } = await load(page, URL_BIG, { memory: { storage: 'memory' } });
    assert.equal(failed.code, 'none', failed.message);
    assert.equal(report.storage, 'memory');
    const { digests } = native.logits(join(folder, 'stories.slm'), [1, 2, 3]);
    for (const name of ['stories.slm', 'stories260K-Q8_0.gguf']) {
        const found = await page.evaluate(async (name) => {
            const bytes = await (await fetch(`/files/${name}`)).blob();
            const lamina = await Lamina.load(new File([bytes], name)), out = await logits(lamina, lamina.active, [1, 2, 3], false);
            await lamina.dispose();
            return out;
        }, name);
        assert.deepEqual(found, digests);
    }
});

await test('a quota below the model: told before, then from memory; an error if only the disk will do', async (context) => {
    const page = await open(context), cdp = await context.newCDPSession(page);
    await cdp.send('Storage.overrideQuotaForOrigin', { origin: isolated.origin, quotaSize: 10e6 });
    const { failed, stages } = await load(page, URL_BIG), store = stages.filter(({ stage }) => stage === 'store');
    assert.equal(failed.code, 'none', failed.message);
    assert.equal(store.length, 1);
    assert.equal(store[0].where, 'memory');
    assert.match(store[0].why, /needs \d+ bytes more/);
    const strict = await load(page, URL_BIG, { memory: { storage: 'disk' } });
    assert.equal(strict.failed.code, 'LAM_E_NO_SPACE', strict.failed.message);
});

await browser.close();
isolated.close();
plain.close();
rmSync(folder, { recursive: true });
process.exit(failures ? 1 : 0);
