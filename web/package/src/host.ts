// The control worker's side of every call: the objects of one engine, by handles that are the module's own pointers.
import { Core } from './core.js';
import { LaminaError, type Failure } from './errors.js';
import { unshared, maximumOf, probe } from './features.js';
import { FileTable } from './files.js';
import { lam_draft, lam_kv, lam_policy, lam_stack_rule } from './generated.js';
import { Library, type Loading, type Mounted } from './library.js';
import { DiskStorage, MemoryStorage, type Storage } from './storage.js';
import { Threads } from './threads.js';
import { wasiImports, type Memory } from './wasi.js';
import type * as Api from './protocol.js';

/** What belongs to one call. */
export interface Call extends Loading {
    event: (event: unknown) => void;
}

const TOKENIZE_SPECIAL = 1, TOKENIZE_CONTROL = 2; // an anonymous enumeration of lamina.h
const KV = {
    default: lam_kv.LAM_KV_DEFAULT, float16: lam_kv.LAM_KV_FLOAT16, float32: lam_kv.LAM_KV_FLOAT32,
    int8: lam_kv.LAM_KV_INT8,
};
const POLICY = { dual: lam_policy.LAM_POLICY_DUAL, materialize: lam_policy.LAM_POLICY_MATERIALIZE };
const DRAFT = { none: lam_draft.LAM_DRAFT_NONE, lookup: lam_draft.LAM_DRAFT_LOOKUP, base: lam_draft.LAM_DRAFT_BASE };
/** An abort waits for a pass, so large models get fewer rows in one: 16 of 150 MB. */
const ROWS_BYTES = 16 * 150e6, LEAST_ROWS = 4, MOST_ROWS = 64;

function choice<T extends Record<string, number>>(values: T, key: string | undefined, fallback: keyof T & string): number {
    const value = values[key ?? fallback];
    if (value === undefined) throw new LaminaError('LAM_E_ARGUMENT', `${key}: ${Object.keys(values).join(', ')} are known`);
    return value;
}

export class Host {
    #core!: Core;
    readonly #files = new FileTable();
    #library!: Library;
    #engine = 0;
    #base = 0;
    #baseFile: Mounted | undefined;
    #baseDigest = '';
    #vocabulary = 0;
    #rows = 0;
    readonly #adapters = new Map<number, Mounted>();
    readonly #compositions = new Set<number>();
    readonly #sessions = new Map<number, number>(); // their base's vocabulary

    constructor(readonly threads: Threads) {}

    async open(call: Call, options: Parameters<Api.Methods['open']>[0]): ReturnType<Api.Methods['open']> {
        const { memory, assets } = options, features = probe(memory.maximum);
        const wanted = Math.max(1, Math.min(options.threads ?? features.processors, 64));
        const threaded = features.shared !== undefined && wanted > 1;
        const name = `lamina${threaded ? '-threads' : ''}${features.relaxed ? '-relaxed' : ''}.wasm`;
        const linear = threaded ? features.shared! : unshared(memory.maximum);
        this.#core = new Core(await compile(new URL(name, assets)), linear, wasiImports(this.#files, () => this.#core ?? viewOf(linear)));
        if (threaded) await this.threads.start(this.#core, wanted - 1);
        const { storage, why } = await openStorage(memory.storage ?? 'auto');
        this.#library = new Library(this.#core, this.#files, storage, options.url, (memory.storage ?? 'auto') === 'auto');
        this.#baseFile = await this.#library.base(options.source, call);
        const bytes = this.#files.find(this.#baseFile.path)!.node.size;
        this.#rows = Math.max(LEAST_ROWS, Math.min(MOST_ROWS, Math.floor(ROWS_BYTES / Math.max(1, bytes))));
        this.#newEngine(this.threads.count + 1);
        try {
            this.#openBase();
        } catch (problem) {
            await this.#baseFile.doubt();
            throw problem;
        }
        const threads = this.#core.run('lam_engine_threads', this.#engine);
        return {
            base: this.#describe(),
            report: {
                module: name, isa: this.#core.text(this.#core.run('lam_engine_isa', this.#engine)), threads,
                why: whyThreads(threads, options.threads, features.processors, features.sharedWhy, this.threads.why),
                sharedMemory: threaded, memoryMaximum: maximumOf(linear, memory.maximum, threaded ? features.refused : []), refused: features.refused,
                storage: storage.where, storageWhy: why,
            },
        };
    }

    #newEngine(threads: number): void {
        this.#engine = this.#out((scratch, out) =>
            this.#core.call('lam_engine_new', scratch.struct('lam_engine_options', { threads, max_rows: this.#rows }), out));
    }

