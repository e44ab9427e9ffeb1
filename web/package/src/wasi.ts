// The part of WASI preview 1 that the module calls, over a FileTable. There is one preopened folder, "/". A module that imports anything else is
// refused when it is instantiated.
// Pointers and sizes arrive as signed 32-bit numbers: `>>> 0`. Every function returns an errno, 0 for success.
import type { FileTable, FileNode, Entry } from './files.js';

const ERRNO = { BADF: 8, EXIST: 20, INVAL: 28, IO: 29, ISDIR: 31, NOENT: 44, NOSPC: 51, NOTDIR: 54, PERM: 63 } as const;
type Errno = keyof typeof ERRNO;

const FOLDER = 3, FILE = 4;
const ALL_RIGHTS = (1n << 30n) - 1n;
const OPEN_CREATE = 1, OPEN_FOLDER = 2, OPEN_EXCLUSIVE = 4, OPEN_TRUNCATE = 8;
const ROOT = 3; // the first descriptor after the standard three

class Refused extends Error {
    constructor(readonly errno: Errno) {
        super(errno);
    }
}

function fail(errno: Errno): never {
    throw new Refused(errno);
}

interface Open {
    path: string;
    entry?: Entry; // without one: a folder
    position: number;
}

export interface Memory {
    bytes: Uint8Array<ArrayBufferLike>;
    view: DataView;
}

