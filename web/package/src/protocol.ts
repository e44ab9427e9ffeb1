// What the page and the control worker say to each other, and the public shapes that pass through as they are.
import type { Failure } from './errors.js';
import type { ThreadStart } from './thread.js';

/** Where a model or an adapter comes from: an address, a file of the user's, or the files of a folder by name (`config.json`, …).
 * `.slm` and GGUF files; folders of Hugging Face models and PEFT adapters. */
export type Source = string | URL | Blob | RemoteSource | FolderSource;

export interface RemoteSource {
    url: string | URL;
    /** The file_root that the `.slm` must have, "sha256:…": what `lamina verify` prints. */
    root?: string;
}

export interface FolderSource {
    files: Record<string, string | URL | Blob>;
}

export interface Progress {
    /** download, import; store: where the model lies, told before its first byte is written. */
    stage: 'download' | 'import' | 'store';
    done: number; // bytes
    total: number;
    /** Of store. */
    where?: 'disk' | 'memory';
    /** Of store: why it lies in memory. */
    why?: string;
}

export interface MemoryOptions {
    /** The most that the module's memory may have, bytes; 4 GiB if nothing else is said. */
    maximum?: number;
    /** auto: on disk if the browser has one for the page and the model fits, else in memory. */
    storage?: 'auto' | 'disk' | 'memory';
}

export interface Report {
    /** lamina.wasm, … */
    module: string;
    isa: string;
    threads: number;
    /** Why there are not more threads. */
    why: string;
    sharedMemory: boolean;
    memoryMaximum: number;
    /** Larger maxima that the browser refused, with its words. */
    refused: string[];
    storage: 'disk' | 'memory';
    storageWhy: string;
}

export interface BaseInfo {
    name: string;
    architecture: string;
    baseDigest: string;
    tokenizerDigest: string;
    weightsRoot: string;
    layers: number;
    modelDimension: number;
    vocabulary: number;
    context: number;
    weightBytes: number;
    hasChatTemplate: boolean;
}

export interface AdapterInfo {
    handle: number;
    name: string;
    digest: string;
    modules: number;
    stagedBytes: number;
    bound: boolean;
    /** Tokens from which on an activated adapter acts; empty: it always does. */
    invocation: number[];
}

export interface CompositionInfo {
    handle: number;
    id: string;
    json: string;
    kvFormat: string;
}

export interface StackItem {
    handle: number;
    weight: number;
    replace: boolean;
}

export interface ComposeOptions {
    /** How keys and values are kept; default: float16, float32 for a base of float weights. */
    kv?: 'default' | 'float16' | 'float32' | 'int8';
    policy?: 'dual' | 'materialize';
}

export interface Sampling {
    temperature?: number;
    topK?: number;
    topP?: number;
    minP?: number;
    repeatPenalty?: number;
    repeatWindow?: number;
    /** 0 if nothing else is said: the same call gives the same text. */
    seed?: number | bigint;
}

export interface GenerateOptions extends Sampling {
    maxTokens?: number;
    draft?: 'none' | 'lookup' | 'base';
}

export interface Piece {
    /** What became complete by this token; may be empty. */
    text: string;
    token: number;
}

export interface Summary {
    tokens: number;
    passes: number;
    drafted: number;
    accepted: number;
}

export interface PlanOptions extends ComposeOptions {
    context?: number;
    sessions?: number;
    threads?: number;
    /** Bytes; LAM_E_BUDGET if the peak is above. */
    budget?: number;
}

/** Bytes; include/lamina/plan.h tells each. */
export type Plan = Record<'mapped' | 'process' | 'base' | 'adapters' | 'overlay' | 'kv' | 'session' | 'scratch' | 'prefix' | 'drafts' | 'from'
    | 'from_kv' | 'sampling' | 'staging' | 'peak' | 'context' | 'threads', number>;

export interface Message {
    role: string;
    content: string;
}

/** What the control worker is asked for. */
export interface Methods {
    open(options: { source: Source; assets: string; threads?: number; memory: MemoryOptions; url: string }): Promise<{ base: BaseInfo; report: Report }>;
    loadAdapter(source: Source, options: { waive?: boolean; acceptTokenizer?: boolean }): Promise<AdapterInfo>;
    unloadAdapter(adapter: number): Promise<void>;
    compose(stack: StackItem[], options: ComposeOptions): Promise<CompositionInfo>;
    freeComposition(composition: number): Promise<void>;
    newSession(composition: number, context: number): Promise<{ handle: number; context: number }>;
    freeSession(session: number): Promise<void>;
    feed(session: number, input: string | Uint32Array): Promise<number>;
    generate(session: number, input: string | Uint32Array | undefined, options: GenerateOptions): Promise<Summary>;
    logits(session: number): Promise<Float32Array>;
    rebase(session: number, composition: number): Promise<number>;
    truncate(session: number, length: number): Promise<void>;
    length(session: number): Promise<number>;
    tokenize(text: string, options: { special?: boolean; control?: boolean }): Promise<Uint32Array>;
    detokenize(tokens: Uint32Array, special: boolean): Promise<string>;
    chat(composition: number, messages: Message[]): Promise<string>;
    plan(stack: StackItem[], options: PlanOptions): Promise<Plan>;
    memory(): Promise<{ bytes: number; threads: number }>;
    dispose(): Promise<void>;
}

export interface Request {
    id: number;
    method: keyof Methods;
    parameters: unknown[];
    /** How the worker sees, in the middle of a computation, that the call was aborted: a flag in shared memory, or the address of a blob
     * that is revoked. */
    stop?: SharedArrayBuffer | string;
}

export type FromPage = Request | { abort: number } | { threadFailed: string };
export type FromWorker = { id: number; result: unknown } | { id: number; failure: Failure } | { id: number; event: unknown }
    | { spawn: ThreadStart };
