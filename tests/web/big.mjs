// A model of some 25 MB, to be downloaded in several pieces: the one of tests/golden/llama-gqa with wide feed-forward matrices of fixed
// pseudo-random float32 weights.    node tests/web/big.mjs GOLDEN_FOLDER OUT_FOLDER
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const WIDE = 16384;
const [golden, out] = process.argv.slice(2);
mkdirSync(out, { recursive: true });
for (const name of ['tokenizer.json', 'tokenizer_config.json']) copyFileSync(join(golden, name), join(out, name));
const config = JSON.parse(readFileSync(join(golden, 'config.json')));
writeFileSync(join(out, 'config.json'), JSON.stringify({ ...config, intermediate_size: WIDE, max_position_embeddings: 4096 }));

const source = readFileSync(join(golden, 'model.safetensors')), length = Number(source.readBigUInt64LE(0));
const header = JSON.parse(source.subarray(8, 8 + length)), parts = [], table = {};
let at = 0, state = 1;
for (const [name, { shape, data_offsets: [from, to] }] of Object.entries(header).filter(([name]) => name !== '__metadata__')) {
    const wide = shape.map((n) => (name.includes('.mlp.') && n === config.intermediate_size ? WIDE : n));
    let bytes = source.subarray(8 + length + from, 8 + length + to);
    if (name.includes('.mlp.')) {
        const values = new Float32Array(wide.reduce((a, b) => a * b));
        for (let i = 0; i < values.length; i++) {
            state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
            values[i] = (state / 2 ** 32 - 0.5) * 0.02;
        }
        bytes = Buffer.from(values.buffer);
    }
    table[name] = { dtype: 'F32', shape: wide, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
    parts.push(bytes);
}
const json = Buffer.from(JSON.stringify(table)), size = Buffer.alloc(8);
size.writeBigUInt64LE(BigInt(json.length));
writeFileSync(join(out, 'model.safetensors'), Buffer.concat([size, json, ...parts]));