/** memory(): the instance's, asked anew since it grows. */
export function wasiImports(files: FileTable, memory: () => Memory): Record<string, (...parameters: never[]) => number> {
    const utf8 = new TextEncoder(), decoder = new TextDecoder();
    const bytes = (at: number, n: number) => memory().bytes.subarray(at >>> 0, (at >>> 0) + (n >>> 0));
    const text = (at: number, n: number) => decoder.decode(bytes(at, n).slice());
    const setU32 = (at: number, value: number) => memory().view.setUint32(at >>> 0, value, true);
    const setU64 = (at: number, value: bigint | number) => memory().view.setBigUint64(at >>> 0, BigInt(value), true);

    const open = new Map<number, Open>([[ROOT, { path: '', position: 0 }]]);
    const file = (fd: number): Open => open.get(fd) ?? fail('BADF');
    const entryOf = (fd: number): Entry => file(fd).entry ?? fail('ISDIR');
    const nodeOf = (fd: number): FileNode => entryOf(fd).node;
    const path = (fd: number, at: number, n: number) => `${file(fd).path}/${text(at, n)}`;
    const sizeOf = (entry: Entry) => entry.size ?? entry.node.size;

    const putStat = (out: number, entry: Entry | undefined) => {
        const modified = BigInt(entry?.modified ?? 0) * 1000000n;
        bytes(out, 64).fill(0);
        setU64(out + 8, entry?.inode ?? 0);
        memory().view.setUint8((out >>> 0) + 16, entry ? FILE : FOLDER);
        [1, entry ? sizeOf(entry) : 0, modified, modified, modified].forEach((value, i) => setU64(out + 24 + 8 * i, value));
    };
    const statPath = (name: string): Entry | undefined => files.find(name) ?? (files.isFolder(name) ? undefined : fail('NOENT'));

    const each = (at: number, count: number, work: (part: Uint8Array) => number): number => {
        let sum = 0;
        for (let i = 0; i < count; i++) {
            const place = (at >>> 0) + 8 * i, view = memory().view, length = view.getUint32(place + 4, true);
            const n = length ? work(bytes(view.getUint32(place, true), length)) : 0;
            sum += n;
            if (n < length) break;
        }
        return sum;
    };
    const read = (fd: number, at: number, count: number, position: number) => {
        const node = nodeOf(fd);
        return each(at, count, (part) => {
            const n = node.read(part, position);
            position += n;
            return n;
        });
    };
    const write = (fd: number, at: number, count: number, position: number) => {
        const entry = entryOf(fd);
        return each(at, count, (part) => {
            entry.node.write(part, position);
            entry.modified = Date.now();
            position += part.length;
            return part.length;
        });
    };

    const calls: Record<string, (...parameters: any[]) => void> = {
        environ_get() {},
        environ_sizes_get(count: number, size: number) {
            setU32(count, 0);
            setU32(size, 0);
        },
        clock_time_get: (id: number, _precision: bigint, out: number) => setU64(out, nanoseconds(id)),
        random_get(at: number, n: number) {
            const values = crypto.getRandomValues(new Uint8Array(n >>> 0)); // refuses shared memory
            bytes(at, n).set(values);
        },
        sched_yield() {},
        proc_exit(code: number) {
            throw new WebAssembly.RuntimeError(`exit ${code}`);
        },

        fd_prestat_get(fd: number, out: number) {
            if (fd !== ROOT) fail('BADF');
            setU32(out, 0); // a folder
            setU32(out + 4, 1); // length of its name
        },
        fd_prestat_dir_name: (_fd: number, at: number) => bytes(at, 1).set(utf8.encode('/')),
        fd_fdstat_get(fd: number, out: number) {
            bytes(out, 24).fill(0);
            memory().view.setUint8(out >>> 0, file(fd).entry ? FILE : FOLDER);
            setU64(out + 8, ALL_RIGHTS);
            setU64(out + 16, ALL_RIGHTS);
        },
        fd_filestat_get: (fd: number, out: number) => putStat(out, file(fd).entry),
        fd_sync(fd: number) {
            file(fd).entry?.node.flush();
        },
        fd_close(fd: number) {
            file(fd);
            open.delete(fd);
        },
        fd_seek(fd: number, offset: bigint, whence: number, out: number) {
            const f = file(fd), start = [0, f.position, whence === 2 ? sizeOf(entryOf(fd)) : 0][whence] ?? fail('INVAL');
            f.position = start + Number(offset);
            if (f.position < 0) fail('INVAL');
            setU64(out, f.position);
        },
        fd_read(fd: number, at: number, count: number, out: number) {
            const f = file(fd), n = read(fd, at, count, f.position);
            f.position += n;
            setU32(out, n);
        },
        fd_write(fd: number, at: number, count: number, out: number) {
            if (fd < ROOT) return setU32(out, each(at, count, (part) => part.length)); // the library prints nothing
            const f = file(fd), n = write(fd, at, count, f.position);
            f.position += n;
            setU32(out, n);
        },
        fd_pwrite: (fd: number, at: number, count: number, offset: bigint, out: number) => setU32(out, write(fd, at, count, Number(offset))),

        path_open(folder: number, _links: number, at: number, n: number, how: number, _rights: bigint, _inherited: bigint, _flags: number, out: number) {
            const name = path(folder, at, n);
            let entry = files.find(name);
            if (entry && how & OPEN_FOLDER) fail('NOTDIR');
            if (entry && how & OPEN_EXCLUSIVE) fail('EXIST');
            if (!entry && how & OPEN_CREATE) entry = files.create(name) ?? fail('PERM');
            if (!entry && !files.isFolder(name)) fail('NOENT');
            if (entry && how & OPEN_TRUNCATE) entry.node.truncate(0);
            let fd = ROOT + 1;
            while (open.has(fd)) fd++;
            open.set(fd, { path: name, entry, position: 0 });
            setU32(out, fd);
        },
        path_filestat_get: (folder: number, _links: number, at: number, n: number, out: number) => putStat(out, statPath(path(folder, at, n))),
        path_unlink_file(folder: number, at: number, n: number) {
            if (!files.remove(path(folder, at, n))) fail('NOENT');
        },
        path_rename(folder: number, at: number, n: number, to: number, toAt: number, toN: number) {
            if (!files.rename(path(folder, at, n), path(to, toAt, toN))) fail('NOENT');
        },
    };

    const guarded = (call: (...parameters: any[]) => void) => (...parameters: any[]) => {
        try {
            call(...parameters);
            return 0;
        } catch (problem) {
            if (problem instanceof Refused) return ERRNO[problem.errno];
            if (problem instanceof DOMException) return problem.name === 'QuotaExceededError' ? ERRNO.NOSPC : ERRNO.IO;
            throw problem;
        }
    };
    return Object.fromEntries(Object.entries(calls).map(([name, call]) => [name, guarded(call)]));
}

/** A clock's nanoseconds: 0 is the time of day, another one runs evenly. */
export function nanoseconds(id: number): bigint {
    return id === 0 ? BigInt(Date.now()) * 1000000n : BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6));
}
