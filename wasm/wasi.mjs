// The part of WASI preview 1 (wasi_snapshot_preview1) that the program calls, over Node's own file functions. There is one
// preopened folder, "/": the program sees the files that Node sees, with the system's own links and permissions.
// A module that imports anything else is refused when it is instantiated.
// Pointers and sizes arrive as signed 32-bit numbers: `>>> 0`. Every function returns an errno, 0 for success.

import { randomFillSync } from 'node:crypto';
import fs from 'node:fs';
import { isatty } from 'node:tty';

const NAMES = `SUCCESS 2BIG ACCES ADDRINUSE ADDRNOTAVAIL AFNOSUPPORT AGAIN ALREADY BADF BADMSG BUSY CANCELED CHILD CONNABORTED
    CONNREFUSED CONNRESET DEADLK DESTADDRREQ DOM DQUOT EXIST FAULT FBIG HOSTUNREACH IDRM ILSEQ INPROGRESS INTR INVAL IO ISCONN
    ISDIR LOOP MFILE MLINK MSGSIZE MULTIHOP NAMETOOLONG NETDOWN NETRESET NETUNREACH NFILE NOBUFS NODEV NOENT NOEXEC NOLCK
    NOLINK NOMEM NOMSG NOPROTOOPT NOSPC NOSYS NOTCONN NOTDIR NOTEMPTY NOTRECOVERABLE NOTSOCK NOTSUP NOTTY NXIO OVERFLOW
    OWNERDEAD PERM PIPE PROTO PROTONOSUPPORT PROTOTYPE RANGE ROFS SPIPE SRCH STALE TIMEDOUT TXTBSY XDEV NOTCAPABLE`.split(/\s+/);
const ERRNO = Object.fromEntries(NAMES.map((name, number) => [`E${name}`, number]));

const FILE_TYPE = { unknown: 0, block: 1, character: 2, folder: 3, file: 4, socket: 6, link: 7 };
const RIGHT_READ = 1n << 1n, RIGHT_SEEK = 1n << 2n, RIGHT_TELL = 1n << 5n, RIGHT_WRITE = 1n << 6n;
const ALL_RIGHTS = (1n << 30n) - 1n;
const OPEN_CREATE = 1, OPEN_FOLDER = 2, OPEN_EXCLUSIVE = 4, OPEN_TRUNCATE = 8;
const FLAG_APPEND = 1;
const FOLLOW_LINKS = 1;
const ROOT = 3; // the first descriptor after the standard three is the preopened folder

export class Exit {
    constructor(code) { this.code = code; }
}

function fail(name) {
    throw Object.assign(new Error(name), { code: name });
}

function fileType(stat) {
    if (stat.isFile()) return FILE_TYPE.file;
    if (stat.isDirectory()) return FILE_TYPE.folder;
    if (stat.isSymbolicLink()) return FILE_TYPE.link;
    if (stat.isCharacterDevice()) return FILE_TYPE.character;
    if (stat.isBlockDevice()) return FILE_TYPE.block;
    return stat.isSocket() ? FILE_TYPE.socket : FILE_TYPE.unknown;
}

const sleep = (milliseconds) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);

// A pipe or terminal that someone else made non-blocking: wait and try again.
function blocking(operation) {
    for (;;) {
        try {
            return operation();
        } catch (problem) {
            if (problem.code !== 'EAGAIN') throw problem;
            sleep(5);
        }
    }
}

