#!/usr/bin/env python3
"""Write src/text/template_case.c: the case mappings of Python's str, as runs of equal distance.

    python3 tools/make_template_case.py > src/text/template_case.c
"""
import unicodedata


def mapping(method):
    single, several = {}, {}
    for code in range(0x80, 0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        mapped = getattr(chr(code), method)()
        if mapped == chr(code):
            continue
        if len(mapped) == 1:
            single[code] = ord(mapped)
        else:
            several[code] = [ord(c) for c in mapped]
    return single, several


def runs(single):
    out = []  # [first, last, step, distance]
    for code in sorted(single):
        distance = single[code] - code
        if out and out[-1][3] == distance:
            gap = code - out[-1][1]
            if gap == out[-1][2] or (out[-1][0] == out[-1][1] and gap <= 2):
                out[-1][1], out[-1][2] = code, gap
                continue
        out.append([code, code, 1, distance])
    return out


def table(name, rows, width, kind):
    print(f"static const struct {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        cell = " {" + ", ".join(row) + "},"
        if len(line) + len(cell) > width:
            print(line)
            line = "   "
        line += cell
    print(line)
    print("};\n")


def emit(name, single, several):
    table(name + "_runs", [[hex(f), hex(l), str(s), str(d)] for f, l, s, d in runs(single)], 116, "run")
    if several:
        table(name + "_several", [[hex(c), str(len(m)), "{" + ", ".join(map(hex, m)) + "}"]
                                  for c, m in sorted(several.items())], 116, "several")


HEAD = f"""/* Case mappings of Unicode {unicodedata.unidata_version} beyond ASCII. Written by tools/make_template_case.py; don't edit. */
#include "text/template_text.h"

/* Every step-th code point from first to last maps to itself plus distance. */
struct run {{
    uint32_t first, last, step;
    int32_t distance;
}};

struct several {{
    uint32_t code, n, mapped[3];
}};
"""

TAIL = """static size_t map(uint32_t code, const struct run *runs, size_t n_runs, const struct several *several,
                  size_t n_several, uint32_t *out)
{
    size_t low = 0, high = n_runs;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (runs[middle].last < code) low = middle + 1;
        else high = middle;
    }
    /* Runs with a step may interlock with their neighbours, so a few after the first candidate count too. */
    for (size_t i = low; i < n_runs && i < low + 4; i++)
        if (code >= runs[i].first && code <= runs[i].last && (code - runs[i].first) % runs[i].step == 0) {
            out[0] = (uint32_t)((int32_t)code + runs[i].distance);
            return 1;
        }
    for (size_t i = 0; i < n_several; i++)
        if (several[i].code == code) {
            for (size_t k = 0; k < several[i].n; k++) out[k] = several[i].mapped[k];
            return several[i].n;
        }
    out[0] = code;
    return 1;
}

#define COUNT(table) (sizeof(table) / sizeof *(table))

size_t lam_tpl_map_upper(uint32_t code, uint32_t *out)
{
    if (code < 0x80) {
        out[0] = code >= 'a' && code <= 'z' ? code - 32 : code;
        return 1;
    }
    return map(code, upper_runs, COUNT(upper_runs), upper_several, COUNT(upper_several), out);
}

size_t lam_tpl_map_lower(uint32_t code, uint32_t *out)
{
    if (code < 0x80) {
        out[0] = code >= 'A' && code <= 'Z' ? code + 32 : code;
        return 1;
    }
    return map(code, lower_runs, COUNT(lower_runs), lower_several, COUNT(lower_several), out);
}

size_t lam_tpl_map_title(uint32_t code, uint32_t *out)
{
    if (code >= 0x80) {
        for (size_t i = 0; i < COUNT(title_several); i++)
            if (title_several[i].code == code) {
                for (size_t k = 0; k < title_several[i].n; k++) out[k] = title_several[i].mapped[k];
                return title_several[i].n;
            }
    }
    return lam_tpl_map_upper(code, out);
}"""


def main():
    print(HEAD)
    emit("upper", *mapping("upper"))
    emit("lower", *mapping("lower"))
    title = {}
    for code in range(0x80, 0x110000):
        if not 0xD800 <= code < 0xE000 and chr(code).title() != chr(code).upper():
            title[code] = [ord(c) for c in chr(code).title()]
    print("/* Where the title case differs from the upper case. */")
    table("title_several", [[hex(c), str(len(m)), "{" + ", ".join(map(hex, m)) + "}"]
                            for c, m in sorted(title.items())], 116, "several")
    print(TAIL)


main()
