// A compute thread: a worker that enters the module with a stack of its own and stays there until it is let go.
import { nanoseconds } from './wasi.js';

export interface ThreadStart {
    module: WebAssembly.Module;
    memory: WebAssembly.Memory;
    index: number;
    stackTop: number;
}

type Exports = { lam_web_thread(index: number): void; __stack_pointer: WebAssembly.Global };

/** Kernels ask for the time and yield; whatever else is called here is a fault. */
function imports(module: WebAssembly.Module, memory: WebAssembly.Memory): WebAssembly.Imports {
    const out: Record<string, Record<string, WebAssembly.ImportValue>> = { env: { memory } };
    for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
        if (kind !== 'function') continue;
        (out[from] ??= {})[name] = () => {
            throw new WebAssembly.RuntimeError(`${name} was called by a compute thread`);
        };
    }
    const wasi = out['wasi_snapshot_preview1']!;
    wasi['sched_yield'] = () => 0;
    wasi['clock_time_get'] = (id: number, _precision: bigint, at: number) => {
        new DataView(memory.buffer).setBigUint64(at >>> 0, nanoseconds(id), true);
        return 0;
    };
    return out;
}

self.onmessage = ({ data }: MessageEvent<ThreadStart>) => {
    const { exports } = new WebAssembly.Instance(data.module, imports(data.module, data.memory));
    const thread = exports as unknown as Exports;
    thread.__stack_pointer.value = data.stackTop;
    thread.lam_web_thread(data.index);
    self.close();
};
