// The page's end of the workers: calls of the control worker that are answered, events that arrive meanwhile, aborts, and compute threads.
import { LaminaError, type Failure } from './errors.js';
import type { FromPage, FromWorker, Methods, Request } from './protocol.js';
import type { ThreadStart } from './thread.js';

interface Waiting {
    resolve: (result: never) => void;
    reject: (problem: unknown) => void;
    event: ((event: never) => void) | undefined;
    done: () => void;
}

export interface CallOptions<E = never> {
    signal?: AbortSignal;
    event?: (event: E) => void;
}

type Parameters_<M extends keyof Methods> = Parameters<Methods[M]>;
type Result<M extends keyof Methods> = Awaited<ReturnType<Methods[M]>>;

export class Link {
    readonly #worker: Worker;
    readonly #threads: Worker[] = [];
    readonly #waiting = new Map<number, Waiting>();
    #ids = 0;
    #closed: unknown;

    /** assets: the folder of worker.js and thread.js, if they are not beside this module. */
    constructor(readonly assets: URL | undefined) {
        // The literal form in the second case, here and in #spawn, is what bundlers look for.
        this.#worker = assets ? new Worker(new URL('worker.js', assets), { type: 'module', name: 'lamina' })
            : new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'lamina' });
        this.#worker.onmessage = ({ data }: MessageEvent<FromWorker>) => this.#arrived(data);
        this.#worker.onerror = (event) => this.close(new LaminaError('LAM_E_IO', `the worker failed: ${event.message || 'it could not be loaded'}`));
    }

    #spawn(start: ThreadStart): void {
        const thread = this.assets ? new Worker(new URL('thread.js', this.assets), { type: 'module', name: 'lamina thread' })
            : new Worker(new URL('./thread.js', import.meta.url), { type: 'module', name: 'lamina thread' });
        thread.onerror = (event) => this.#post({ threadFailed: event.message || 'thread.js could not be loaded' });
        thread.postMessage(start);
        this.#threads.push(thread);
    }

    #arrived(message: FromWorker): void {
        if ('spawn' in message) return this.#spawn(message.spawn);
        const call = this.#waiting.get(message.id);
        if (!call) return;
        if ('event' in message) {
            call.event?.(message.event as never);
            return;
        }
        this.#waiting.delete(message.id);
        call.done();
        if ('failure' in message) call.reject(errorOf(message.failure));
        else call.resolve(message.result as never);
    }

    call<M extends keyof Methods, E = never>(method: M, parameters: Parameters_<M>, options: CallOptions<E> = {}): Promise<Result<M>> {
        const { signal, event } = options, id = ++this.#ids;
        if (this.#closed) return Promise.reject(this.#closed);
        if (signal?.aborted) return Promise.reject(signal.reason);
        const stop = signal && stopOf(() => this.#post({ abort: id })), abort = () => stop?.pull();
        return new Promise<Result<M>>((resolve, reject) => {
            const done = () => {
                signal?.removeEventListener('abort', abort);
                stop?.release();
            };
            signal?.addEventListener('abort', abort);
            this.#waiting.set(id, { resolve, reject: (problem) => reject(signal?.aborted ? signal.reason : problem), event, done });
            this.#post({ id, method, parameters, stop: stop?.channel } satisfies Request);
        });
    }

    #post(message: FromPage): void {
        this.#worker.postMessage(message);
    }

    /** Ends the workers; calls in flight and later ones are rejected with why. */
    close(why: unknown): void {
        this.#closed ??= why;
        for (const worker of [this.#worker, ...this.#threads]) worker.terminate();
        this.#threads.length = 0;
        for (const call of this.#waiting.values()) {
            call.done();
            call.reject(why);
        }
        this.#waiting.clear();
    }
}

const errorOf = ({ code, message }: Failure) => new LaminaError(code, message);

interface Stop {
    channel: SharedArrayBuffer | string;
    pull(): void;
    release(): void;
}

/** A message reaches a worker between computations only; during one it looks at shared memory, or whether a blob still exists. */
function stopOf(tell: () => void): Stop {
    if (globalThis.crossOriginIsolated) {
        const channel = new SharedArrayBuffer(4);
        return {
            channel,
            pull() {
                Atomics.store(new Int32Array(channel), 0, 1);
                tell();
            },
            release() {},
        };
    }
    const channel = URL.createObjectURL(new Blob(['go on']));
    return {
        channel,
        pull() {
            URL.revokeObjectURL(channel);
            tell();
        },
        release: () => URL.revokeObjectURL(channel),
    };
}
