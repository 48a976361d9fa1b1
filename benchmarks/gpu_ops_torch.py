#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ops of a GPU against what a user has without Strata, in one run: `strata bench kernels`, then the same shapes by a plain
loop over cuBLASLt (its own choice of algorithm, 32 MiB of workspace) and by PyTorch: products, scaled_dot_product_attention
by each of its kernels (the backward with use_deterministic_algorithms), rms_norm and copies.

usage: gpu_ops_torch.py STRATA [--seconds N] [--device cpu] [--libraries FOLDER]

A line for each op: its time, the time of the yardstick, and how many times as fast as that it is. Needs torch; exit status 77 without it, or without its GPU.
"""

import argparse
import ctypes
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

KEY_GROUP = 4  # query heads of a key head in `strata bench kernels`


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("strata")
    parser.add_argument("--seconds", default="10", help="of strata bench kernels")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--libraries", default="", help="where strata's own are")
    return parser.parse_args()


def ops_of_strata(args):
    command = [args.strata, "bench", "kernels", "--device", args.device, "--recipe", "bf16"]
    folders = filter(None, (args.libraries, os.environ.get("LD_LIBRARY_PATH")))
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)}
    command += ["--seconds", args.seconds, "--json"]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    if found.returncode != 0:
        raise SystemExit(f"gpu_ops_torch.py: strata bench kernels ended with {found.returncode}")
    return json.loads(found.stdout)["ops"]


def random(args, *shape):
    """Multiples of 1/8 between -1 and 1, so that a multiplier does not rest as it does with zeros."""
    return (torch.randint(-8, 9, shape, device=args.device) / 8).bfloat16()


def seconds_of(args, call):
    """The median of rounds of several calls, as the lanes of a GPU see them."""
    is_gpu = args.device == "cuda"
    call()
    call()
    times = []
    for _ in range(10 if is_gpu else 3):
        if is_gpu:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(8):
                call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 8e3)
        else:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return statistics.median(times)


class CublasLt:
    """y = x w^T in bf16, row-major: to the library, the column-major product w^T x with w transposed."""

    BF16, F32, COMPUTE_F32 = 14, 0, 68
    TRANSA, WORKSPACE = 3, 1  # attributes of a product, and of a preference

    def __init__(self, size):
        self.lt = ctypes.CDLL("libcublasLt.so.13")
        self.handle = ctypes.c_void_p()
        self.check(self.lt.cublasLtCreate(ctypes.byref(self.handle)))
        self.product = ctypes.c_void_p()
        self.check(self.lt.cublasLtMatmulDescCreate(ctypes.byref(self.product), self.COMPUTE_F32, self.F32))
        self.set("MatmulDesc", self.product, self.TRANSA, ctypes.c_int32(1))
        self.layout = ctypes.c_void_p()
        sides = (ctypes.c_uint64(size), ctypes.c_uint64(size), ctypes.c_int64(size))
        self.check(self.lt.cublasLtMatrixLayoutCreate(ctypes.byref(self.layout), self.BF16, *sides))
        preference = ctypes.c_void_p()
        self.check(self.lt.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
        self.workspace = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        self.set("MatmulPreference", preference, self.WORKSPACE, ctypes.c_uint64(self.workspace.numel()))
        # cublasLtMatmulHeuristicResult_t: 64 bytes of the algorithm, its workspace, a status, waves, reserved words.
        self.algorithm = (ctypes.c_uint64 * 16)()
        count = ctypes.c_int()
        self.check(
            self.lt.cublasLtMatmulAlgoGetHeuristic(
                self.handle, self.product, *[self.layout] * 4, preference, 1, self.algorithm, ctypes.byref(count)
            )
        )
        if count.value != 1:
            raise RuntimeError("cuBLASLt has no algorithm")

    def set(self, kind, what, attribute, value):
        call = getattr(self.lt, f"cublasLt{kind}SetAttribute")
        self.check(call(what, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))))

    @staticmethod
    def check(status):
        if status != 0:
            raise RuntimeError(f"cuBLASLt: status {status}")

    def run(self, x, w, y):
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        pointers = [ctypes.c_void_p(each.data_ptr()) for each in (w, x, y)]
        self.check(
            self.lt.cublasLtMatmul(
                self.handle, self.product, ctypes.byref(one), pointers[0], self.layout, pointers[1], self.layout,
                ctypes.byref(zero), pointers[2], self.layout, pointers[2], self.layout, self.algorithm,
                ctypes.c_void_p(self.workspace.data_ptr()), ctypes.c_size_t(self.workspace.numel()),
                ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
            )
        )  # fmt: skip


def products(args, size):
    x, w = random(args, size, size), random(args, size, size)
    yield "PyTorch", lambda: seconds_of(args, lambda: x @ w.T)
    if args.device == "cuda":

        def plain():
            loop, y = CublasLt(size), torch.empty_like(x)
            loop.run(x, w, y)
            if not torch.allclose(y, x @ w.T, rtol=2e-2, atol=1e-1):
                raise RuntimeError("the plain loop computes another product")
            return seconds_of(args, lambda: loop.run(x, w, y))

        yield "cuBLASLt", plain


def attention(args, batch, length, size, heads, backward):
    kv_heads = heads // KEY_GROUP
    q = random(args, batch, length, heads, size).transpose(1, 2).requires_grad_(backward)
    k, v = (random(args, batch, length, kv_heads, size).transpose(1, 2).requires_grad_(backward) for _ in range(2))
    kernels = {"flash": SDPBackend.FLASH_ATTENTION}
    if args.device == "cuda":
        kernels["cuDNN"] = SDPBackend.CUDNN_ATTENTION

    def timed(kernel):
        torch.use_deterministic_algorithms(backward)
        with sdpa_kernel(kernel):

            def forward():
                return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

            if not backward:
                return seconds_of(args, forward)
            o = forward()
            d_o = random(args, *o.shape)
            return seconds_of(args, lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True))

    for name, kernel in kernels.items():
        yield f"PyTorch, {name}", lambda kernel=kernel: timed(kernel)


def rms_norm(args, elements):
    cols = math.isqrt(elements // 4)  # as in strata bench kernels
    x, w = random(args, elements // cols, cols), random(args, cols)
    name = f"PyTorch {elements // cols}x{cols}"
    yield name, lambda: seconds_of(args, lambda: functional.rms_norm(x, (cols,), w))


def yardsticks_of(args, op):
    """(name, a call that gives seconds) for an op of strata's, if there are any."""
    if match := re.fullmatch(r"product (\d+)x\1x\1 bf16", op["op"]):
        return products(args, int(match[1]))
    if match := re.fullmatch(r"attention (forward|backward) (\d+)x(\d+)x(\d+)(, fused)?", op["op"]):
        batch, length, size = map(int, match.groups()[1:4])
        flops = op["flops_per_s"] * op["seconds"] / (1 if match[1] == "forward" else 2.5)
        heads = round(flops / (2.0 * batch * size * length**2))
        return attention(args, batch, length, size, heads, match[1] == "backward")
    if op["op"] == "rms norm forward" and args.device == "cuda":
        return rms_norm(args, round(op["bytes_per_s"] * op["seconds"] / 4))  # read and written, 2 bytes each
    return ()


def main():
    args = arguments()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch has no GPU here")
        sys.exit(77)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it would time that too
    where = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"{where}, torch {torch.__version__}, bf16")
    for op in ops_of_strata(args):
        share = op["share_of_roof"]
        print(f"{op['op']:<36}{1e3 * op['seconds']:>9.3f} ms   {'' if share is None else f'{share:.2f} of the roof'}")
        for name, measure in yardsticks_of(args, op):
            try:
                seconds = measure()
                print(f"    {name:<32}{1e3 * seconds:>9.3f} ms   {seconds / op['seconds']:.2f} times its speed", flush=True)
            except (RuntimeError, OSError) as error:
                print(f"    {name:<32}  cannot: {str(error).splitlines()[0][:90]}", flush=True)


main()
