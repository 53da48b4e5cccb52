"""What nvcc makes of each kernel, as a table.

    kernel_table.py VERSION PTXAS_LOG KEPT

VERSION: of nvcc, a word; PTXAS_LOG: what `nvcc -Xptxas -v` wrote; KEPT: the folder of its --keep-dir,
with machine code (*.cubin) and PTX. A row is a kernel: the 64-bit divisions in its PTX and, of each
architecture, its registers, the bytes that it spills, and how many of its loads from the GPU's memory
are under way at most, in a straight run of instructions.
"""

import collections
import glob
import re
import struct
import subprocess
import sys

# An instruction is 16 bytes since Volta. Bits 0-11 are the opcode, 12-15 the predicate (7: always);
# 110-112 the barrier that a load sets, and 116-121 those that an instruction waits for (Jia et al.,
# "Dissecting the NVIDIA Volta GPU architecture via microbenchmarking", 2018, section 2.1).
LOADS = (0x381, 0x981)             # LDG, as nvdisasm names them
LEAVES = (0x947, 0x94d, 0x950)     # BRA, EXIT, RET
ALWAYS = 7


def instructions(code):
    for i in range(0, len(code), 16):
        low, high = struct.unpack_from('<QQ', code, i)
        yield low & 0xfff, low >> 12 & 15, high >> 46 & 7, high >> 52 & 63


def loads_under_way(code):
    under_way, most = collections.Counter(), 0
    for opcode, predicate, sets, waits in instructions(code):
        for barrier in list(under_way):
            if waits >> barrier & 1:
                del under_way[barrier]
        if opcode in LOADS:
            under_way[sets] += 1
            most = max(most, sum(under_way.values()))
        if opcode in LEAVES and predicate == ALWAYS:
            under_way.clear()
    return most


def machine_code(path):
    """The name of each kernel in an ELF file, and its instructions."""
    with open(path, 'rb') as file:
        data = file.read()
    table, = struct.unpack_from('<Q', data, 0x28)
    count, names = struct.unpack_from('<HH', data, 0x3c)
    sections = [struct.unpack_from('<IIQQQQ', data, table + 64 * i) for i in range(count)]
    for name, _, _, _, offset, size in sections:
        begin = sections[names][4] + name
        text = data[begin:data.index(b'\0', begin)].decode()
        if text.startswith('.text.'):
            yield text[len('.text.'):], data[offset:offset + size]


def divisions(ptx):
    """Of each kernel."""
    counts = {}
    for body in re.split(r'\.entry ', ptx)[1:]:
        counts[re.match(r'\w+', body).group()] = len(re.findall(r'\b(?:div|rem)\.[us]64\b', body))
    return counts


def registers_and_spills(log):
    """By kernel and architecture."""
    found = {}
    for name, arch, rest in re.findall(r"entry function '(\w+)' for 'sm_(\d+)'\n(.*?Used \d+ registers)",
                                       log, re.DOTALL):
        spills = sum(int(n) for n in re.findall(r'(\d+) bytes spill', rest))
        found[name, int(arch)] = int(re.search(r'Used (\d+)', rest).group(1)), spills
    return found


def short(name):
    name = re.sub(r'^void rubato::RunBlock<(.*)>\(.*\)$', r'\1', name.strip())
    return re.sub(r'(?:\w+::)+', '', name).replace(' ', '')


def main(version, log, kept):
    with open(log) as file:
        numbers = registers_and_spills(file.read())
    loads = {}
    for path in glob.glob(kept + '/*.cubin'):
        arch = int(re.search(r'_(\d+)\.cubin$', path).group(1))
        loads.update({(name, arch): loads_under_way(code) for name, code in machine_code(path)})
    with open(glob.glob(kept + '/*_90.ptx')[0]) as file:
        divided = divisions(file.read())
    if set(loads) != set(numbers):
        sys.exit('kernel_table.py: the log and the machine code name different kernels')
    archs = sorted({arch for _, arch in numbers})
    names = sorted(divided)
    filtered = subprocess.run(['c++filt'], input='\n'.join(names), capture_output=True, text=True,
                              check=True).stdout.splitlines()
    print(f'nvcc {version}: divisions of 64 bits; of each sm_, registers, bytes spilled, loads under way')
    print('%-52s %4s' % ('kernel', 'div') + ''.join('%16s' % f'sm_{arch}' for arch in archs))
    for text, name in sorted((short(text), name) for text, name in zip(filtered, names)):
        cells = ''.join('%16s' % '%3d %4d %4d' % (*numbers[name, arch], loads[name, arch])
                        for arch in archs)
        print(f'{text:52} {divided[name]:4}{cells}')


if __name__ == '__main__':
    main(*sys.argv[1:])
