#!/usr/bin/env node
// The command line, compiled to WebAssembly, under Node 18 or later: node wasm/lamina.mjs ARGUMENTS…
// Of the modules in build/wasm it takes lamina-relaxed.wasm where the engine's relaxed SIMD gives the true sums, else lamina.wasm.
// LAMINA_WASM names another one.

import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { relaxedSimdIsExact } from './relaxed.mjs';
import { Exit, wasiImports } from './wasi.mjs';

function load() {
    const name = relaxedSimdIsExact() ? 'lamina-relaxed.wasm' : 'lamina.wasm';
    const file = process.env.LAMINA_WASM ?? new URL(`../build/wasm/${name}`, import.meta.url);
    try {
        return readFileSync(file);
    } catch (problem) {
        console.error(`lamina: ${problem.message}; \`make wasm\` builds it`);
        process.exit(3);
    }
}

// The program cannot tell where it lies: the model that ships, if no other one is set.
const shipped = fileURLToPath(new URL('../data/stories260K-Q8_0.gguf', import.meta.url));
const model = process.env.LAMINA_MODEL || (existsSync(shipped) ? shipped : '');

let instance;
const imports = wasiImports({
    args: ['lamina', ...process.argv.slice(2)],
    env: { ...process.env, LAMINA_MODEL: model, PWD: process.cwd() }, // folder.c goes there
    memory: () => instance.exports.memory,
});
({ instance } = await WebAssembly.instantiate(load(), { wasi_snapshot_preview1: imports }));
try {
    instance.exports._start();
} catch (problem) {
    if (problem instanceof Exit) process.exit(problem.code);
    console.error(`lamina: the WebAssembly program stopped: ${problem.stack}`);
    process.exit(70);
}
