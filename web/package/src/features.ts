// What this browser has, asked once, in the control worker.
import { relaxedSimdIsExact } from '../../../wasm/relaxed.mjs';
import { LaminaError } from './errors.js';

const PAGE = 65536;
/** The initial memory that the modules ask for: stack and data. */
const INITIAL_PAGES = 512;
const FULL = 65536; // pages of 4 GiB
const LEAST = 4096; // 256 MiB

// () → v128, i8x16.splat 0 and popcnt: fixed-width SIMD.
const SIMD = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11]);

export interface Features {
    shared: WebAssembly.Memory | undefined;
    /** Why memory is not shared. */
    sharedWhy: string;
    refused: string[];
    relaxed: boolean;
    processors: number;
}

export function probe(maximumBytes: number | undefined): Features {
    if (typeof WebAssembly !== 'object' || !WebAssembly.validate(SIMD))
        throw new LaminaError('LAM_E_ISA', 'this browser has no WebAssembly with 128-bit SIMD');
    const refused: string[] = [];
    let shared: WebAssembly.Memory | undefined, sharedWhy = '';
    if (!globalThis.crossOriginIsolated || typeof SharedArrayBuffer === 'undefined') {
        sharedWhy = 'the page is not cross-origin isolated: its server must send Cross-Origin-Opener-Policy: same-origin and '
            + 'Cross-Origin-Embedder-Policy: require-corp';
    } else {
        shared = largest(pagesOf(maximumBytes), refused);
        if (!shared) sharedWhy = `shared memory was refused: ${refused.at(-1) ?? ''}`;
    }
    return { shared, sharedWhy, refused, relaxed: relaxedSimdIsExact(), processors: navigator.hardwareConcurrency || 1 };
}

const pagesOf = (bytes: number | undefined) => (bytes === undefined ? FULL : Math.max(INITIAL_PAGES, Math.min(FULL, Math.floor(bytes / PAGE))));

/** Shared memory reserves its maximum: half as much is tried where that is refused. */
function largest(pages: number, refused: string[]): WebAssembly.Memory | undefined {
    for (let maximum = pages; maximum >= Math.min(LEAST, pages); maximum = Math.floor(maximum / 2)) {
        try {
            return new WebAssembly.Memory({ initial: INITIAL_PAGES, maximum, shared: true });
        } catch (problem) {
            refused.push(`${maximum * PAGE} bytes: ${(problem as Error).message}`);
        }
    }
    return undefined;
}

export const unshared = (maximumBytes: number | undefined): WebAssembly.Memory => new WebAssembly.Memory({ initial: INITIAL_PAGES, maximum: pagesOf(maximumBytes) });

/** How much a memory may grow to, which it does not tell itself. */
export function maximumOf(memory: WebAssembly.Memory, asked: number | undefined, refused: string[]): number {
    return (memory as { type?: () => { maximum?: number } }).type?.().maximum ?? Math.floor(pagesOf(asked) / 2 ** refused.length) * PAGE;
}
