import pytest
from contract_server import ContractServer
from github_cases import HEAD


@pytest.fixture
def server():
    """A GitHub with one open pull request, number 7. Fails the test when a request or an answer broke the contract."""
    server = ContractServer()
    server.state.add_pull(7, head_sha=HEAD)
    yield server
    server.close()
