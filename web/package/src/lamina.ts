import { LaminaError } from './errors.js';
import { Link } from './link.js';
import type {
    AdapterInfo, BaseInfo, ComposeOptions, CompositionInfo, GenerateOptions, MemoryOptions, Message, Piece, Plan, PlanOptions, Progress, Report,
    Source, StackItem, Summary,
} from './protocol.js';

export interface LoadOptions {
    /** Adapters to load with the base, by the names that `adapters` then has. */
    adapters?: Record<string, Source>;
    memory?: MemoryOptions;
    /** Compute threads, the control worker counted; one for each processor if nothing is said. */
    threads?: number;
    onProgress?: (progress: Progress) => void;
    signal?: AbortSignal;
    /** Folder of worker.js, thread.js and the .wasm files, if they do not lie beside this module. */
    assets?: string | URL;
}

export interface AdapterOptions {
    /** Take an adapter that is bound to another base, if its shapes fit. */
    waive?: boolean;
    /** Take an adapter whose folder has another tokenizer than the base. */
    acceptTokenizer?: boolean;
    onProgress?: (progress: Progress) => void;
    signal?: AbortSignal;
}

/** One adapter of a stack. */
export interface Layer {
    adapter: Adapter;
    /** 1 if nothing else is said. */
    weight?: number;
    /** Takes the place of what stands before it on its modules, instead of coming after it. */
    replace?: boolean;
}

export interface SessionOptions {
    /** The active one if nothing else is said. */
    composition?: Composition;
    /** Positions at most; the model's own limit or 4096, whichever is less, if nothing else is said. */
    context?: number;
}

/** An immutable adapter, loaded for one base. */
export class Adapter {
    /** @internal */
    constructor(readonly link: Link, readonly info: AdapterInfo) {}

    get name(): string {
        return this.info.name;
    }

    get digest(): string {
        return this.info.digest;
    }

    /** Compositions that have it keep it alive. */
    dispose(): Promise<void> {
        return this.link.call('unloadAdapter', [this.info.handle]);
    }
}

/** A base and an ordered list of adapters with weights; immutable. */
export class Composition {
    /** @internal */
    constructor(readonly link: Link, readonly info: CompositionInfo) {}

    /** composition_id, "sha256:…". */
    get id(): string {
        return this.info.id;
    }

    /** The canonical JSON that the id is the SHA-256 of. */
    get json(): string {
        return this.info.json;
    }

    /** Sessions that are bound to it keep it alive. */
    dispose(): Promise<void> {
        return this.link.call('freeComposition', [this.info.handle]);
    }
}

/** One history of tokens with its keys and values. */
export class Session {
    #composition: Composition;

    /** @internal */
    constructor(readonly link: Link, readonly handle: number, readonly context: number, composition: Composition) {
        this.#composition = composition;
    }

    get composition(): Composition {
        return this.#composition;
    }

    /** Tokens of the history. */
    length(): Promise<number> {
        return this.link.call('length', [this.handle]);
    }

    /** Appends a text (control tokens in it count; a new history begins with BOS where the model asks for it) or tokens; gives the new length.
     * After an error or an abort the session is as before. */
    feed(input: string | Uint32Array, options: { signal?: AbortSignal } = {}): Promise<number> {
        return this.link.call('feed', [this.handle, input], options);
    }

    /** Feeds the prompt, if there is one, and gives what the model says, token by token, until it ends, maxTokens (256) or the context is full.
     * Aborting throws the signal's reason; what was generated until then stays in the history. Leaving the loop stops, too. */
    async *generate(options: GenerateOptions & { prompt?: string | Uint32Array; signal?: AbortSignal } = {}): AsyncGenerator<Piece, Summary, void> {
        const { prompt, signal, ...rest } = options, own = new AbortController(), abort = () => own.abort(signal?.reason);
        signal?.throwIfAborted();
        signal?.addEventListener('abort', abort);
        const arrived: Piece[] = [];
        let wake = () => {}, summary: Summary | undefined, problem: unknown, ended = false;
        const call = this.link.call('generate', [this.handle, prompt, rest], {
            signal: own.signal, event: (piece: Piece) => {
                arrived.push(piece);
                wake();
            },
        }).then((result) => { summary = result; }, (reason: unknown) => { problem = reason; }).finally(() => {
            ended = true;
            wake();
        });
        try {
            for (;;) {
                while (arrived.length) {
                    signal?.throwIfAborted();
                    yield arrived.shift()!;
                }
                if (ended) break;
                await new Promise<void>((resolve) => { wake = resolve; });
            }
            if (problem) throw problem;
            return summary!;
        } finally {
            signal?.removeEventListener('abort', abort);
            if (!ended) own.abort();
            await call;
        }
    }

    /** Logits after the last token. */
    logits(): Promise<Float32Array> {
        return this.link.call('logits', [this.handle]);
    }

