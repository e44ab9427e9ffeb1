// The compute threads of one module, as the control worker sees them: workers that the page starts (link.ts), on the same shared memory.
// They are the page's and not this worker's own: where a worker and one that it started end at the same time, Chromium 156 keeps both.
import type { Core } from './core.js';
import type { ThreadStart } from './thread.js';

const STACK = 1 << 20;
const START_MS = 10000;

export class Threads {
    count = 0;
    /** Why there are fewer than were asked for. */
    why = '';

    constructor(readonly spawn: (start: ThreadStart) => void) {}

    /** What the page says of a worker that could not be started. */
    failed(why: string): void {
        this.why ||= `a worker could not be started: ${why}`;
    }

    /** Resolves when n workers wait in the module, or as many as could be started. */
    async start(core: Core, n: number): Promise<void> {
        for (let index = 0; index < n; index++)
            this.spawn({ module: core.module, memory: core.memory, index, stackTop: core.alloc(STACK) + STACK });
        const late = performance.now() + START_MS;
        while ((this.count = core.run('lam_web_threads_waiting')) < n && !this.why) {
            if (performance.now() > late) this.failed(`no answer in ${START_MS / 1000} s`);
            await new Promise((done) => setTimeout(done, 1));
        }
    }

    /** Once the engine is gone. */
    stop(core: Core): void {
        if (this.count && !core.dead) core.run('lam_web_threads_leave');
    }
}
