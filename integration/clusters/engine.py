"""A private Docker engine, installed with apt, and images, even without access to a registry.

    python -m integration.clusters.engine up [VERSION ...]
    python -m integration.clusters.engine down
    python -m integration.clusters.engine run COMMAND ...

``up`` needs root on Debian. It installs missing packages and starts an engine on a private socket, so that
other projects' tests do not pick it up. It pulls or builds an image of each version: the official one, or one
of the same layout from Debian's Java 8 and Maven's artifacts. Tests use the engine if
``ROCKETMQ_CLUSTERS=containers`` is set. A running engine is left unchanged. ``run`` runs a command with an
engine, and stops the engine if it started it. Without an engine it prints the reason and succeeds.

:func:`python_image` provides the image on which tests build others with :func:`build_image`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from integration.clusters import maven
from integration.clusters.cluster import ClusterUnavailableError
from integration.environments import ROOT

VERSIONS = ("4.9.7", "5.5.0")
HOME = ROOT / "build" / "engine"
_RUN = Path("/run/rocketmq-py-engine")  # socket paths must be short
_SOCKET = _RUN / "docker.sock"
_PID = _RUN / "docker.pid"
_PACKAGES = ("docker.io", "mmdebstrap")
_PULL_SECONDS = 60.0
_JAVA_IMAGE = "rocketmq-py/java8"
_PYTHON_IMAGE = "rocketmq-py/python"
_CERTIFICATES = Path("/usr/local/share/ca-certificates")

_SERVERS = {"namesrv": ("server", "namesrv.NamesrvStartup"), "broker": ("broker", "broker.BrokerStartup")}
_LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
_JAVA_DOCKERFILE = """FROM scratch
ADD rootfs.tar /
RUN echo rocketmq:x:3000:3000::/home/rocketmq:/bin/bash >> /etc/passwd \\
 && echo rocketmq:x:3000: >> /etc/group && mkdir -p /home/rocketmq && chown 3000:3000 /home/rocketmq
"""
_PYTHON_DOCKERFILE = """FROM scratch
ADD rootfs.tar /
COPY certificates /usr/local/share/ca-certificates
RUN update-ca-certificates && ln -s python3 /usr/bin/python && rm /usr/lib/python3*/EXTERNALLY-MANAGED
"""
_DOCKERFILE = """FROM {java}
ENV ROCKETMQ_HOME=/home/rocketmq/rocketmq-{version}
COPY --chown=3000:3000 server $ROCKETMQ_HOME
RUN chown rocketmq:rocketmq $ROCKETMQ_HOME
USER rocketmq
WORKDIR $ROCKETMQ_HOME/bin
ENTRYPOINT ["./docker-entrypoint.sh"]
"""


class NoEngineError(Exception):
    """This machine cannot provide an engine. The text says why."""


def use() -> None:
    """Point testcontainers to the engine that ``up`` started, unless the environment names another one."""
    if "DOCKER_HOST" in os.environ or not _SOCKET.exists():
        return
    os.environ |= {
        "DOCKER_HOST": f"unix://{_SOCKET}",
        # The reaper's image needs a registry. ``down`` removes leftovers by the label org.testcontainers.
        "TESTCONTAINERS_RYUK_DISABLED": "true",
        # Inside a container, testcontainers would use the bridge's address as this machine's.
        "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
        "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
    }


def up(versions: Sequence[str]) -> bool:
    """Provide a running engine and an image of each version. Return whether this call started the engine.

    Raises:
        NoEngineError: no engine runs and none can be set up.
        ClusterUnavailableError: the artifacts for an image cannot be fetched.
    """
    use()
    starts = not _answers()
    if starts:
        _install()
        _start()
    for version in versions:
        if not _has_image(f"apache/rocketmq:{version}") and not _pull(f"apache/rocketmq:{version}"):
            _build(version)
    return starts


def down() -> None:
    """Stop the engine that ``up`` started, and remove containers that killed runs left in it."""
    use()
    if not _PID.exists():
        return
    left = _docker("ps", "-aq", "--filter", "label=org.testcontainers", capture_output=True).stdout.split()
    if left:
        _docker("rm", "-f", *left)
    os.kill(int(_PID.read_text()), signal.SIGTERM)


def _answers() -> bool:
    return shutil.which("docker") is not None and not _docker("version", capture_output=True).returncode


def _install() -> None:
    if all(shutil.which(program) for program in ("dockerd", "docker", "mmdebstrap")):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoEngineError("no container engine answers, and only root can install one, with apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    commands = (["update", "-q"], ["install", "-yq", "--no-install-recommends", *_PACKAGES])
    for command in commands:
        done = subprocess.run(["apt-get", *command], env=quiet, capture_output=True, text=True)
        if done.returncode:
            raise NoEngineError(f"apt-get {command[0]} fails:\n{done.stdout[-500:]}{done.stderr[-500:]}")


def _start() -> None:
    if os.geteuid() != 0:
        raise NoEngineError("no container engine answers, and only root can start one")
    _RUN.mkdir(mode=0o700, exist_ok=True)
    HOME.mkdir(parents=True, exist_ok=True)
    log = HOME / "dockerd.log"
    # Leaves this machine's firewall and routes unchanged. The containers need no outside network.
    options = ("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
    places = ("--data-root", HOME / "docker", "--exec-root", _RUN / "exec", "--pidfile", _PID)
    with log.open("w") as output:
        engine = subprocess.Popen(
            ["dockerd", "-H", f"unix://{_SOCKET}", *places, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    for _ in range(120):
        if _SOCKET.exists():
            use()
            if _answers():
                return
        if engine.poll() is not None:
            break
        time.sleep(0.5)
    engine.terminate()
    raise NoEngineError(f"dockerd does not start:\n{log.read_text()[-1500:]}")


def _has_image(name: str) -> bool:
    return not _docker("image", "inspect", name, capture_output=True).returncode


def _pull(name: str) -> bool:
    try:
        return not _docker("pull", "-q", name, capture_output=True, timeout=_PULL_SECONDS).returncode
    except subprocess.TimeoutExpired:
        return False


def _build(version: str) -> None:
    """Build an image with the official one's folders, user and wrapper shells."""
    jars = maven.server_jars(version)
    if not _has_image(_JAVA_IMAGE):
        _build_java()
    context = HOME / f"image-{version}"
    shutil.rmtree(context, ignore_errors=True)
    server = context / "server"
    shutil.copytree(jars, server / "lib")
    for folder in ("bin", "conf"):
        (server / folder).mkdir()
    for name in ("logback_namesrv.xml", "logback_broker.xml", "rmq.logback.xml"):
        (server / "conf" / name).write_text(_LOGBACK)
    scripts = {"docker-entrypoint.sh": '#!/bin/bash\nexec "$@"\n'}
    for program, (runner, main) in _SERVERS.items():
        scripts[f"mq{program}"] = (
            f'#!/bin/sh\nsh $ROCKETMQ_HOME/bin/run{runner}.sh org.apache.rocketmq.{main} "$@"\n'
        )
        scripts[f"run{runner}.sh"] = (
            '#!/bin/sh\njava $JAVA_OPT_EXT -cp "$ROCKETMQ_HOME/conf:$ROCKETMQ_HOME/lib/*" "$@"\nexit $?\n'
        )
    for name, text in scripts.items():
        (server / "bin" / name).write_text(text)
        (server / "bin" / name).chmod(0o755)
    (context / "Dockerfile").write_text(_DOCKERFILE.format(java=_JAVA_IMAGE, version=version))
    build_image(f"apache/rocketmq:{version}", context)
    shutil.rmtree(context)


