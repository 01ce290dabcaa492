"""SCAFFOLD's controls against the algorithm written out with states at the clients."""

import torch

from dpfl.server.scaffold_controls import corrections, initial_controls, updated_controls


def gradient(x: torch.Tensor, client: int) -> torch.Tensor:
    """Quadratics with other minima and curvatures."""
    return (1.0 + client) * (x - torch.tensor([1.0, -2.0, 0.5]) * client)


def test_controls_read_off_the_uploads_are_those_that_clients_would_keep() -> None:
    clients, steps, rate = 3, 4, 0.1
    x, c, own = torch.zeros(3), torch.zeros(3), [torch.zeros(3) for _ in range(clients)]
    vector, controls = torch.zeros(3), initial_controls(clients, 3)
    for number in range(6):
        cohort = (0, 1, 2) if number % 2 else (0, 2)
        changes, deltas = {}, []
        for client in cohort:
            y = x.clone()
            for _ in range(steps):
                y -= rate * (gradient(y, client) - own[client] + c)
            kept = own[client] - c + (x - y) / (steps * rate)
            deltas.append(kept - own[client])
            own[client], changes[client] = kept, y - x
        added = corrections(controls, cohort)
        updates = {}
        for client in cohort:
            y = vector.clone()
            for _ in range(steps):
                y -= rate * (gradient(y, client) + added[client])
            updates[client] = y - vector
        controls = updated_controls(controls, updates, steps, rate)
        x = x + sum(changes.values()) / len(cohort)
        c = c + sum(deltas) / clients
        vector = vector + sum(updates.values()) / len(cohort)
        assert torch.allclose(vector, x, atol=1e-5)
        assert torch.allclose(controls, torch.stack(own), atol=1e-4)
        assert torch.allclose(controls.mean(0), c, atol=1e-4)


def test_controls_bring_clients_that_pull_apart_to_the_common_minimum() -> None:
    rate, steps = 0.05, 10
    minimum = (
        sum((1.0 + client) * torch.tensor([1.0, -2.0, 0.5]) * client for client in range(3)) / 6
    )
    ends = []
    for controlled in (False, True):
        vector, controls = torch.zeros(3), initial_controls(3, 3)
        for _ in range(200):
            added = (
                corrections(controls, (0, 1, 2))
                if controlled
                else {client: torch.zeros(3) for client in range(3)}
            )
            updates = {}
            for client in range(3):
                y = vector.clone()
                for _ in range(steps):
                    y -= rate * (gradient(y, client) + added[client])
                updates[client] = y - vector
            controls = updated_controls(controls, updates, steps, rate)
            vector = vector + sum(updates.values()) / 3
        ends.append(float((vector - minimum).norm()))
    assert ends[1] < 1e-3 < ends[0]
