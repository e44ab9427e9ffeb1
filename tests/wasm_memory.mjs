// The bytes of linear memory that the command line ends with under Node: node tests/wasm_memory.mjs LAMINA.WASM ARGUMENTS…
// Memory never shrinks, so it is the peak.
import { readFileSync } from 'node:fs';
import { Exit, wasiImports } from '../wasm/wasi.mjs';

const [file, ...args] = process.argv.slice(2);
let instance;
const imports = wasiImports({ args: ['lamina', ...args], env: { ...process.env, PWD: process.cwd() }, memory: () => instance.exports.memory });
({ instance } = await WebAssembly.instantiate(readFileSync(file), { wasi_snapshot_preview1: imports }));
let code = 0;
try {
    instance.exports._start();
} catch (problem) {
    if (!(problem instanceof Exit)) throw problem;
    code = problem.code;
}
console.error(instance.exports.memory.buffer.byteLength);
process.exit(code);