def _build_java() -> None:
    # Java 8, which the official image uses, is only in Debian unstable.
    with _debian("sid", "essential", "openjdk-8-jre-headless") as context:
        (context / "Dockerfile").write_text(_JAVA_DOCKERFILE)
        build_image(_JAVA_IMAGE, context)


def python_image(official: str) -> str:
    """Return an image with Python, pip and apt: the official one, or one of Debian 12 if it cannot be pulled.

    Raises:
        NoEngineError: it can neither be pulled nor built.
    """
    if _has_image(official) or _pull(official):
        return official
    if not _has_image(_PYTHON_IMAGE):
        with _debian("bookworm", "apt", "python3-pip") as context:
            # Mirrors of packages may have certificates that only this machine knows.
            shutil.copytree(_CERTIFICATES, context / "certificates")
            (context / "Dockerfile").write_text(_PYTHON_DOCKERFILE)
            build_image(_PYTHON_IMAGE, context)
    return _PYTHON_IMAGE


@contextmanager
def _debian(suite: str, variant: str, package: str) -> Iterator[Path]:
    """Provide a temporary folder with rootfs.tar, a Debian with a package."""
    if missing := [program for program in ("mmdebstrap", "apt-get") if shutil.which(program) is None]:
        raise NoEngineError(f"no image of Debian can be built without {missing[0]}")
    context = HOME / f"debian-{suite}"
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    mirror = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"], check=True, capture_output=True, text=True
    ).stdout.split()[0]
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    done = subprocess.run(
        [
            "mmdebstrap",
            "-q",
            "--mode=root",
            f"--variant={variant}",
            f"--include={package}",
            '--aptopt=Acquire::Check-Valid-Until "false"',  # the Release file of sid may have expired
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/locale/*",
            suite,
            str(context / "rootfs.tar"),
            f"deb [signed-by={keys}] {mirror} {suite} main",
        ],
        # Killed runs leave /proc and devices mounted here, so it must not be below build, which is deleted.
        env={**os.environ, "TMPDIR": "/var/tmp"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise NoEngineError(f"no Debian with {package} for an image: {done.stderr[-1000:]}")
    yield context
    shutil.rmtree(context)


def build_image(name: str, context: Path, *options: str, network: str = "none") -> None:
    """Build an image from a folder with a Dockerfile.

    Args:
        name: the image's name.
        context: the folder.
        options: further options of ``docker build``.
        network: ``"host"`` if the build downloads packages.

    Raises:
        NoEngineError: the build failed. The text has the end of its output.
    """
    command = ("build", "-q", "--network", network, "-t", name, *options, str(context))
    done = _docker(*command, capture_output=True)
    if done.returncode:
        raise NoEngineError(f"the image {name} cannot be built: {done.stderr[-1000:]}")


def _docker(
    *arguments: str, capture_output: bool = False, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
    return subprocess.run(
        ["docker", *arguments], env=environment, capture_output=capture_output, text=True, timeout=timeout
    )


def main(command: str = "", *arguments: str) -> str | int | None:
    """Run the command line. Return the exit code of ``run``, or an error text."""
    if command == "down":
        down()
        return None
    if command not in ("up", "run"):
        return __doc__
    versions = arguments if command == "up" else ()
    try:
        started = up(versions or VERSIONS)
    except (NoEngineError, ClusterUnavailableError) as error:
        if command == "up":
            return f"no containers: {error}"
        print(f"*** NOT TRIED IN CONTAINERS: {error}", file=sys.stderr)
        return None
    if command == "up":
        print("an engine answers; tests use it with ROCKETMQ_CLUSTERS=containers")
        return None
    try:
        return subprocess.run(arguments, check=False).returncode
    finally:
        if started:
            down()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
