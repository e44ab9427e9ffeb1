// One instance of the module: its memory, its functions with their errors as exceptions, and the callbacks that it calls.
import { LaminaError } from './errors.js';
import { codes, type Code } from './generated.js';
import { readStruct, sizeOf, text, writeStruct, type Struct, type StructName } from './structs.js';

const nameOfCode = new Map<number, Code>(Object.entries(codes).map(([name, value]) => [value, name as Code]));
const encoder = new TextEncoder();

type Exported = (...parameters: (number | bigint)[]) => number;

/** What the library calls while it works, each for the one call in progress. Returning false stops it. */
export interface Callbacks {
    text?: (text: string, token: number) => boolean;
    feed?: (done: number, total: number) => boolean;
    progress?: (stage: string, done: number, total: number) => boolean;
}

export class Core {
    callbacks: Callbacks = {};
    /** Set once an instruction trapped: the memory can no longer be trusted. */
    dead: string | undefined;
    readonly #exports: WebAssembly.Exports;
    readonly #error: number;
    #bytes: Uint8Array<ArrayBufferLike>;
    #view: DataView;

    /** wasi: the file functions; they get this core's memory through the object that they were made with. */
    constructor(readonly module: WebAssembly.Module, readonly memory: WebAssembly.Memory, wasi: WebAssembly.ModuleImports) {
        this.#bytes = new Uint8Array(memory.buffer);
        this.#view = new DataView(memory.buffer);
        const instance = new WebAssembly.Instance(module, {
            env: { memory },
            wasi_snapshot_preview1: wasi,
            lamina: {
                text: (_context: number, at: number, token: number) => this.#answer(this.callbacks.text?.(this.text(at), token >>> 0)),
                feed: (_context: number, done: number, total: number) => this.#answer(this.callbacks.feed?.(done >>> 0, total >>> 0)),
                progress: (_context: number, stage: number, done: bigint, total: bigint) =>
                    this.#answer(this.callbacks.progress?.(this.text(stage), Number(done), Number(total))),
            },
        });
        this.#exports = instance.exports;
        this.run('__wasm_call_ctors');
        this.#error = this.alloc(sizeOf('lam_error'));
    }

    #answer(more: boolean | undefined): number {
        return more === false ? 0 : 1;
    }

    #refresh(): void {
        if (this.#bytes.buffer === this.memory.buffer && this.#bytes.length === this.memory.buffer.byteLength) return;
        this.#bytes = new Uint8Array(this.memory.buffer);
        this.#view = new DataView(this.memory.buffer);
    }

    /** The memory as it is now: a view goes stale when memory grows. */
    get bytes(): Uint8Array<ArrayBufferLike> {
        this.#refresh();
        return this.#bytes;
    }

    get view(): DataView {
        this.#refresh();
        return this.#view;
    }

    text(at: number): string {
        const from = at >>> 0, bytes = this.bytes, end = bytes.indexOf(0, from);
        return text(bytes.subarray(from, end));
    }

    /** A copy. */
    floats(at: number, n: number): Float32Array<ArrayBuffer> {
        return new Float32Array(this.bytes.slice(at >>> 0, (at >>> 0) + 4 * n).buffer as ArrayBuffer);
    }

    u32s(at: number, n: number): Uint32Array<ArrayBuffer> {
        return new Uint32Array(this.bytes.slice(at >>> 0, (at >>> 0) + 4 * n).buffer as ArrayBuffer);
    }

    struct<N extends StructName>(name: N, at: number): Struct<N> {
        return readStruct(name, this.bytes, this.view, at >>> 0);
    }

    /** Fields that values lacks stay as they are. */
    write<N extends StructName>(name: N, at: number, values: Partial<Struct<N>>): void {
        writeStruct(name, this.view, at, values);
    }

    /** A function that cannot fail; pointers come back unsigned. */
    run(name: string, ...parameters: (number | bigint)[]): number {
        if (this.dead) throw new LaminaError('LAM_E_CONFLICT', `nothing works any more after: ${this.dead}`);
        try {
            return (this.#exports[name] as Exported)(...parameters) >>> 0;
        } catch (problem) {
            if (!(problem instanceof WebAssembly.RuntimeError || problem instanceof RangeError)) throw problem;
            this.dead = `${name}: ${problem.message}`;
            throw new LaminaError('LAM_E_IO', `the WebAssembly module stopped in ${this.dead}`);
        }
    }

    /** A function that returns a lam_code and takes a lam_error last. */
    call(name: string, ...parameters: (number | bigint)[]): void {
        const code = this.run(name, ...parameters, this.#error);
        if (code === 0) return;
        throw new LaminaError(nameOfCode.get(code) ?? 'LAM_E_FORMAT', this.struct('lam_error', this.#error).message);
    }

    /** Zeroed; freed with free. */
    alloc(size: number, alignment = 16): number {
        const at = this.run('aligned_alloc', alignment, Math.ceil(Math.max(size, 1) / alignment) * alignment);
        if (!at) throw new LaminaError('LAM_E_NO_MEMORY', `no memory for ${size} bytes; the module has ${this.memory.buffer.byteLength}`);
        this.bytes.fill(0, at, at + size);
        return at;
    }

    free(at: number): void {
        this.run('free', at);
    }

    /** Blocks for the parameters of calls in work, freed when it ends. */
    with<T>(work: (scratch: Scratch) => T): T {
        const scratch = new Scratch(this);
        try {
            return work(scratch);
        } finally {
            scratch.free();
        }
    }

    /** The SHA-256 of n bytes at a pointer, "sha256:…". */
    digest(at: number, n: number): string {
        return this.with((scratch) => {
            const out = scratch.block(80);
            this.run('lam_digest_bytes', at, n, out);
            return this.text(out);
        });
    }

    digestText(value: string): string {
        return this.with((scratch) => {
            const bytes = encoder.encode(value);
            return this.digest(scratch.bytes(bytes), bytes.length);
        });
    }
}

export class Scratch {
    readonly #blocks: number[] = [];

    constructor(readonly core: Core) {}

    block(size: number): number {
        const at = this.core.alloc(size);
        this.#blocks.push(at);
        return at;
    }

    bytes(from: Uint8Array): number {
        const at = this.block(from.length);
        this.core.bytes.set(from, at);
        return at;
    }

    /** Zero-terminated UTF-8. */
    text(value: string): number {
        return this.bytes(encoder.encode(`${value}\0`));
    }

    u32s(values: ArrayLike<number>): number {
        const at = this.block(4 * values.length);
        for (let i = 0; i < values.length; i++) this.core.view.setUint32(at + 4 * i, values[i]!, true);
        return at;
    }

    f64s(values: ArrayLike<number>): number {
        const at = this.block(8 * values.length);
        for (let i = 0; i < values.length; i++) this.core.view.setFloat64(at + 8 * i, values[i]!, true);
        return at;
    }

    struct<N extends StructName>(name: N, values: Partial<Struct<N>> = {}): number {
        const at = this.block(sizeOf(name));
        writeStruct(name, this.core.view, at, values);
        return at;
    }

    /** n structs one after the other. */
    structs<N extends StructName>(name: N, values: Partial<Struct<N>>[]): number {
        const at = this.block(sizeOf(name) * values.length);
        values.forEach((value, i) => writeStruct(name, this.core.view, at + i * sizeOf(name), value));
        return at;
    }

    free(): void {
        if (!this.core.dead) for (const at of this.#blocks) this.core.free(at);
        this.#blocks.length = 0;
    }
}
