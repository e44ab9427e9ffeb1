// In the page: the package, and what several tests do with it.
import { forget, Lamina, LaminaError, stored } from '/package/index.js';

const hex = (bytes) => Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, '0')).join('');
const digest = async (floats) => `sha256:${hex(await crypto.subtle.digest('SHA-256', floats))}`;

const logitsDigest = async (session) => digest(await session.logits());

// Digests of the logits at each position as `lamina logits` prints them; once: of the last position alone, after one submission.
async function logits(lamina, composition, tokens, once) {
    const session = await lamina.session({ composition }), out = [];
    if (once) {
        await session.feed(Uint32Array.from(tokens));
        out.push(await logitsDigest(session));
    } else {
        for (const token of tokens) {
            await session.feed(Uint32Array.of(token));
            out.push(await logitsDigest(session));
        }
    }
    await session.dispose();
    return out;
}

// The code of the error that work ends with, and its message.
async function failure(work) {
    try {
        await work();
    } catch (problem) {
        return { code: problem instanceof LaminaError ? problem.code : problem.name, message: problem.message };
    }
    return { code: 'none', message: '' };
}

// Generates, aborts after so long, and tells how long the answer took.
async function abortedAfter(lamina, milliseconds, maxTokens) {
    const session = await lamina.session(), stop = new AbortController();
    let start = 0, pieces = 0;
    setTimeout(() => {
        start = performance.now();
        stop.abort();
    }, milliseconds);
    const { code } = await failure(async () => {
        for (;;) { // a short story ends, and another one begins
            await session.truncate(0);
            for await (const piece of session.generate({ prompt: Uint32Array.of(1), maxTokens, signal: stop.signal })) pieces += piece.token >= 0;
        }
    });
    const waited = performance.now() - start;
    await session.dispose();
    return { code, milliseconds: waited, pieces };
}

Object.assign(globalThis, { forget, Lamina, LaminaError, stored, logits, logitsDigest, abortedAfter, failure, ready: true });