    #openBase(): void {
        this.#base = this.#out((scratch, out) => this.#core.call('lam_base_open', this.#engine, scratch.text(this.#baseFile!.path), 0, out));
        this.#baseFile!.seal();
    }

    /** A call that gives an object through its out parameter. */
    #out(work: (scratch: import('./core.js').Scratch, out: number) => void): number {
        return this.#core.with((scratch) => {
            const out = scratch.block(4);
            work(scratch, out);
            return this.#core.view.getUint32(out, true);
        });
    }

    #describe(): Api.BaseInfo {
        const info = this.#core.with((scratch) => {
            const at = scratch.struct('lam_base_info');
            this.#core.run('lam_base_describe', this.#base, at);
            return this.#core.struct('lam_base_info', at);
        });
        this.#baseDigest = this.#core.text(info.base_digest);
        this.#vocabulary = info.n_vocab;
        return {
            name: this.#core.text(info.name), architecture: this.#core.text(info.architecture), baseDigest: this.#baseDigest,
            tokenizerDigest: this.#core.text(info.tokenizer_digest), weightsRoot: info.weights_root, layers: info.n_layers,
            modelDimension: info.d_model, vocabulary: info.n_vocab, context: info.n_context, weightBytes: info.weight_bytes,
            hasChatTemplate: info.has_chat_template,
        };
    }

    async loadAdapter(call: Call, ...[source, options]: Parameters<Api.Methods['loadAdapter']>): ReturnType<Api.Methods['loadAdapter']> {
        const file = await this.#library.adapter(source, {
            basePath: this.#baseFile!.path, baseDigest: this.#baseDigest, acceptTokenizer: options.acceptTokenizer ?? false,
        }, call);
        try {
            const handle = this.#out((scratch, out) =>
                this.#core.call('lam_adapter_load', this.#base, scratch.text(file.path), options.waive ? 1 : 0, out));
            file.seal();
            this.#adapters.set(handle, file);
            return this.#describeAdapter(handle);
        } catch (problem) {
            file.unmount();
            await file.doubt();
            throw problem;
        }
    }

    #describeAdapter(handle: number): Api.AdapterInfo {
        return this.#core.with((scratch) => {
            const at = scratch.struct('lam_adapter_info');
            this.#core.run('lam_adapter_describe', handle, at);
            const info = this.#core.struct('lam_adapter_info', at);
            return {
                handle, name: this.#core.text(info.name), digest: this.#core.text(info.digest), modules: info.n_modules,
                stagedBytes: info.staged_bytes, bound: info.bound, invocation: [...this.#core.u32s(info.invocation, info.n_invocation)],
            };
        });
    }

    async unloadAdapter(_call: Call, adapter: number): Promise<void> {
        this.#core.run('lam_adapter_unload', adapter);
        this.#adapters.get(adapter)?.unmount();
        this.#adapters.delete(adapter);
    }

    async compose(_call: Call, ...[stack, options]: Parameters<Api.Methods['compose']>): ReturnType<Api.Methods['compose']> {
        const core = this.#core;
        const handle = this.#out((scratch, out) => {
            const rules = stack.map(({ replace }) => (replace ? lam_stack_rule.LAM_STACK_REPLACE : lam_stack_rule.LAM_STACK_ADD));
            const how = scratch.struct('lam_compose_options', {
                kv: choice(KV, options.kv, 'default'), policy: choice(POLICY, options.policy, 'dual'), rules: scratch.u32s(rules),
            });
            core.call('lam_compose', this.#base, scratch.u32s(stack.map((item) => item.handle)), scratch.f64s(stack.map((item) => item.weight)),
                stack.length, how, out);
        });
        this.#compositions.add(handle);
        return {
            handle, id: core.text(core.run('lam_composition_id', handle)), json: core.text(core.run('lam_composition_json', handle)),
            kvFormat: core.text(core.run('lam_composition_kv_format', handle)),
        };
    }

    async freeComposition(_call: Call, composition: number): Promise<void> {
        if (this.#compositions.delete(composition)) this.#core.run('lam_composition_free', composition);
    }

    async newSession(_call: Call, composition: number, context: number): ReturnType<Api.Methods['newSession']> {
        const handle = this.#out((_scratch, out) => this.#core.call('lam_session_new', composition, context, out));
        this.#sessions.set(handle, this.#vocabulary);
        return { handle, context: this.#core.run('lam_session_context', handle) };
    }

    async freeSession(_call: Call, session: number): Promise<void> {
        if (this.#sessions.delete(session)) this.#core.run('lam_session_free', session);
    }

    #tokens(input: string | Uint32Array, flags: number): Uint32Array {
        if (typeof input !== 'string') return input;
        return this.#core.with((scratch) => {
            const bytes = new TextEncoder().encode(input), out = scratch.block(8);
            this.#core.call('lam_tokenize', this.#base, scratch.bytes(bytes), bytes.length, flags, out, out + 4);
            const at = this.#core.view.getUint32(out, true), tokens = this.#core.u32s(at, this.#core.view.getUint32(out + 4, true));
            this.#core.run('lam_memory_free', at);
            return tokens;
        });
    }

    /** A history begins with BOS where the model asks for it; what follows does not. */
    #prompt(session: number, input: string | Uint32Array): Uint32Array {
        return this.#tokens(input, TOKENIZE_CONTROL | (this.#core.run('lam_session_length', session) === 0 ? TOKENIZE_SPECIAL : 0));
    }

    #feed(call: Call, session: number, input: string | Uint32Array): void {
        const tokens = this.#prompt(session, input);
        this.#core.callbacks = { feed: () => !call.stopped() };
        try {
            this.#core.with((scratch) => this.#core.call('lam_session_prefill', session, scratch.u32s(tokens), tokens.length,
                this.#core.run('lam_web_feed_callback'), 0));
        } finally {
            this.#core.callbacks = {};
        }
    }

    async feed(call: Call, session: number, input: string | Uint32Array): Promise<number> {
        this.#feed(call, session, input);
        return this.#core.run('lam_session_length', session);
    }

    async generate(call: Call, ...[session, input, options]: Parameters<Api.Methods['generate']>): ReturnType<Api.Methods['generate']> {
        const core = this.#core;
        if (input !== undefined) this.#feed(call, session, input);
        core.callbacks = {
            text: (text, token) => {
                call.event({ text, token } satisfies Api.Piece);
                return !call.stopped();
            },
        };
        try {
            return core.with((scratch) => {
                const sampling = scratch.struct('lam_sampling'), report = scratch.struct('lam_generate_report');
                core.run('lam_sampling_default', sampling);
                writeSampling(core, sampling, options);
                const how = scratch.struct('lam_generate_options', { draft: choice(DRAFT, options.draft, 'none') });
                core.call('lam_generate_with', session, sampling, how, options.maxTokens ?? 256, core.run('lam_web_text_callback'), 0, report);
                const { n_tokens, n_passes, n_drafted, n_accepted } = core.struct('lam_generate_report', report);
                if (call.stopped()) throw new LaminaError('LAM_E_CANCELLED', `aborted after ${n_tokens} tokens`);
                return { tokens: n_tokens, passes: n_passes, drafted: n_drafted, accepted: n_accepted };
            });
        } finally {
            core.callbacks = {};
        }
    }

    async logits(_call: Call, session: number): Promise<Float32Array> {
        const at = this.#core.run('lam_session_logits', session);
        if (!at) throw new LaminaError('LAM_E_ARGUMENT', 'a session without logits: feed it first');
        return this.#core.floats(at, this.#sessions.get(session) ?? 0);
    }

    async rebase(_call: Call, session: number, composition: number): Promise<number> {
        return this.#out((_scratch, kept) => this.#core.call('lam_session_rebase', session, composition, kept));
    }

    async truncate(_call: Call, session: number, length: number): Promise<void> {
        this.#core.call('lam_session_truncate', session, length);
    }

    async length(_call: Call, session: number): Promise<number> {
        return this.#core.run('lam_session_length', session);
    }

    async tokenize(_call: Call, ...[text, options]: Parameters<Api.Methods['tokenize']>): Promise<Uint32Array> {
        return this.#tokens(text, (options.special ? TOKENIZE_SPECIAL : 0) | (options.control ? TOKENIZE_CONTROL : 0));
    }

    #text(work: (scratch: import('./core.js').Scratch, out: number) => void): string {
        const at = this.#out(work), text = this.#core.text(at);
        this.#core.run('lam_memory_free', at);
        return text;
    }

    async detokenize(_call: Call, tokens: Uint32Array, special: boolean): Promise<string> {
        return this.#text((scratch, out) => this.#core.call('lam_detokenize_text', this.#base, scratch.u32s(tokens), tokens.length, special ? 1 : 0, out));
    }

    async chat(_call: Call, composition: number, messages: Api.Message[]): Promise<string> {
        return this.#text((scratch, out) => {
            const list = scratch.structs('lam_message', messages.map(({ role, content }) => ({ role: scratch.text(role), content: scratch.text(content) })));
            this.#core.call('lam_chat_format', composition, list, messages.length, 1, out);
        });
    }

    async plan(_call: Call, ...[stack, options]: Parameters<Api.Methods['plan']>): ReturnType<Api.Methods['plan']> {
        const core = this.#core;
        return core.with((scratch) => {
            const paths = stack.map(({ handle }) => scratch.text(this.#adapters.get(handle)?.path ?? ''));
            const adapters = scratch.struct('lam_plan_stack', { adapters: scratch.u32s(paths), n: stack.length, policy: choice(POLICY, options.policy, 'dual') });
            const how = scratch.struct('lam_plan_options', {
                context: options.context ?? 0, sessions: options.sessions ?? 0, threads: options.threads ?? core.run('lam_engine_threads', this.#engine),
                max_rows: this.#rows, kv: choice(KV, options.kv, 'default'), budget: BigInt(options.budget ?? 0),
            });
            const out = scratch.struct('lam_plan_bytes');
            core.call('lam_plan', scratch.text(this.#baseFile!.path), adapters, how, out);
            return Object.fromEntries(Object.entries(core.struct('lam_plan_bytes', out)).map(([name, value]) => [name, Number(value)])) as Api.Plan;
        });
    }

    /** What a call failed with. Bytes of the base that are not those of its tree are fetched again at the next load. */
    async failed(failure: Failure): Promise<void> {
        if (failure.code === 'LAM_E_DIGEST') await this.#baseFile?.doubt();
    }

    async memory(): ReturnType<Api.Methods['memory']> {
        return { bytes: this.#core.memory.buffer.byteLength, threads: this.threads.count + 1 };
    }

    async dispose(): Promise<void> {
        const core = this.#core;
        if (!core) return;
        if (!core.dead) {
            for (const session of this.#sessions.keys()) core.run('lam_session_free', session);
            for (const composition of this.#compositions) core.run('lam_composition_free', composition);
            for (const adapter of this.#adapters.keys()) core.run('lam_adapter_unload', adapter);
            if (this.#base) core.run('lam_base_free', this.#base);
            if (this.#engine) core.run('lam_engine_free', this.#engine);
        }
        this.threads.stop(core);
        this.#files.closeAll();
    }
}

const viewOf = (memory: WebAssembly.Memory): Memory => ({ bytes: new Uint8Array(memory.buffer), view: new DataView(memory.buffer) });

async function compile(url: URL): Promise<WebAssembly.Module> {
    const answer = await fetch(url);
    if (!answer.ok) throw new LaminaError('LAM_E_NOT_FOUND', `${url}: HTTP status ${answer.status}`);
    const typed = answer.headers.get('content-type')?.startsWith('application/wasm');
    return typed ? WebAssembly.compileStreaming(answer) : WebAssembly.compile(await answer.arrayBuffer());
}

async function openStorage(wanted: 'auto' | 'disk' | 'memory'): Promise<{ storage: Storage; why: string }> {
    if (wanted === 'memory') return { storage: new MemoryStorage(), why: 'it was asked for' };
    try {
        return { storage: await DiskStorage.open(), why: '' };
    } catch (problem) {
        const why = `no private file system: ${(problem as Error).message}`;
        if (wanted === 'disk') throw new LaminaError('LAM_E_IO', why);
        return { storage: new MemoryStorage(), why };
    }
}

function whyThreads(threads: number, asked: number | undefined, processors: number, sharedWhy: string, startWhy: string): string {
    if (startWhy) return startWhy;
    if (sharedWhy && (asked ?? processors) > 1) return sharedWhy;
    return asked === undefined ? `${processors} processors` : `${threads} asked for`;
}

function writeSampling(core: Core, at: number, options: Api.GenerateOptions): void {
    const { temperature, topK, topP, minP, repeatPenalty, repeatWindow, seed } = options;
    core.write('lam_sampling', at, {
        temperature, top_k: topK, top_p: topP, min_p: minP, repeat_penalty: repeatPenalty, repeat_window: repeatWindow,
        seed: seed === undefined ? undefined : BigInt(seed),
    });
}
