#!/usr/bin/env python3
"""layers.py: whether the folders keep the order of layers.txt, in which each reaches only those left of it.

Prints every include that goes up, "file:line: folder A includes folder B above it". Ends with 1 if there is one that
layers.txt does not list as known ("includes:"), or if a known one is gone, so that the list only gets shorter.
--symbols BUILD: calls instead ("calls:" in layers.txt), by nm over the object files of a Meson build without LTO."""
import argparse
import collections
import json
import re
import subprocess
import sys
from os.path import abspath, dirname, exists, join, normpath, relpath
from pathlib import Path


def read_table(path):
    """{room: {folder or file: rung}}, the rooms' own under ''; and the arrows {keyword: {(from, to)}}."""
    rungs, arrows = {}, {'includes': set(), 'calls': set(), 'never': set()}
    with open(path, encoding='utf-8') as table:
        for name, colon, rest in (line.split('#')[0].partition(':') for line in table):
            if name in arrows:
                arrows[name].add(tuple(rest.replace('->', ' ').split()))
            elif colon:
                room = '' if name == 'rooms' else name
                rungs[room] = {normpath(join(room, part.strip())): rung
                               for rung, names in enumerate(rest.split('<')) for part in names.split(',')}
    return rungs, arrows


def place(ladder, path):  # the folder, or file, of the ladder that path lies in; '': none
    return path if path in ladder or not path else place(ladder, dirname(path))


def by_include(rooms):
    """(file, what to say, file that is included)"""
    for file in (str(path) for room in rooms for path in sorted(Path(room).rglob('*.[ch]'))):
        with open(file, encoding='utf-8', errors='replace') as text:
            for number, line in enumerate(text, 1):
                found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                names = (normpath(join(dirname(file), found[1])), found[1]) if found else ()
                for target in [name for name in names if exists(name)][:1]:  # else it is generated
                    yield file, f'{file}:{number}: folder %s includes folder %s above it', target


def by_symbol(rooms, build):
    """(file, what to say, file that defines a symbol which it lacks)"""
    with open(join(build, 'compile_commands.json'), encoding='utf-8') as commands:
        of = {join(c['directory'], c['output']): relpath(join(c['directory'], c['file'])) for c in json.load(commands)}
    objects = {o: f for o, f in of.items() if f.split('/')[0] in rooms and exists(o) and exists(f)}
    defined, lacking = collections.defaultdict(set), set()
    for line in subprocess.check_output(['nm', '-A', '-P', *objects], text=True).splitlines():
        where, symbol, kind = line.split()[:3]
        if kind in 'Uw':
            lacking.add((objects[where[:-1]], symbol))
        elif kind.isupper():
            defined[symbol].add(objects[where[:-1]])
    for file, symbol in sorted(lacking):
        for target in defined[symbol] - {file}:
            yield file, f'{file}: folder %s calls {symbol} of {target} in folder %s above it', target


def cycles(arrows):
    """Tarjan: the sets whose members all reach each other, of more than one, the largest first."""
    index, low, stack, found = {}, {}, [], []
    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(arrows.get(node, ())):
            if other not in index:
                visit(other)
            low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            found.append(sorted(stack[stack.index(node):]))
            del stack[stack.index(node):]
            low.update(dict.fromkeys(found[-1], sys.maxsize))  # done: nobody's way up
    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return sorted((part for part in found if len(part) > 1), key=len, reverse=True)


def print_cycles(rooms, arrows):
    for room in rooms:
        files, folders = collections.defaultdict(set), collections.defaultdict(set)
        for file, _, target in arrows:
            if file.split('/')[0] == target.split('/')[0] == room:
                files[file].add(target)
                folders[dirname(file)].add(dirname(target))
        print(f'{room}: cycles of files: {" ".join(str(len(part)) for part in cycles(files)) or "none"}')
        for what, parts in ('largest', cycles(files)[:1]), ('folders', cycles(folders)):
            print(''.join(f'    {what}: {" ".join(relpath(f, room) for f in part)}\n' for part in parts), end='')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--symbols', metavar='BUILD', help='look at calls, in the object files of this build')
    parser.add_argument('--cycles', action='store_true', help='print what reaches itself, and check nothing')
    options = parser.parse_args()
    rungs, table = read_table(join(dirname(abspath(__file__)), 'layers.txt'))
    rooms, up, known = sorted(set(rungs) - {''}), set(), table['calls' if options.symbols else 'includes']
    arrows = list(by_symbol(rooms, options.symbols) if options.symbols else by_include(rooms))
    if options.cycles:
        return print_cycles(rooms, arrows)
    for file, said, target in arrows:
        a, b = file.split('/')[0], target.split('/')[0]
        ladder = rungs[a if a == b else '']  # a room is one folder to the others
        a, b = place(ladder, file), place(ladder, target)
        if not a or not b:
            sys.exit(f'layers.txt does not have the folder of {target if a else file}')
        if a != b and ((a, b) in table['never'] or ladder[b] >= ladder[a]):
            up.add((a, b))
            if (a, b) not in known:
                print(said % (a, b))
    for a, b in sorted(known - up):
        print(f'layers.txt: {a} -> {b} is gone: take the line out')
    return 1 if up != known else 0


if __name__ == '__main__':
    sys.exit(main())
