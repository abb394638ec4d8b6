"""What numba has no name for: loads of any alignment, copies, prefetches, swapped bytes.

An intrinsic checks no bounds; whoever calls one stands behind a comparison with the end.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def load_u64(typing_context: Any, data: Any, position: Any) -> Any:
    """Load 8 bytes at a position of a byte array, whatever its alignment."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        word = builder.bitcast(pointer, ir.IntType(64).as_pointer())
        return builder.load(word, align=1)

    return types.uint64(data, types.int64), generate


@intrinsic
def copy_bytes(
    typing_context: Any, target: Any, start: Any, source: Any, position: Any, count: Any
) -> Any:
    """Copy bytes from one array into another; they do not overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into = context.make_array(signature.args[0])(context, builder, arguments[0])
        of = context.make_array(signature.args[2])(context, builder, arguments[2])
        byte, i64 = ir.IntType(8).as_pointer(), ir.IntType(64)
        function = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, i64])
        to = builder.gep(into.data, [arguments[1]])
        start_of = builder.gep(of.data, [arguments[3]])
        builder.call(function, [to, start_of, arguments[4], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


@intrinsic
def prefetch(typing_context: Any, data: Any, position: Any) -> Any:
    """Ask for the bytes at a position of an array ahead of time, also if there are none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte = ir.IntType(8).as_pointer()
        i32 = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        )
        pointer = builder.gep(builder.bitcast(array.data, byte), [arguments[1]])
        to_read_and_keep = [ir.Constant(i32, number) for number in (0, 3, 1)]
        builder.call(function, [pointer, *to_read_and_keep])
        return context.get_dummy_value()

    return types.void(data, types.int64), generate


@intrinsic
def swap_u64(typing_context: Any, word: Any) -> Any:
    """Turn a big-endian word into the machine's order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.bswap", [ir.IntType(64)])
        return builder.call(function, [arguments[0]])

    return types.uint64(types.uint64), generate
