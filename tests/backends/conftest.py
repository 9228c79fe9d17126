"""A Ray cluster on this machine (services)."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def one_cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        ray.init(address=found.address, log_to_driver=False, configure_logging=False)
        yield found
        ray.shutdown()
        found.shutdown()


@pytest.fixture
def cluster(one_cluster: Any) -> Any:
    """With three nodes; the test before may have killed one."""
    while len(one_cluster.worker_nodes) < 3:
        one_cluster.add_node(num_cpus=1)
    one_cluster.wait_for_nodes()
    return one_cluster
