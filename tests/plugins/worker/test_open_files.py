"""What a worker of a fleet asks of the system."""

from __future__ import annotations

import resource

from orchestrator.plugins.worker.run import allow_open_files


def test_as_many_files_may_be_open_as_the_system_allows_and_never_fewer_than_before() -> None:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)

    def allowed(now: int, wanted: int) -> int:
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, most))
        allow_open_files(wanted)
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    try:
        assert allowed(512, 1000) == 1000
        assert allowed(512, 100) == 512
        if most != resource.RLIM_INFINITY:
            assert allowed(512, most + 1) == most
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
