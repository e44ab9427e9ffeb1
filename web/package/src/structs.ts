// Structs of the C headers in the module's memory, by the layouts that clang gave (generated.ts).
import { layouts } from './generated.js';

type Layouts = typeof layouts;
export type StructName = keyof Layouts;

type Value<T> = T extends 'u64' ? bigint : T extends 'bool' ? boolean : T extends `text${number}` ? string : number;
export type Struct<N extends StructName> = {
    -readonly [F in keyof Layouts[N]['fields']]: Layouts[N]['fields'][F] extends readonly [number, infer T] ? Value<T> : never;
};

type Field = readonly [offset: number, type: string];
const fieldsOf = (name: StructName) => Object.entries(layouts[name].fields) as [string, Field][];

export const sizeOf = (name: StructName): number => layouts[name].size;

function get(bytes: Uint8Array, view: DataView, at: number, type: string): unknown {
    switch (type) {
        case 'u32': return view.getUint32(at, true);
        case 'i32': return view.getInt32(at, true);
        case 'u64': return view.getBigUint64(at, true);
        case 'f32': return view.getFloat32(at, true);
        case 'f64': return view.getFloat64(at, true);
        case 'bool': return view.getUint8(at) !== 0;
        default: return text(bytes.subarray(at, at + Number(type.slice('text'.length))));
    }
}

function set(view: DataView, at: number, type: string, value: unknown): void {
    switch (type) {
        case 'u32': return view.setUint32(at, value as number, true);
        case 'i32': return view.setInt32(at, value as number, true);
        case 'u64': return view.setBigUint64(at, value as bigint, true);
        case 'f32': return view.setFloat32(at, value as number, true);
        case 'f64': return view.setFloat64(at, value as number, true);
        case 'bool': return view.setUint8(at, value ? 1 : 0);
        default: throw new TypeError(`a field of type ${type} is read only`);
    }
}

const decoder = new TextDecoder();

/** UTF-8 up to the first zero. TextDecoder refuses views of shared memory: a copy. */
export function text(bytes: Uint8Array): string {
    const end = bytes.indexOf(0);
    return decoder.decode(bytes.slice(0, end < 0 ? bytes.length : end));
}

export function readStruct<N extends StructName>(name: N, bytes: Uint8Array, view: DataView, at: number): Struct<N> {
    return Object.fromEntries(fieldsOf(name).map(([field, [offset, type]]) => [field, get(bytes, view, at + offset, type)])) as Struct<N>;
}

/** Fields that values lacks stay as they are. */
export function writeStruct<N extends StructName>(name: N, view: DataView, at: number, values: Partial<Struct<N>>): void {
    for (const [field, [offset, type]] of fieldsOf(name)) {
        const value = (values as Record<string, unknown>)[field];
        if (value !== undefined) set(view, at + offset, type, value);
    }
}
