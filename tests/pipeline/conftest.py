import pytest
from contract_server import ContractServer
from publish_world import World


@pytest.fixture
def world(tmp_path):
    """Fails the test when a request or an answer broke GitHub's contract."""
    server = ContractServer()
    yield World(tmp_path, server)
    server.close()