// args and env: what main() gets. memory(): the instance's WebAssembly.Memory, asked anew since it grows.
export function wasiImports({ args, env, memory }) {
    const utf8 = new TextEncoder();
    const bytes = (pointer, length) => new Uint8Array(memory().buffer, pointer >>> 0, length >>> 0);
    const view = () => new DataView(memory().buffer);
    const setU32 = (pointer, value) => view().setUint32(pointer >>> 0, Number(value), true);
    const setU64 = (pointer, value) => view().setBigUint64(pointer >>> 0, BigInt(value), true);
    const text = (pointer, length) => Buffer.from(bytes(pointer, length)).toString();

    // host: Node's descriptor. position: of a regular file, which Node can't seek; null means that the system keeps it.
    const files = new Map([0, 1, 2].map((host) => [host, { host, position: null, append: false }]));
    files.set(ROOT, { host: null, path: '/', position: null });
    const file = (fd) => files.get(fd) ?? fail('EBADF');
    const path = (fd, pointer, length) => `${file(fd).path ?? fail('ENOTDIR')}/${text(pointer, length)}`;

    const vectors = (pointer, count) => Array.from({ length: count }, (_, i) => {
        const at = (pointer >>> 0) + 8 * i;
        return bytes(view().getUint32(at, true), view().getUint32(at + 4, true));
    });
    const strings = (list) => list.map((item) => utf8.encode(`${item}\0`));
    const putStrings = (list, pointers, buffer) => {
        for (const item of strings(list)) {
            setU32(pointers, buffer >>> 0);
            bytes(buffer, item.length).set(item);
            pointers += 4;
            buffer += item.length;
        }
    };
    const putSizes = (list, count, size) => {
        setU32(count, list.length);
        setU32(size, strings(list).reduce((sum, item) => sum + item.length, 0));
    };
    const putStat = (pointer, stat) => {
        const at = pointer >>> 0;
        bytes(at, 64).fill(0);
        setU64(at, BigInt.asUintN(64, stat.dev));
        setU64(at + 8, BigInt.asUintN(64, stat.ino));
        view().setUint8(at + 16, fileType(stat));
        [stat.nlink, stat.size, stat.atimeNs, stat.mtimeNs, stat.ctimeNs].forEach((value, i) => setU64(at + 24 + 8 * i, value));
    };
    const stat = (f) => (f.host === null ? fs.statSync(f.path, { bigint: true }) : fs.fstatSync(f.host, { bigint: true }));
    const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);

    const calls = {
        args_get: (pointers, buffer) => putStrings(args, pointers, buffer),
        args_sizes_get: (count, size) => putSizes(args, count, size),
        environ_get: (pointers, buffer) => putStrings(variables, pointers, buffer),
        environ_sizes_get: (count, size) => putSizes(variables, count, size),
        clock_res_get: (id, out) => setU64(out, 1),
        clock_time_get: (id, precision, out) => setU64(out, id === 0 ? BigInt(Date.now()) * 1000000n : process.hrtime.bigint()),
        random_get: (buffer, length) => { randomFillSync(bytes(buffer, length)); },
        proc_exit: (code) => { throw new Exit(code); },
        sched_yield: () => {},
        // Sleeping is all that is asked for: one subscription to a clock, relative time.
        poll_oneoff(subscriptions, events, count, out) {
            const at = subscriptions >>> 0, clock = view().getUint8(at + 8) === 0, absolute = view().getUint16(at + 40, true) & 1;
            if (count !== 1 || !clock || absolute) fail('ENOTSUP');
            sleep(Number(view().getBigUint64(at + 24, true)) / 1e6);
            bytes(events, 32).fill(0);
            setU64(events, view().getBigUint64(at, true));
            setU32(out, 1);
        },

        fd_prestat_get(fd, out) {
            if (fd !== ROOT) fail('EBADF');
            setU32(out, 0); // a folder
            setU32(out + 4, 1); // length of its name
        },
        fd_prestat_dir_name: (fd, buffer) => bytes(buffer, 1).set(utf8.encode('/')),
        fd_fdstat_get(fd, out) {
            const f = file(fd);
            const terminal = f.host !== null && isatty(f.host); // wasi-libc knows one by its lack of these two rights
            bytes(out, 24).fill(0);
            view().setUint8(out >>> 0, fileType(stat(f)));
            view().setUint16((out >>> 0) + 2, f.append ? FLAG_APPEND : 0, true);
            setU64(out + 8, terminal ? ALL_RIGHTS & ~(RIGHT_SEEK | RIGHT_TELL) : ALL_RIGHTS);
            setU64(out + 16, ALL_RIGHTS);
        },
        fd_fdstat_set_flags: (fd, flags) => { file(fd).append = (flags & FLAG_APPEND) !== 0; },
        fd_filestat_get: (fd, out) => putStat(out, stat(file(fd))),
        fd_filestat_set_size: (fd, size) => fs.ftruncateSync(file(fd).host, Number(size)),
        fd_sync: (fd) => fs.fsyncSync(file(fd).host),
        fd_datasync: (fd) => fs.fdatasyncSync(file(fd).host),
        fd_close(fd) {
            const { host } = file(fd);
            files.delete(fd);
            if (host !== null) fs.closeSync(host);
        },
        fd_seek(fd, offset, whence, out) {
            const f = file(fd);
            if (f.position === null) fail('ESPIPE');
            const start = [0, f.position, whence === 2 ? Number(stat(f).size) : 0][whence] ?? fail('EINVAL');
            const position = start + Number(offset);
            if (position < 0) fail('EINVAL');
            setU64(out, f.position = position);
        },
        fd_read(fd, pointer, count, out) {
            const f = file(fd);
            const n = blocking(() => fs.readvSync(f.host, vectors(pointer, count), f.position));
            if (f.position !== null) f.position += n;
            setU32(out, n);
        },
        fd_pread: (fd, pointer, count, offset, out) =>
            setU32(out, fs.readvSync(file(fd).host, vectors(pointer, count), Number(offset))),
        fd_write(fd, pointer, count, out) {
            const f = file(fd);
            if (f.append && f.position !== null) f.position = Number(stat(f).size);
            const n = blocking(() => fs.writevSync(f.host, vectors(pointer, count), f.position));
            if (f.position !== null) f.position += n;
            setU32(out, n);
        },
        fd_pwrite: (fd, pointer, count, offset, out) =>
            setU32(out, fs.writevSync(file(fd).host, vectors(pointer, count), Number(offset))),
        fd_readdir(fd, buffer, length, cookie, out) {
            const f = file(fd);
            if (cookie === 0n) f.entries = fs.readdirSync(f.path, { withFileTypes: true });
            let used = 0;
            for (let i = Number(cookie); i < f.entries.length && used < length >>> 0; i++) {
                const name = utf8.encode(f.entries[i].name), entry = new Uint8Array(24 + name.length), head = new DataView(entry.buffer);
                head.setBigUint64(0, BigInt(i + 1), true); // where to go on; the inode stays 0
                head.setUint32(16, name.length, true);
                head.setUint8(20, fileType(f.entries[i]));
                entry.set(name, 24);
                const part = entry.subarray(0, (length >>> 0) - used); // an entry that is cut off is asked for again
                bytes(buffer + used, part.length).set(part);
                used += part.length;
            }
            setU32(out, used);
        },

        path_open(folder, links, pointer, length, open, rights, inheriting, flags, out) {
            const name = path(folder, pointer, length), c = fs.constants;
            const write = (rights & RIGHT_WRITE) !== 0n;
            const host = fs.openSync(name, (!write ? c.O_RDONLY : (rights & RIGHT_READ) !== 0n ? c.O_RDWR : c.O_WRONLY)
                | (open & OPEN_CREATE && c.O_CREAT) | (open & OPEN_FOLDER && c.O_DIRECTORY) | (open & OPEN_EXCLUSIVE && c.O_EXCL)
                | (open & OPEN_TRUNCATE && c.O_TRUNC) | (flags & FLAG_APPEND && c.O_APPEND)
                | (links & FOLLOW_LINKS ? 0 : c.O_NOFOLLOW), 0o644);
            const found = fs.fstatSync(host);
            let fd = ROOT + 1;
            while (files.has(fd)) fd++;
            files.set(fd, {
                host,
                path: found.isDirectory() ? name : undefined,
                position: found.isFile() ? 0 : null,
                append: (flags & FLAG_APPEND) !== 0,
            });
            setU32(out, fd);
        },
        path_filestat_get: (folder, links, pointer, length, out) =>
            putStat(out, (links & FOLLOW_LINKS ? fs.statSync : fs.lstatSync)(path(folder, pointer, length), { bigint: true })),
        path_filestat_set_times(folder, links, pointer, length, accessed, modified, which) {
            const name = path(folder, pointer, length), old = fs.statSync(name, { bigint: true });
            const seconds = (given, value, now, kept) => Number(given ? value : now ? BigInt(Date.now()) * 1000000n : kept) / 1e9;
            fs.utimesSync(name, seconds(which & 1, accessed, which & 2, old.atimeNs), seconds(which & 4, modified, which & 8, old.mtimeNs));
        },
        path_create_directory: (folder, pointer, length) => fs.mkdirSync(path(folder, pointer, length), 0o755),
        path_remove_directory: (folder, pointer, length) => fs.rmdirSync(path(folder, pointer, length)),
        path_unlink_file: (folder, pointer, length) => fs.unlinkSync(path(folder, pointer, length)),
        path_rename: (folder, pointer, length, to, toPointer, toLength) =>
            fs.renameSync(path(folder, pointer, length), path(to, toPointer, toLength)),
        path_readlink(folder, pointer, length, buffer, size, out) {
            const target = utf8.encode(fs.readlinkSync(path(folder, pointer, length))).subarray(0, size >>> 0);
            bytes(buffer, target.length).set(target);
            setU32(out, target.length);
        },
    };

    // The system's errors become errnos; whatever else is thrown is a fault of this file or the end of the program.
    const guarded = (call) => (...parameters) => {
        try {
            call(...parameters);
            return 0;
        } catch (problem) {
            if (problem instanceof Exit || !('code' in problem)) throw problem;
            return ERRNO[problem.code] ?? ERRNO.EIO;
        }
    };
    return Object.fromEntries(Object.entries(calls).map(([name, call]) => [name, guarded(call)]));
}
