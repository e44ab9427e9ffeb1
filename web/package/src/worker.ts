// The control worker: one call after the other; only aborts overtake.
import { LaminaError, failureOf } from './errors.js';
import { Host, type Call } from './host.js';
import { Threads } from './threads.js';
import type { FromPage, FromWorker, Progress, Request } from './protocol.js';

const POLL_MS = 20;

const controllers = new Map<number, AbortController>();
let queue: Promise<unknown> = Promise.resolve();

const post = (message: FromWorker) => self.postMessage(message);
const threads = new Threads((spawn) => post({ spawn }));
const host = new Host(threads);

/** Whether a call was aborted, asked in the middle of a computation, while no message can arrive: of a flag in shared memory, else of a blob,
 * which the page revokes. */
function stopper(stop: Request['stop'], signal: AbortSignal): () => boolean {
    if (stop instanceof SharedArray) {
        const flag = new Int32Array(stop);
        return () => signal.aborted || Atomics.load(flag, 0) !== 0;
    }
    let asked = performance.now(), stopped = false;
    if (typeof stop !== 'string' || !exists(stop)) return () => signal.aborted;
    return () => {
        if (signal.aborted || stopped) return true;
        if (performance.now() - asked < POLL_MS) return false;
        stopped = !exists(stop);
        asked = performance.now();
        return stopped;
    };
}

const SharedArray = globalThis.SharedArrayBuffer ?? class {};

function exists(blobUrl: string): boolean {
    const request = new XMLHttpRequest();
    try {
        request.open('GET', blobUrl, false);
        request.send();
        return request.status === 200;
    } catch {
        return false;
    }
}

async function answer({ id, method, parameters, stop }: Request, controller: AbortController): Promise<void> {
    const call: Call = {
        signal: controller.signal, stopped: stopper(stop, controller.signal), event: (event) => post({ id, event }),
        progress: throttled((progress) => post({ id, event: progress })),
    };
    try {
        if (controller.signal.aborted) throw new LaminaError('LAM_E_CANCELLED', 'aborted before it began');
        const work = host[method] as (call: Call, ...parameters: unknown[]) => Promise<unknown>;
        post({ id, result: await work.call(host, call, ...parameters) });
    } catch (problem) {
        const failure = failureOf(problem);
        await host.failed(failure);
        post({ id, failure });
    } finally {
        controllers.delete(id);
    }
}

/** Some 20 a second, and always the first and the last of a stage. */
function throttled(tell: (progress: Progress) => void): (progress: Progress) => void {
    let last = 0, stage = '';
    return (progress) => {
        const now = performance.now();
        if (now - last < 50 && progress.stage === stage && progress.done !== progress.total) return;
        last = now;
        stage = progress.stage;
        tell(progress);
    };
}

self.onmessage = ({ data }: MessageEvent<FromPage>) => {
    if ('abort' in data) return controllers.get(data.abort)?.abort();
    if ('threadFailed' in data) return threads.failed(data.threadFailed);
    const controller = new AbortController();
    controllers.set(data.id, controller);
    queue = queue.then(() => answer(data, controller));
};
