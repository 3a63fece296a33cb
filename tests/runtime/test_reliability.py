"""What must hold around the mathematics: forks, failing memory, Ctrl-C."""

import headspan as hs
import pytest
from helpers import compile_library, run_python

FORK = """
import ctypes, multiprocessing, os, sys, time
import headspan as hs
import numpy as np

rng = np.random.default_rng(0)
query, key, value = rng.standard_normal((3, 8, 301, 16))
hs.set_num_threads(2)

def compute():
    out, vjp = hs.attention_vjp(query, key, value, span=50.5)
    return out.tobytes() + vjp(value).key.tobytes()

def check(expected):
    start = time.monotonic()
    right = compute() == expected
    return right and time.monotonic() - start < 1

def in_child(function, *arguments):
    # Forks, and waits a second for the child to say that all is well.
    child = os.fork()
    if child == 0:
        os._exit(0 if function(*arguments) else 1)
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False

if sys.argv[1] == 'another library':  # which shares the pool of threads with this one
    assert ctypes.CDLL(sys.argv[2]).threads() == 2
    assert in_child(lambda: len(compute()) > 0)
expected = compute()
if sys.argv[1] in ('fork', 'another library'):
    assert in_child(check, expected)
    assert in_child(check, expected)
elif sys.argv[1] == 'fork of a fork':
    assert in_child(lambda: check(expected) and in_child(check, expected))
else:
    with multiprocessing.get_context('fork').Pool(2) as pool:
        answers = pool.map_async(check, [expected] * 4).get(timeout=20)
    assert answers == [True] * 4
assert check(expected)  # the parent goes on as before
print('right')
"""


@pytest.mark.unsanitized
@pytest.mark.parametrize("how", ["fork", "fork of a fork", "multiprocessing"])
def test_fork_after_use(how):
    assert run_python(FORK, how, PYTHONWARNINGS="ignore", timeout=60) == "right\n"


ANOTHER_LIBRARY = """
extern "C" int threads() {
  int count = 0;
#pragma omp parallel num_threads(2) reduction(+ : count)
  count += 1;
  return count;
}
"""


@pytest.mark.unsanitized
@pytest.mark.skipif(not hs.build_info()["openmp"], reason="built without OpenMP")
def test_fork_after_another_library_used_the_threads(tmp_path):
    """headspan is imported but has not run yet when the process forks."""
    library = compile_library(ANOTHER_LIBRARY, tmp_path / "another.so", "-fopenmp")
    assert run_python(FORK, "another library", library, PYTHONWARNINGS="ignore") == "right\n"


ALLOCATOR = """
#include <atomic>
#include <cstdlib>
#include <new>

static std::atomic<long> left{0};  // 0: never fail; n: the n-th from now fails
static std::atomic<long> seen{0};

extern "C" void arm(long n) { left = n; }
extern "C" long calls() { return seen; }

static void* allocate(std::size_t size, std::size_t alignment) {
  ++seen;
  if (left > 0 && --left == 0) throw std::bad_alloc();
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, size ? size : 1)) throw std::bad_alloc();
  return memory;
}

void* operator new(std::size_t n, std::align_val_t a) { return allocate(n, std::size_t(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return allocate(n, std::size_t(a)); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
"""
FAILING = """
import ctypes, sys
from concurrent.futures import ThreadPoolExecutor
import headspan as hs
import numpy as np

allocator = ctypes.CDLL(sys.argv[1])
allocator.arm.argtypes = [ctypes.c_long]
rng = np.random.default_rng(0)
query, key, value, grad_out = rng.standard_normal((4, 3, 331, 16))
options = dict(span=[3.5, 40.0, 500.0], temperature=[0.5, 1.0, 2.0], alibi_slopes=0.1)
hs.set_num_threads(int(sys.argv[3]))
_, vjp = hs.attention_vjp(query, key, value, **options)

CALLS = {
    'attention': lambda: [hs.attention(query, key, value, **options)],
    'attention_vjp': lambda: vjp(grad_out),
    'attention_weights': lambda: [hs.attention_weights(query, key, pool=9, **options)],
}
call = CALLS[sys.argv[2]]

def attempt(n):
    # In a new thread, which has no scratch memory yet and no workers: everything is allocated.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(armed, n).result()

def armed(n):
    allocator.arm(n)
    try:
        return [np.asarray(result).tobytes() for result in call()]
    except MemoryError as error:
        assert '\\n' not in str(error)
        return None
    finally:
        allocator.arm(0)

expected = attempt(0)
failures = 0
while (result := attempt(failures + 1)) is None:
    failures += 1
    assert attempt(0) == expected, failures
assert result == expected
print(failures)
"""


