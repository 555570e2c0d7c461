"""TensorFlow in one process with other libraries."""

import pytest

from tests.support.child_processes import python


@pytest.mark.peers
@pytest.mark.extended
def test_torch_may_be_used_after_tensorflow() -> None:
    pytest.importorskip("torch")
    program = (
        "from nq.model.runtime import import_tensorflow; import_tensorflow(); import torch; "
        "torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1)"
    )
    done = python("-c", program)
    assert done.returncode == 0, done.stderr