    /** Goes on under another composition of the same base; gives the number of rows that could be kept. */
    async rebase(composition: Composition): Promise<number> {
        const kept = await this.link.call('rebase', [this.handle, composition.info.handle]);
        this.#composition = composition;
        return kept;
    }

    truncate(length: number): Promise<void> {
        return this.link.call('truncate', [this.handle, length]);
    }

    dispose(): Promise<void> {
        return this.link.call('freeSession', [this.handle]);
    }
}

/** One base in a worker of its own, with its adapters. */
export class Lamina {
    readonly adapters = new Map<string, Adapter>();
    #active!: Composition;

    private constructor(readonly link: Link, readonly base: BaseInfo, readonly report: Report) {}

    /** Loads a base: `.slm` or GGUF, or a Hugging Face model's files. The errors are LaminaErrors. */
    static async load(source: Source, options: LoadOptions = {}): Promise<Lamina> {
        const { adapters = {}, memory = {}, threads, onProgress, signal } = options;
        const assets = options.assets === undefined ? undefined : new URL(`${String(options.assets).replace(/\/*$/, '')}/`, location.href);
        if (threads !== undefined && (!Number.isInteger(threads) || threads < 1 || threads > 64))
            throw new LaminaError('LAM_E_ARGUMENT', `${threads} threads: 1 to 64 are possible`);
        const link = new Link(assets);
        try {
            const where = (assets ?? new URL('./', import.meta.url)).href;
            const { base, report } = await link.call('open', [{ source, assets: where, threads, memory, url: location.href }], { signal, event: onProgress });
            const lamina = new Lamina(link, base, report);
            lamina.#active = await lamina.compose([]);
            for (const [name, from] of Object.entries(adapters)) lamina.adapters.set(name, await lamina.loadAdapter(from, { onProgress, signal }));
            return lamina;
        } catch (problem) {
            await end(link);
            throw problem;
        }
    }

    /** An adapter: `.slm`, a LoRA GGUF, or the files of a PEFT folder. */
    async loadAdapter(source: Source, options: AdapterOptions = {}): Promise<Adapter> {
        const { waive, acceptTokenizer, onProgress, signal } = options;
        return new Adapter(this.link, await this.link.call('loadAdapter', [source, { waive, acceptTokenizer }], { signal, event: onProgress }));
    }

    /** Adapters in the order in which they act; none is the base alone. */
    async compose(stack: Layer[], options: ComposeOptions = {}): Promise<Composition> {
        return new Composition(this.link, await this.link.call('compose', [items(stack), options]));
    }

    /** The composition that new sessions are bound to; at first the base alone. */
    get active(): Composition {
        return this.#active;
    }

    /** Makes a composition the one for new sessions; those that exist keep theirs. */
    activate(composition: Composition): Composition {
        if (composition.link !== this.link) throw new LaminaError('LAM_E_WRONG_BASE', 'the composition belongs to another model');
        const before = this.#active;
        this.#active = composition;
        return before;
    }

    async session(options: SessionOptions = {}): Promise<Session> {
        const { composition = this.#active, context = 0 } = options;
        const { handle, context: positions } = await this.link.call('newSession', [composition.info.handle, context]);
        return new Session(this.link, handle, positions, composition);
    }

    /** special: begin with BOS, end with EOS, where the model asks for it. control: find control tokens in the text. */
    tokenize(text: string, options: { special?: boolean; control?: boolean } = {}): Promise<Uint32Array> {
        return this.link.call('tokenize', [text, options]);
    }

    detokenize(tokens: Uint32Array, options: { special?: boolean } = {}): Promise<string> {
        return this.link.call('detokenize', [tokens, options.special ?? false]);
    }

    /** A composition's chat template, its own or the base's, over messages: a prompt for the assistant's turn. LAM_E_TEMPLATE if there is none. */
    chat(messages: Message[], composition = this.#active): Promise<string> {
        return this.link.call('chat', [composition.info.handle, messages]);
    }

    /** The memory that sessions of a stack will take. LAM_E_BUDGET if it is more than options.budget. */
    plan(stack: Layer[] = [], options: PlanOptions = {}): Promise<Plan> {
        return this.link.call('plan', [items(stack), options]);
    }

    /** Bytes of the module's memory now, and threads. */
    memory(): Promise<{ bytes: number; threads: number }> {
        return this.link.call('memory', []);
    }

    /** Ends all workers; every object that was made here is dead. A computation in progress ends first: abort it. */
    dispose(): Promise<void> {
        return end(this.link);
    }
}

async function end(link: Link): Promise<void> {
    await link.call('dispose', []).catch(() => undefined);
    link.close(new LaminaError('LAM_E_ARGUMENT', 'the model was disposed of'));
}

const items = (stack: Layer[]): StackItem[] =>
    stack.map(({ adapter, weight = 1, replace = false }) => ({ handle: adapter.info.handle, weight, replace }));