@pytest.mark.unsanitized
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("call", ["attention", "attention_vjp", "attention_weights"])
def test_every_allocation_may_fail(tmp_path, call, threads):
    """MemoryError each time, and the next call is right."""
    library = compile_library(ALLOCATOR, tmp_path / "allocator.so")
    failures = run_python(FAILING, library, call, threads, LD_PRELOAD=str(library))
    assert int(failures) >= 1  # otherwise nothing was tested


INTERRUPT = """
import gc, resource, signal, sys, time
import headspan as hs
import numpy as np

def rise(*_):
    raise KeyboardInterrupt

def wide(tokens, dim, dtype=np.float32):
    # One row, seen as many: a long call needs no memory.
    return np.broadcast_to(np.full((1, dim), 0.01, dtype), (tokens, dim))

def long_call(kind, size):
    if kind == 'one group':
        key = wide(size * 262144, 32)
        return lambda: hs.attention(wide(64, 32), key, key, causal=False)
    if kind == 'one query':
        key = wide(size * 8388608, 32)
        return lambda: hs.attention(wide(1, 32), key, key, causal=False)
    query = np.random.default_rng(0).standard_normal((8, size * 2048, 64))
    if kind == 'long rows':
        query = query.reshape(size * 256, 4096)
        vjp = hs.attention_vjp(query, query, query, causal=False)[1]
        return lambda: vjp(query)
    if kind == 'forward':
        return lambda: hs.attention(query, query, query)
    if kind == 'weights':
        return lambda: hs.attention_weights(query, query, pool=1024)
    vjp = hs.attention_vjp(query, query, query, span=size * 2048)[1]
    return lambda: vjp(query)

def late(call, delay=0.15):
    # Seconds from the signal to the exception; None if the call ended before it.
    signal.signal(signal.SIGALRM, rise)
    due, ended = time.monotonic() + delay, False
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        call()
        ended = True
        signal.setitimer(signal.ITIMER_REAL, 0)  # the signal may arrive before this line has done its work
    except KeyboardInterrupt:
        return None if ended else time.monotonic() - due
    return None

hs.set_num_threads(2)
small = np.random.default_rng(1).standard_normal((2, 70, 8))
expected = hs.attention(small, small, small).tobytes()
limit, size = float(sys.argv[2]), 1
while True:  # until the machine needs long enough
    call = long_call(sys.argv[1], size)
    delays = [late(call)]
    if delays[0] is not None:
        break
    size *= 2
# The best of a few: the machine may be busy with something else at any one moment.
memory = []
for _ in range(4):
    delays.append(late(call))
    gc.collect()
    memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
assert hs.attention(small, small, small).tobytes() == expected
best = min(delay for delay in delays if delay is not None)
assert best < limit, delays
assert memory[-1] - memory[0] < 60_000, memory  # kilobytes
print('interrupted')
"""
LIMIT = 0.1  # seconds


@pytest.mark.unsanitized
@pytest.mark.parametrize("call", ["forward", "backward", "weights", "one group", "one query", "long rows"])
def test_ctrl_c_within_a_tenth_of_a_second(call):
    assert run_python(INTERRUPT, call, LIMIT) == "interrupted\n"


MANY_THREADS = """
import headspan as hs
import numpy as np

query = np.random.default_rng(0).standard_normal((4, 1009, 8))
expected = hs.attention(query, query, query).tobytes()
hs.set_num_threads(10**9)
assert hs.attention(query, query, query).tobytes() == expected
print('right')
"""


# A thread's stack is memory that has to be found, and where it is not, OpenMP ends the process.
LITTLE_ROOM = """
import resource
import headspan as hs
import numpy as np

resource.setrlimit(resource.RLIMIT_AS, (6_000_000_000, resource.RLIM_INFINITY))
query = np.ones((64, 6400, 32), np.float32)
hs.set_num_threads(5000)
print(hs.attention(query, query, query, span=64).shape)
"""


@pytest.mark.unsanitized
def test_many_threads_where_there_is_no_room_for_them():
    assert run_python(LITTLE_ROOM) == "(64, 6400, 32)\n"


@pytest.mark.unsanitized
def test_more_threads_than_any_machine_has():
    assert run_python(MANY_THREADS) == "right\n"
