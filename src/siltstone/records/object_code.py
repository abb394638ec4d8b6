"""Load compiled kernels without the compiler that made them.

The object files of numba's compiler are for any address: all that is left to do is to put the
sections somewhere, and to write 64-bit addresses into them. Only what these files need is here, and
only for x86-64; everything else is refused, and whoever asked has the compiler instead.
"""

import ctypes
import mmap
import struct
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_ADDRESS: Final = struct.Struct("<Q")

_ELF64_LITTLE: Final = (b"\x7fELF", 2, 1)
_RELOCATABLE: Final = 1
_X86_64: Final = 62
_SYMBOL_TABLE: Final = 2
_RELOCATIONS: Final = 4
_ALLOCATED: Final = 2
_NO_BITS: Final = 8
_UNDEFINED: Final = 0
_COMMON: Final = 0xFFF2
_ABSOLUTE_64: Final = 1
_UNWINDING: Final = b".eh_frame"  # for debuggers and C++ exceptions

# What a kernel calls to raise, or to free an array of its own: ours do neither.
_OF_NUMBA: Final = ("numba_", "NRT_")


class ObjectCodeError(Exception):
    """This is no object code that can be loaded here."""


class _Section(NamedTuple):
    name: bytes
    kind: int
    flags: int
    position: int
    size_bytes: int
    linked: int
    target: int
    alignment: int


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int
    size_bytes: int


class ObjectCode:
    """The functions of one object file, in memory for as long as this lives."""

    def __init__(self, data: bytes) -> None:
        try:
            self._load(data)
        except (struct.error, IndexError, ValueError, AttributeError, OSError) as error:
            raise ObjectCodeError(f"this object code cannot be loaded: {error}") from error

    def address(self, name: str) -> int:
        """Return where a function begins."""
        try:
            return self._addresses[name]
        except KeyError:
            raise ObjectCodeError(f"there is no function {name} in this object code") from None

    def _load(self, data: bytes) -> None:
        sections = _read_sections(data)
        places: dict[int, int] = {}
        size = 0
        for number, section in enumerate(sections):
            if section.flags & _ALLOCATED and section.name != _UNWINDING:
                size = -(-size // section.alignment) * section.alignment
                places[number] = size
                size += section.size_bytes
        (table,) = (section for section in sections if section.kind == _SYMBOL_TABLE)
        symbols = _read_symbols(data, sections, table)
        commons = -(-size // 16) * 16
        size = commons + 16 * len(symbols)
        self._memory = mmap.mmap(-1, size)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for number, place in places.items():
            section = sections[number]
            if section.kind != _NO_BITS:
                content = data[section.position : section.position + section.size_bytes]
                self._memory[place : place + section.size_bytes] = content
        resolved = [
            _resolve(symbol, places, base, base + commons + 16 * number)
            for number, symbol in enumerate(symbols)
        ]
        for section in sections:
            if section.kind == _RELOCATIONS and section.target in places:
                self._relocate(data, section, places[section.target], symbols, resolved)
        self._protect(base, size)
        self._addresses = {
            symbol.name: address
            for symbol, address in zip(symbols, resolved, strict=True)
            if address and symbol.section in places
        }

    def _relocate(
        self,
        data: bytes,
        section: _Section,
        place: int,
        symbols: list[_Symbol],
        resolved: list[int | None],
    ) -> None:
        content = data[section.position : section.position + section.size_bytes]
        for offset, info, addend in _RELOCATION.iter_unpack(content):
            number, kind = info >> 32, info & 0xFFFFFFFF
            address = resolved[number]
            if kind != _ABSOLUTE_64 or address is None:
                raise ObjectCodeError(f"relocation {kind} of {symbols[number].name} is not known")
            _ADDRESS.pack_into(self._memory, place + offset, address + addend)

    def _protect(self, base: int, size: int) -> None:
        """From now on this is code, which nobody writes to."""
        libc = ctypes.CDLL(None, use_errno=True)
        protection = mmap.PROT_READ | mmap.PROT_EXEC
        if libc.mprotect(ctypes.c_void_p(base), ctypes.c_size_t(size), protection):
            raise ObjectCodeError(f"this memory cannot be made code: errno {ctypes.get_errno()}")


def _read_sections(data: bytes) -> list[_Section]:
    header = _HEADER.unpack_from(data)
    if header[:3] != _ELF64_LITTLE or header[3:5] != (_RELOCATABLE, _X86_64):
        raise ObjectCodeError("this is no object code for x86-64")
    start, size, count, names_number = header[8], header[13], header[14], header[15]
    rows = [_SECTION.unpack_from(data, start + size * number) for number in range(count)]
    names_start = rows[names_number][4]
    return [
        _Section(
            _text_at(data, names_start + row[0]),
            *(row[1], row[2], row[4], row[5], row[6], row[7], max(row[8], 1)),
        )
        for row in rows
    ]


def _read_symbols(data: bytes, sections: list[_Section], table: _Section) -> list[_Symbol]:
    names_start = sections[table.linked].position
    content = data[table.position : table.position + table.size_bytes]
    return [
        _Symbol(_text_at(data, names_start + name).decode(), section, value, size)
        for name, _, _, section, value, size in _SYMBOL.iter_unpack(content)
    ]


def _text_at(data: bytes, position: int) -> bytes:
    return data[position : data.index(b"\0", position)]


def _resolve(symbol: _Symbol, places: dict[int, int], base: int, room: int) -> int | None:
    """Return the address of a symbol; None for one in a section that is left out."""
    if symbol.section == _COMMON:
        return room
    if symbol.section == _UNDEFINED:
        return _find_in_process(symbol.name) if symbol.name else None
    place = places.get(symbol.section)
    return None if place is None else base + place + symbol.value


def _find_in_process(name: str) -> int | None:
    if name.startswith(_OF_NUMBA):
        name = "abort"
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
