"""What the wheel is made from: versions, the release's checksum, and the changes that it needs."""

from dataclasses import dataclass

VERSION = "0.28.1"
SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"

# Horovod's setup.py is older than setuptools 81 and CMake 4, and they refuse it.
TOOLS = ("cmake==3.31.10", "packaging==26.4", "setuptools==80.10.2", "wheel==0.48.0")

# torch being a CUDA build, Horovod wants CUDA's headers and compiler, also where it is built without
# NCCL. They come as wheels that match torch's own, so that no toolkit has to be on the machine.
TOOLKIT = (
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
)


# What a build is told. The linker finds Open MPI from site-packages/horovod/torch in lib/ of whatever
# environment the wheel is installed to.
SETTINGS = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_MPI": "1",
    "LDFLAGS": "-Wl,-rpath,$ORIGIN/../../../..",
}
SETTINGS_NCCL = {"HOROVOD_GPU_OPERATIONS": "NCCL"}


@dataclass(frozen=True)
class Patch:
    """In `file` of the release, `old` becomes `new`."""

    file: str
    old: str
    new: str


PATCHES = (
    # Debug information, which nobody reads here, takes longer to write than the code.
    Patch("setup.py", "else 'RelWithDebInfo'", "else 'Release'"),
    # torch's headers are C++20.
    Patch("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 20)"),
    Patch("horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 20)"),
    # A process set's gloo context was never enabled and so never closed: survivors of an elastic job
    # heard of a death only when their time was up.
    Patch(
        "horovod/common/process_set.cc",
        "gloo_context.InitializeForProcessSet(global_gloo_context,",
        "gloo_context.Enable();\n  gloo_context.InitializeForProcessSet(global_gloo_context,",
    ),
    # It also never heard of the interface, and used the address that a host's own name has to itself.
    Patch(
        "horovod/common/gloo/gloo_context.cc",
        "assert(global_context.IsEnabled());",
        "assert(global_context.IsEnabled());\n  gloo_iface_ = global_context.gloo_iface_;",
    ),
)
