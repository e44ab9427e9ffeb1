// Whether this engine's relaxed SIMD may be used: it accepts such a module, and its dot product of int8 gives the true sums. Node 20,
// where the feature hides behind a flag, accepts it and gives twice the sum.

const OF_CODE = 0xfd; // the prefix of vector instructions; what follows it is a LEB128 number
const CONSTANT = [OF_CODE, 0x0c], EQUAL_I32X4 = [OF_CODE, 0x37], ALL_TRUE_I32X4 = [OF_CODE, 0xa3, 0x01];
const RELAXED_DOT_ADD = [OF_CODE, 0x93, 0x02]; // i32x4.relaxed_dot_i8x16_i7x16_add_s
const END = 0x0b, I32 = 0x7f;

const section = (id, bytes) => [id, bytes.length, ...bytes];
const vector = (numbers) => [...CONSTANT, ...new Uint8Array(numbers.buffer)];

// () → 1 if the products of a and b, added to 1000 in groups of four, are `sums`. All lengths are below 128, one byte each.
function probe(a, b, sums) {
    const code = [0, ...vector(a), ...vector(b), ...vector(new Int32Array(4).fill(1000)), ...RELAXED_DOT_ADD,
        ...vector(sums), ...EQUAL_I32X4, ...ALL_TRUE_I32X4, END];
    return new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
        ...section(1, [1, 0x60, 0, 1, I32]), // one type: () → i32
        ...section(3, [1, 0]), // one function of that type
        ...section(7, [1, 2, 0x6f, 0x6b, 0, 0]), // exported as "ok"
        ...section(10, [1, code.length, ...code])]);
}

// Extremes of both operands, the second one's in 0..127; sums by hand.
const module = probe(
    new Int8Array([-128, -128, -128, -128, 127, 127, 127, 127, -1, 2, -3, 4, 127, -128, 0, 100]),
    new Int8Array([127, 127, 127, 127, 127, 127, 127, 127, 1, 2, 3, 4, 127, 127, 127, 1]),
    new Int32Array([1000 - 4 * 128 * 127, 1000 + 4 * 127 * 127, 1000 - 1 + 4 - 9 + 16, 1000 - 127 + 100]));

export function relaxedSimdIsExact() {
    return WebAssembly.validate(module) && new WebAssembly.Instance(new WebAssembly.Module(module)).exports.ok() === 1;
}
