"""What a SuperNode with Flower's own executor is told: it has no guard, so it does nothing."""

from flwr.clientapp import ClientApp

app = ClientApp()
